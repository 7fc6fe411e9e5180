"""The embedding space of a database: which model's vectors it holds, and how that is exchanged under searches."""

from __future__ import annotations

import threading
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Self, TypeVar

from backends.base import ModelSpec
from backends.catalogue.catalogue import is_same_model
from backends.errors import ModelUnavailable

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

T = TypeVar("T")

_SHOWN_DIGITS = 16


@dataclass(frozen=True, slots=True, kw_only=True)
class AbsentModel(ModelSpec):
    """Stands for an embedder that made a database's vectors and can't be had; `why` tells it, and the next step.

    With it all works that embeds nothing: `Models` raises the error where it would be run.
    """

    why: str

    @classmethod
    def of(cls, source: str, digest: str, *, dim: int | None, why: str) -> Self:
        """Return what stands for the model that was found at `source`."""
        folder = Path(source)
        return cls(
            name=folder.name,
            task="embed",
            folder=folder,
            digest=digest,
            weights_file="",
            weights_nbytes=0,
            dim=dim,
            why=why,
        )

    def error(self) -> ModelUnavailable:
        """Return what to raise where the model is needed."""
        return ModelUnavailable(self.why)


class EmbeddingSpace:
    """The embedder of a database, None if vectors are the caller's own. Threads may share it.

    A query's vector must be compared with vectors of the same model only. Searches take no lock: one that finds, at its
    end, that the model was exchanged meanwhile is done again with the new one.
    """

    def __init__(self, embedder: ModelSpec | None) -> None:
        self._embedder = embedder
        self.reindexing = threading.Lock()  # one at a time; the database's other locks are taken inside it
        self._exchanges = 0  # odd while one is going on
        self._settled = threading.Condition()  # protects that and the embedder; a leaf: nothing is called under it

    @property
    def embedder(self) -> ModelSpec | None:
        """Return the model, None if there is none."""
        return self._embedder

    def faults(self) -> dict[str, str]:
        """Return why the model can't be had, as `embedder_fault`; nothing if it can, or there is none."""
        embedder = self._embedder
        return {"embedder_fault": embedder.why} if isinstance(embedder, AbsentModel) else {}

    def notes(self, stored: object) -> dict[str, str]:
        """Return what to know of a model that the documents know by the digest of release 0.1.0, as `embedder_note`.

        `stored` is how they name it.
        """
        embedder = self._embedder
        if embedder is None or isinstance(embedder, AbsentModel) or not isinstance(stored, str) or "@" not in stored:
            return {}
        if not embedder.former_digest.startswith(stored.rpartition("@")[2]):
            return {}
        return {
            "embedder_note": f"the documents know model {embedder.name!r} by its digest of release 0.1.0, which left "
            "the configuration out; the answers are the same. To have that watched too, embed the documents "
            "again (`vectorsearch reindex`)" + (", with the model registered again" if embedder.checked else "")
        }

    def find_again(self, model: ModelSpec) -> None:
        """Let a model be the embedder if that is the one that made the vectors and couldn't be had."""
        with self._settled:
            self._settled.wait_for(lambda: self._exchanges % 2 == 0)
            if isinstance(self._embedder, AbsentModel) and is_same_model(model, digest_of(self._embedder)):
                self._embedder = model
                self._exchanges += 2  # searches under way are done again with it

    def settled(self) -> tuple[int, ModelSpec | None]:
        """Return the embedder, and a number that is another once it was exchanged; waits while it is exchanged."""
        with self._settled:
            self._settled.wait_for(lambda: self._exchanges % 2 == 0)
            return self._exchanges, self._embedder

    @property
    def exchanges(self) -> int:
        """Return that number as it is now."""
        return self._exchanges

    @contextmanager
    def exchange(self, embedder: ModelSpec, is_done: Callable[[], bool]) -> Iterator[None]:
        """Let searches wait for the length of a `with` block that exchanges the vectors.

        `is_done()` tells at its end whether they are exchanged: an error doesn't, since an interrupt may come later.
        """
        with self._settled:
            self._exchanges += 1
        try:
            yield
        finally:
            if is_done():
                self._embedder = embedder
            with self._settled:
                self._exchanges += 1
                self._settled.notify_all()


def digest_of(embedder: ModelSpec) -> str:
    """Return the digits by which a database knows its embedder's vectors."""
    return embedder.digest[:_SHOWN_DIGITS]
