"""Remember scores: the same model gives the same query and text the same score."""

from __future__ import annotations

import hashlib
import threading
from collections import OrderedDict
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING

import numpy as np

from rerank.base import RerankScores, ask

if TYPE_CHECKING:
    from collections.abc import Sequence

    from backends.running.deadline import Deadline
    from rerank.base import Reranker

# What one score takes in CPython: a key of 16 bytes, a float, and their places in the dictionary and in the list that
# keeps its order. `tracemalloc` says 148 to 178, and 189 just after the dictionary has grown.
ENTRY_NBYTES = 192


class ScoreCache:
    """Scores by key, the least recently used of which leave so that all take at most `nbytes`. Threads may share it."""

    def __init__(self, nbytes: int) -> None:
        self._most = nbytes // ENTRY_NBYTES
        self._lock = threading.Lock()  # protects the dictionary; nothing is called while it is held
        self._scores: OrderedDict[bytes, float] = OrderedDict()

    @property
    def nbytes(self) -> int:
        """Return the bytes that the scores take."""
        return len(self._scores) * ENTRY_NBYTES

    def get(self, keys: Sequence[bytes]) -> list[float | None]:
        """Return each key's score, None where it isn't known."""
        with self._lock:
            for key in keys:
                if key in self._scores:
                    self._scores.move_to_end(key)
            return [self._scores.get(key) for key in keys]

    def put(self, keys: Sequence[bytes], scores: Sequence[float]) -> None:
        """Remember scores."""
        with self._lock:
            for key, score in zip(keys, scores, strict=True):
                self._scores[key] = score
                self._scores.move_to_end(key)
            while len(self._scores) > self._most:
                self._scores.popitem(last=False)


@dataclass(frozen=True, slots=True)
class CachedReranker:
    """A reranker that asks its model only for what isn't in the cache.

    `identity` says which model gives the scores and how it is given the texts: its digest, and what else changes them.
    """

    inner: Reranker
    identity: str
    cache: ScoreCache

    @property
    def name(self) -> str:
        """Return the inner reranker's name."""
        return self.inner.name

    def score_detailed(self, query: str, texts: Sequence[str], *, deadline: Deadline | None = None) -> RerankScores:
        """Give each text its score, float32[n]; where all are known no model is needed. A missing one isn't kept.

        Raises:
            VectorSearchError: as the inner reranker's.
        """
        keys = [_key(self.identity, query, text) for text in texts]
        known = self.cache.get(keys)
        unknown = [at for at, score in enumerate(known) if score is None]
        scores = np.array([np.nan if score is None else score for score in known], dtype=np.float32)
        if not unknown:
            return RerankScores(scores, cached=len(texts))
        answer = ask(self.inner, query, [texts[at] for at in unknown], deadline=deadline)
        scores[unknown] = answer.scores
        given = [at for at in unknown if not np.isnan(scores[at])]
        self.cache.put([keys[at] for at in given], scores[given].tolist())
        return replace(answer, scores=scores, cached=len(texts) - len(unknown))


def _key(*parts: str) -> bytes:
    digest = hashlib.blake2b(digest_size=16)
    for part in parts:
        text = part.encode("utf-8", "surrogatepass")
        digest.update(len(text).to_bytes(8, "little") + text)
    return digest.digest()
