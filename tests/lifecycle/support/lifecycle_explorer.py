"""Walk through every state that the pure heart can reach in a small world, and check every invariant in each."""

from __future__ import annotations

from collections import deque
from dataclasses import replace
from typing import TYPE_CHECKING

from lifecycle_checks import check, require
from lifecycle_moves import Report, happen, job_done, moves, release, swap_moves

from lifecycle.heart import signals
from lifecycle.heart.states import Phase
from lifecycle.heart.transitions import step

if TYPE_CHECKING:
    from collections.abc import Iterator

    from lifecycle_world import Scenario, World


def explore(scenario: Scenario, limit: int = 2_000_000) -> Report:
    """Visit every reachable world, check it, and check that everybody in it can still be served."""
    report = Report()
    first = scenario.start()
    check(first)
    seen = {first.identity()}
    frontier = deque([(first, 0)])
    while frontier:
        world, depth = frontier.popleft()
        report.states += 1
        report.depth = max(report.depth, depth)
        report.phases |= {g.phase for g in world.state.generations.values()}
        require(report.states < limit, f"more than {limit} states", world)
        check_liveness(scenario, world)
        for after in moves(scenario, world, report):
            report.transitions += 1
            name = after.identity()
            if name not in seen:
                seen.add(name)
                check(after)
                frontier.append((after, depth + 1))
    return report


def check_liveness(scenario: Scenario, world: World) -> None:
    """Check that every waiter ends: at its deadline by itself, and without the clock if everybody does his part."""
    for entry in world.state.queue:
        late, _ = step(world.state, signals.Tick(), entry.deadline)
        require(all(e.number != entry.number for e in late.queue), "14: a wait ends at its deadline", world)
    current = world
    while True:
        following = next(cooperative_moves(scenario, current), None)
        if following is None:
            break
        current = following
    require(not current.state.queue, "14: everybody who waits is served once the others are done", current)
    if current.state.closing:
        stuck = [g for g in current.state.generations.values() if g.phase is not Phase.QUARANTINED]
        require(not stuck, "15: nothing is left behind", current)


def cooperative_moves(scenario: Scenario, world: World) -> Iterator[World]:
    """Yield the moves in which jobs succeed, leases come back and mail is read, the clock standing still."""
    for number, job in world.jobs:
        done = replace(world, jobs=world.jobs - {(number, job)})
        yield happen(done, job_done(scenario, world, number, job))
    for index, caller in enumerate(world.callers):
        if caller.swap:
            if caller.held or caller.ending:
                yield from swap_moves(scenario, world, index, None)
        elif caller.held and not any(inner.under == index and inner.admission for inner in world.callers):
            yield release(world, index)
    if world.mail:
        yield happen(replace(world, mail=False), signals.Tick())
