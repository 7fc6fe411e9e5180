"""Cost-aware eviction twice: the heart, driven without threads, and the algorithm as its paper puts it."""

from __future__ import annotations

import math
from typing import TYPE_CHECKING

from lifecycle.config import InstanceKey, ModelConfig
from lifecycle.heart import signals
from lifecycle.heart.states import Job, Limits, State, observe
from lifecycle.heart.transitions import step

if TYPE_CHECKING:
    from collections.abc import Sequence

COLD = ModelConfig(warm_up=False)


def run_gdsf(requests: Sequence[int], costs: Sequence[int], budget: int) -> set[int]:
    """Return who is resident after these requests for models of size 1, whose loads take `costs` seconds."""
    state, now = State(Limits(budget, eviction="gdsf")), 0.0
    for model in range(len(costs)):
        state, _ = step(state, signals.Register(InstanceKey(str(model), "fake"), 1, COLD), now)
    for number, model in enumerate(requests, 1):
        now += 1.0
        key = InstanceKey(str(model), "fake")
        hit = next((g for g in state.generations.values() if g.key == key), None)
        if hit is not None:
            state = observe(state, [(hit.number, 0, now, hit.hits + 1)])
            continue
        state, effects = step(state, signals.Request(number, (key,), math.inf), now)
        jobs = [effect for effect in effects if isinstance(effect, signals.Start)]
        while jobs:
            job = jobs.pop()
            now += costs[model] if job.job is Job.LOAD else 0
            done = signals.Loaded(job.generation, 1) if job.job is Job.LOAD else signals.Unloaded(job.generation)
            state, effects = step(state, done, now)
            jobs += [effect for effect in effects if isinstance(effect, signals.Start)]
        state = observe(state, [(g.number, 0, now, g.hits) for g in state.generations.values() if g.refs])
    return {int(g.key.digest) for g in state.generations.values()}


def reference_gdsf(requests: Sequence[int], costs: Sequence[int], budget: int) -> set[int]:
    """Return the same by Cherkasova (1998): the model of lowest priority leaves, and raises L to that."""
    level = 0.0
    uses: dict[int, int] = {}
    priority: dict[int, float] = {}
    used_at: dict[int, int] = {}
    for now, model in enumerate(requests):
        if model not in priority and len(priority) == budget:
            victim = min(priority, key=lambda m: (priority[m], used_at[m]))
            level = priority.pop(victim)
        uses[model] = uses[model] + 1 if model in priority else 1
        priority[model] = level + uses[model] * costs[model]
        used_at[model] = now
    return set(priority)
