"""Cross-encoders: a model reads query and text together and gives one logit.

The model is leased from a `lifecycle.ModelManager` for each call, so it loads on first use, shares the
manager's budget with every other model, and is never unloaded while it scores. Where one backend fails for a while,
the next one that can run it answers.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Self

import numpy as np

from backends.catalogue import catalogue
from backends.choosing import registry
from backends.errors import InvalidInput
from backends.running.text_model import TextLoader
from lifecycle import ModelManager
from lifecycle.chains.text_chain import text_chain
from lifecycle.measuring.calibration import costs
from lifecycle.measuring.profile import profiled_nbytes
from rerank.base import RerankScores

if TYPE_CHECKING:
    from collections.abc import Sequence
    from pathlib import Path
    from types import TracebackType

    from numpy.typing import NDArray

    from backends.running.deadline import Deadline
    from backends.running.text_model import TextModel
    from lifecycle import Chain, Lease

DEFAULT_LEASE_TIMEOUT_S = 300.0


@dataclass(frozen=True, slots=True)
class LeasedCrossEncoder:
    """A cross-encoder on the backends that can run it, registered with a manager; holds no model.

    `max_length` is in tokens, query included; None takes the model's own. A call waits up to
    `lease_timeout_s` seconds for room and for the load.
    """

    chain: Chain
    max_length: int | None = None
    lease_timeout_s: float = DEFAULT_LEASE_TIMEOUT_S

    @property
    def name(self) -> str:
        """Return the model's name."""
        return self.chain.refs[0].name

    def score_detailed(self, query: str, texts: Sequence[str], *, deadline: Deadline | None = None) -> RerankScores:
        """Give each text its logit, float32[n].

        Raises:
            BudgetExhausted: the model can't fit.
            LeaseTimeout: it did not become free, or load, in time.
            LoadFailed: it could not be loaded.
            DeadlineExceeded: it can't be done in time.
            InferenceError: it failed on this input.
            FallbackExhausted: it failed on several backends.
        """
        if not texts:
            return RerankScores(np.empty(0, dtype=np.float32))

        def work(model: TextModel, lease: Lease) -> RerankScores:
            answer = model.score(query, texts, max_length=self.max_length, deadline=deadline)
            return RerankScores(
                scores=answer.scores,
                truncated=int(answer.truncated.sum()),
                cold=lease.cold,
                load_ms=lease.wait_s * 1000.0,
                backend=lease.backend,
                device=model.device,
            )

        return self.chain.run(work, timeout_s=self.lease_timeout_s, deadline=deadline)


@dataclass(frozen=True, slots=True)
class RankedText:
    """One text of the caller's list: its position there, its logit, and the text."""

    index: int
    score: float
    text: str


class CrossEncoder:
    """Score and rank texts of your own; needs no database.

    `model` is a catalogue name or a folder in Hugging Face layout. `backend` names the one to use, and then no other is
    fallen back to. Without a `manager` it makes one of its own, sized for this model, and `close` (or the end of a
    `with` block) closes it.

    Raises:
        UnknownModel: there is no such name or folder.
        InvalidInput: the model is not a cross-encoder.
    """

    def __init__(
        self,
        model: str | Path,
        *,
        manager: ModelManager | None = None,
        backend: str | None = None,
        max_length: int | None = None,
    ) -> None:
        spec = catalogue.resolve(model)
        if spec.task != "cross-encode":
            raise InvalidInput(f"model {spec.name!r} is for {spec.task!r}, not a cross-encoder: give one that reranks")
        order = registry.choose(spec, "query", asked=backend, costs=costs(spec, "query")).order
        loaders = (TextLoader(registry.get(name), measured=profiled_nbytes) for name in order)
        self._manager = manager or ModelManager(2 * max(loader.estimate(spec) for loader in loaders))
        self._owns_manager = manager is None
        self._leased = LeasedCrossEncoder(text_chain(self._manager, spec, order), max_length)

    @property
    def name(self) -> str:
        """Return the model's name."""
        return self._leased.name

    def score_detailed(self, query: str, texts: Sequence[str], *, deadline: Deadline | None = None) -> RerankScores:
        """Score as `score` does, and tell what it cost."""
        return self._leased.score_detailed(query, texts, deadline=deadline)

    def score(self, query: str, texts: Sequence[str]) -> NDArray[np.float32]:
        """Give each text its logit, float32[n], in the texts' order."""
        return self._leased.score_detailed(query, texts).scores

    def rank(self, query: str, texts: Sequence[str], top_k: int | None = None) -> list[RankedText]:
        """Rank the texts, best first; equal scores keep the order that they came in."""
        scores = self.score(query, texts)
        order = np.argsort(-scores, kind="stable")[:top_k]
        return [RankedText(int(i), float(scores[i]), texts[i]) for i in order]

    def close(self) -> None:
        """Free the model, if its manager is this object's own."""
        if self._owns_manager:
            self._manager.close()

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.close()
