"""What stages should cost: running averages of this database's searches, and before there are any, profiles."""

from __future__ import annotations

import threading
from dataclasses import replace
from typing import TYPE_CHECKING

from lifecycle.measuring import profile

if TYPE_CHECKING:
    from backends.base import ModelSpec
    from vectorsearch.models.model_state import ModelState
    from vectorsearch.query.results import SearchResult, StageStats

_NEWEST = 0.3  # weight of the newest search in an average
_DOUBT = 1.5  # how much more than a stage took until it failed it is taken to cost

Key = tuple[str, str]  # a stage's kind, and the model's name, empty for none


class Costs:
    """Milliseconds per query or per text, by stage and model. Threads may share it."""

    def __init__(self) -> None:
        self._lock = threading.Lock()  # protects both dictionaries; nothing is called while it is held
        self._unit_ms: dict[Key, float] = {}
        self._profiles: dict[Key, profile.Profile | None] = {}

    def learn(self, result: SearchResult) -> None:
        """Take what a search's stages took into the averages; loads count apart from the work."""
        for stage in result.stats:
            if units := _units(stage):
                work_ms = max(0.0, stage.latency_ms - stage.load_ms)
                # One that was left out would have taken longer, if that is why.
                is_left_out = stage.error is not None and stage.candidates_out == 0
                self._note((_kind(stage), stage.model or ""), work_ms / units, at_least=is_left_out)
        for load in result.loads:
            self._note(("load", load.model), load.latency_ms, at_least=False)

    def unit_ms(self) -> dict[str, float]:
        """Return what was learned of stages without a model: `lexical` and `dense` by query, `rerank:NAME` by text."""
        with self._lock:
            learned = dict(self._unit_ms)
        found = {kind: ms for (kind, name), ms in learned.items() if not name}
        return found | {f"rerank:{name}": ms for (kind, name), ms in learned.items() if kind == "rerank" and name}

    def of(self, state: ModelState, spec: ModelSpec) -> ModelState:
        """Return a model's state with what it is expected to cost."""
        kind = "encode" if spec.task == "embed" else "rerank"
        with self._lock:
            unit_ms, load_ms = self._unit_ms.get((kind, state.name)), self._unit_ms.get(("load", state.name))
        is_learned = unit_ms is not None
        measured = None if is_learned and load_ms is not None else self._profile(spec, state.backend)
        if measured is not None:
            load_ms = measured.load_s * 1000.0 if load_ms is None else load_ms
            its_ms = measured.query_ms if spec.task == "embed" else measured.bulk_ms
            unit_ms = its_ms if unit_ms is None else unit_ms
        return replace(state, unit_ms=unit_ms, load_ms=load_ms, learned=is_learned)

    def _profile(self, spec: ModelSpec, backend: str) -> profile.Profile | None:
        """Return the model's profile, read from disk once."""
        key = (spec.digest, backend)
        if key not in self._profiles:
            found = profile.read(spec, backend)
            with self._lock:
                self._profiles[key] = found
        return self._profiles[key]

    def _note(self, key: Key, ms: float, *, at_least: bool) -> None:
        with self._lock:
            known = self._unit_ms.get(key)
            if known is None:
                self._unit_ms[key] = _DOUBT * ms if at_least else ms
            elif not at_least:
                self._unit_ms[key] = known + _NEWEST * (ms - known)
            elif _DOUBT * ms > known:  # all that is known is that it costs more, so the next plan reckons with more
                self._unit_ms[key] = (known + _DOUBT * ms) / 2


def _kind(stage: StageStats) -> str:
    return stage.stage.partition(".")[0]


def _units(stage: StageStats) -> int:
    """Return how many texts a rerank stage asked a model for, cached ones not counted; 1 for any other stage."""
    return stage.candidates_in - stage.cached if _kind(stage) == "rerank" else 1
