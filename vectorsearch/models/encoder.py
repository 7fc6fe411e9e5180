"""Texts to vectors through a leased embedding model."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

from vectorsearch.models.dot_product import indexed

if TYPE_CHECKING:
    from collections.abc import Sequence

    import numpy as np
    from numpy.typing import NDArray

    from backends.base import ModelSpec
    from backends.running.deadline import Deadline
    from backends.running.text_model import Embeddings, TextKind, TextModel
    from lifecycle import Chain, Lease


@dataclass(frozen=True, slots=True)
class Encoding:
    """Vectors float32[n, dim] as they are indexed, and what they cost; `cut` bool[n] says which texts did not fit."""

    vectors: NDArray[np.float32]
    cut: NDArray[np.bool_]
    cold: bool
    load_ms: float
    backend: str
    device: str

    @property
    def truncated(self) -> int:
        """Return how many texts did not fit."""
        return int(self.cut.sum())


@dataclass(frozen=True, slots=True)
class Encoder:
    """An embedder on the backends that can run it. Each call leases the model; none is held between calls.

    Where one backend fails for a while, the next one of the chain answers, and the result names it.
    """

    chain: Chain
    spec: ModelSpec
    lease_timeout_s: float

    def encode_query(self, query: str, *, deadline: Deadline | None = None) -> Encoding:
        """Embed one query, with the model's query prefix: float32[1, dim].

        Raises:
            DeadlineExceeded: it can't be done in time.
            BudgetExhausted, LoadFailed, InferenceError: as `encode_passages`.
        """
        return self._encode([query], "query", deadline)

    def encode_queries(self, queries: Sequence[str], *, deadline: Deadline | None = None) -> Encoding:
        """Embed several queries at once, as `encode_query` does one: float32[n, dim]."""
        return self._encode(queries, "query", deadline)

    def encode_passages(self, texts: Sequence[str]) -> Encoding:
        """Embed documents, with the model's passage prefix: float32[n, dim].

        Raises:
            BudgetExhausted: the model can't fit.
            LoadFailed: it could not be loaded.
            InferenceError: it failed; nothing is returned, never vectors of zeros.
            FallbackExhausted: it failed on several backends.
        """
        return self._encode(texts, "passage", None)

    def embed(self, texts: Sequence[str], *, role: TextKind, deadline: Deadline | None = None) -> Embeddings:
        """Embed texts as the model gives them, not as they are indexed: float32[n, dim].

        Raises:
            DeadlineExceeded, LeaseTimeout: it can't be done, or the model not be had, in time.
            VectorSearchError: as `encode_passages`.
        """

        def work(model: TextModel, _: Lease) -> Embeddings:
            return model.embed(texts, kind=role, deadline=deadline)

        return self.chain.run(work, timeout_s=self.lease_timeout_s, deadline=deadline)

    def _encode(self, texts: Sequence[str], kind: TextKind, deadline: Deadline | None) -> Encoding:
        def work(model: TextModel, lease: Lease) -> Encoding:
            embeddings = model.embed(texts, kind=kind, deadline=deadline)
            return Encoding(
                vectors=indexed(embeddings.vectors, kind, self.spec),
                cut=embeddings.truncated,
                cold=lease.cold,
                load_ms=lease.wait_s * 1000.0,
                backend=lease.backend,
                device=model.device,
            )

        return self.chain.run(work, timeout_s=self.lease_timeout_s, deadline=deadline)
