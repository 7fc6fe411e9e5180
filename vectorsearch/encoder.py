"""Texts to vectors through a leased embedding model."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Sequence

    import numpy as np
    from numpy.typing import NDArray

    from backends.base import ModelSpec
    from backends.deadline import Deadline
    from backends.text_model import TextModel
    from lifecycle import ModelManager, ModelRef


@dataclass(frozen=True, slots=True)
class Encoding:
    """Vectors float32[n, dim] and what they cost; `truncated` counts texts whose tail did not fit."""

    vectors: NDArray[np.float32]
    truncated: int
    cold: bool
    load_ms: float
    backend: str
    device: str


@dataclass(frozen=True, slots=True)
class Encoder:
    """An embedder registered with a manager. Each call leases the model; none is held between calls."""

    manager: ModelManager
    ref: ModelRef
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
        """
        return self._encode(texts, "passage", None)

    def _encode(self, texts: Sequence[str], kind: str, deadline: Deadline | None) -> Encoding:
        timeout_s = self.lease_timeout_s if deadline is None else min(self.lease_timeout_s, deadline.left_s)
        lease = self.manager.lease(self.ref, timeout_s=timeout_s)
        with lease as leased:
            model: TextModel = leased
            embeddings = model.embed(texts, kind="query" if kind == "query" else "passage", deadline=deadline)
            return Encoding(
                vectors=embeddings.vectors,
                truncated=int(embeddings.truncated.sum()),
                cold=lease.cold,
                load_ms=lease.wait_s * 1000.0,
                backend=lease.backend,
                device=model.device,
            )
