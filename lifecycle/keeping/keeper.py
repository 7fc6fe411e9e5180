"""`Keeper`: the one thread that owns the state. It takes mail, makes time pass, and runs the effects.

Nothing is locked here: only the keeper's thread writes the state, the gates and the table of open handles, and
everybody else sends it mail, so that returning a lease waits for nothing and no interrupt can leave a step half-made.
Backend code runs on worker threads and hooks on the notifier's, so the keeper waits for mail only.
"""

from __future__ import annotations

import math
import threading
from collections import deque
from dataclasses import dataclass
from typing import TYPE_CHECKING

from lifecycle import events
from lifecycle.errors import ModelNotRegistered
from lifecycle.heart import signals
from lifecycle.heart.states import Job, State, observe
from lifecycle.heart.transitions import step
from lifecycle.keeping.mailbox import LONGEST_TIMER_S, LOOK_S, Mailbox, complain
from lifecycle.keeping.residue import Residue, measure
from lifecycle.keeping.tally import Tally
from lifecycle.leasing.handle import ModelHandle

if TYPE_CHECKING:
    from collections.abc import Callable

    from lifecycle.config import InstanceKey, ModelRef
    from lifecycle.keeping.instance import Instance
    from lifecycle.keeping.reading import Reading
    from lifecycle.leasing.ticket import Ticket

MOMENT_S = 0.5  # what a call may take beyond the time it was given, so that a time of 0 is enough for an idle model
_LATE_S = 0.25  # how much longer than its time somebody waits for the thread to say that the time is up


@dataclass(frozen=True, slots=True)
class Watch:
    """Somebody who waits for a state in which something holds, until a time."""

    holds: Callable[[State], bool]
    until: float
    over: threading.Event

    def is_over(self, state: State) -> bool:
        """Return whether nobody need wait any longer: by his own time, whatever else may go on."""
        return self.holds(state) or self.until <= state.now


class Keeper(Mailbox):
    """Own one `State`. All attributes are written by its thread only; reading `state` is safe anywhere."""

    def __init__(
        self,
        state: State,
        clock: Callable[[], float],
        notifier: events.Notifier,
        resident: Callable[[], int | None],
    ) -> None:
        self.notifier = notifier
        super().__init__()
        self.state = state
        self.residue = Residue()
        self.open_handles: dict[ModelRef, ModelHandle] = {}
        self.handles: dict[int, ModelHandle] = {}
        self.instances: dict[InstanceKey, Instance] = {}
        self.tally = Tally()
        self._clock = clock
        self._resident = resident
        self._undone: deque[signals.Effect] = deque()
        self._tickets: dict[int, Ticket] = {}
        self._next_ticket = 1
        self._watches: list[Watch] = []
        self._workers: list[threading.Thread] = []

    # For any thread.

    def send_event(self, event: signals.Input) -> None:
        """Have an input happen soon; waits for nothing, takes no lock."""
        self.send(lambda: self.happen(event))

    def wait_until(self, holds: Callable[[State], bool], until: float = math.inf) -> None:
        """Wait for a state in which something holds, until a time of the clock."""
        watch = Watch(holds, until, threading.Event())
        self.post(lambda: self._watch(watch))
        while not watch.over.wait(min(LOOK_S, self._left_s(until))):
            if self._clock() >= until:
                self.send(self.tick)
                watch.over.wait(_LATE_S)
                break
            self.post(lambda: self._watch(watch))  # the thread may have died, and the first letter with it
        if not watch.over.is_set():
            self.send(lambda: self._unwatch(watch))

    def join(self, until: float = math.inf) -> None:
        """Wait for the threads that have nothing left to do; one that is stuck in backend code is left alone."""
        for worker in self._workers.copy():
            if worker.name not in self._stuck() and worker is not threading.current_thread():
                worker.join(self._left_s(until))
        self.join_thread(self._left_s(until))

    def _left_s(self, until: float) -> float:
        return max(0.0, min(LONGEST_TIMER_S, until - self._clock()))

    def renew(self) -> None:
        """Begin anew in a forked child, as `Mailbox.renew`; its hooks are told nothing."""
        super().renew()
        self.notifier.renew()

    def abandon(self) -> None:
        """Close, since nobody is left who could ask for anything; again is harmless."""
        self.happen(signals.CloseAsked(self._clock() + self.state.limits.unload_timeout_s))
        self.notifier.close(0.0)

    @property
    def is_finished(self) -> bool:
        """Return whether nothing can happen any more."""
        return self.state.is_finished

    def pause_s(self) -> float:
        """Return after how long something happens by itself."""
        return min([self.state.next_deadline(), *(watch.until for watch in self._watches)]) - self._clock()

    # For the keeper's thread.

    def admit(self, ticket: Ticket, deadline: float) -> None:
        """Ask for leases on what the ticket's refs mean."""
        ticket.number, self._next_ticket = self._next_ticket, self._next_ticket + 1
        self._tickets[ticket.number] = ticket
        ticket.keys, ticket.spared = ticket.lease.keys, ticket.lease.spared
        keys = tuple(dict.fromkeys(ticket.keys))
        asking = frozenset(ref.tenant for ref in ticket.lease.refs)
        under = tuple(hold.admission for hold in ticket.holds)
        self.happen(signals.Request(ticket.number, keys, deadline, ticket.spared, asking, under))
        ticket.lease.cold = not ticket.done.is_set()

    def keep(self, number: int, ttl_s: float) -> None:
        """Give an instance another time to live."""
        self.happen(signals.Keep(number, ttl_s))
        if number in self.state.generations:
            self.publish_key(self.state.generations[number].key)
            self.tick()  # another last lease may have ended before its gate was watched

    def redirect(self) -> None:
        """Let everybody who waits wait for what his refs mean now; nobody loses his place."""
        for ticket in list(self._tickets.values()):
            try:
                wanted = (ticket.lease.keys, ticket.lease.spared)
            except ModelNotRegistered:  # forgotten while it waits: it gets what its refs meant
                continue
            if not ticket.done.is_set() and wanted != (ticket.keys, ticket.spared):
                ticket.keys, ticket.spared = wanted
                self.happen(signals.Redirect(ticket.number, tuple(dict.fromkeys(ticket.keys)), ticket.spared))

    def cancel(self, ticket: Ticket) -> None:
        """Take back a request whose caller is gone, and whatever it may have been given meanwhile."""
        if self._tickets.pop(ticket.number, None):
            self.happen(signals.Cancel(ticket.number))
        ticket.lease.release()

    def happen(self, event: signals.Input) -> None:
        """Make one step and do what follows from it."""
        new, effects = self._decide(event)
        old, self.state = self.state, new
        for number in old.generations.keys() - new.generations.keys():
            self._forget(number)
        for key in old.models.keys() - new.models.keys():
            self.instances.pop(key, None)
        self._undone.extend(effects)
        self._carry_out_all()
        watches = new.watches_leases
        for generation in new.generations.values():
            if generation.is_open and (old.watches_leases != watches or self.handles[generation.number].shut):
                self.publish(self.handles[generation.number])
        if watches and not old.watches_leases:
            self.send(self.tick)  # a last lease may have ended just before its gate was watched
        for watch in [watch for watch in self._watches if watch.is_over(new)]:
            self._watches.remove(watch)
            watch.over.set()

    def publish_key(self, key: InstanceKey) -> None:
        """Let hits in through every ref of a key, if its instance is open."""
        for generation in self.state.generations.values():
            if generation.key == key and generation.is_open:
                self.publish(self.handles[generation.number])

    def publish(self, handle: ModelHandle) -> None:
        """Let hits in through every ref of the handle's key."""
        generation = self.state.generations[handle.generation]
        handle.last_used = max(handle.last_used, generation.last_used)
        is_pinned = self.state.models[handle.key].config.pinned
        goes_at_once = self.state.ttl_s(generation) == 0 and not is_pinned
        handle.open_gate(watched=goes_at_once or self.state.watches_leases)
        for ref in self.instances[handle.key].refs:
            self.open_handles[ref] = handle

    def _decide(self, event: signals.Input) -> tuple[State, tuple[signals.Effect, ...]]:
        """Plan one step on what the handles count, while hits go on.

        Every gate that the plan shuts is shut first and counted again; if a lease slipped in, the plan is made anew.
        A gate once shut stays shut until the plan stands, so each round fixes at least one more count; whatever the
        final plan leaves open is opened again by `happen`. Until then its callers come here, and wait their turn.
        """
        now = self._clock()
        shut: set[int] = set()
        while True:
            seen = observe(self.state, [(n, h.refs, h.last_used, h.hits) for n, h in self.handles.items()])
            new, effects = step(seen, event, now)
            closing = {g.number for g in seen.generations.values() if g.is_open and not _is_open(new, g.number)} - shut
            for number in closing:
                self._shut(self.handles[number])
            shut |= closing
            counts = [(self.handles[number].refs, seen.generations[number].refs) for number in closing]
            if all(now_open <= planned for now_open, planned in counts):
                if any(now_open < planned for now_open, planned in counts):
                    self.send(self.tick)  # a lease ended before its gate was watched, so nobody else tells of it
                return new, effects

    def _shut(self, handle: ModelHandle) -> None:
        handle.shut_gate()
        for ref in self.instances[handle.key].refs:
            self.open_handles.pop(ref, None)

    def _carry_out_all(self) -> None:
        """Carry out every effect, whatever one of them meets; should the thread die here, the next step goes on."""
        while self._undone:
            effect = self._undone.popleft()
            try:
                self._carry_out(effect)
            except BaseException as defect:  # noqa: BLE001 - it must cut none of the others short
                complain("lifecycle keeper could not carry out %r", effect)
                if isinstance(effect, signals.Start):
                    self.send_event(signals.JobFailed(effect.generation, defect, loaded=False))

    def _carry_out(self, effect: signals.Effect) -> None:
        match effect:
            case signals.Start(number, job):
                if job is Job.LOAD:
                    key = self.state.generations[number].key
                    instance = self.instances[key]
                    self.handles[number] = ModelHandle(key, number, instance.loader, instance.spec, self._on_idle)
                self._start(number, job)
            case signals.Grant(admission, generations):
                self._give(self._tickets.pop(admission), generations)
            case signals.Refuse(admission, why):
                ticket = self._tickets.pop(admission)
                ticket.refusal = (why, self.state)
                ticket.done.set()
            case events.Event():
                self.announce(effect)

    def _give(self, ticket: Ticket, generations: tuple[int, ...]) -> None:
        self.tally.cold_leases += 1
        try:
            handles = {self.handles[number].key: self.handles[number] for number in generations}
            ticket.lease.give(tuple(handles[key] for key in ticket.keys))
        except BaseException as defect:
            ticket.refusal = defect
            ticket.lease.release()
            raise
        finally:
            ticket.done.set()

    def announce(self, event: events.Event) -> None:
        """Count an event and tell the hooks."""
        self.tally.note(event)
        self.notifier.publish(event)

    def _forget(self, number: int) -> None:
        handle = self.handles.pop(number, None)
        if handle is not None:
            self.tally.keep(handle)

    def _watch(self, watch: Watch) -> None:
        if watch.is_over(self.state):
            watch.over.set()
        elif watch not in self._watches:
            self._watches.append(watch)

    def _unwatch(self, watch: Watch) -> None:
        if watch in self._watches:
            self._watches.remove(watch)

    def _on_idle(self) -> None:
        self.send(self.tick)

    def tick(self) -> None:
        """Let time pass."""
        self.happen(signals.Tick())

    # Jobs.

    def _start(self, number: int, job: Job) -> None:
        """Run a job on a thread of its own; if there is no thread to be had, the job has failed."""
        handle = self.handles[number]
        if job is Job.WARM_UP and not handle.warms_up:
            self.send_event(signals.Warmed(number))
            return
        worker = threading.Thread(
            target=lambda: self._work(handle, job), name=f"lifecycle-{job.value}-{number}", daemon=True
        )
        self._workers = [other for other in self._workers if other.is_alive()]
        try:
            worker.start()
        except (RuntimeError, MemoryError) as error:
            self.send_event(signals.JobFailed(number, error, loaded=handle.model is not None))
        else:
            self._workers.append(worker)

    def _work(self, handle: ModelHandle, job: Job) -> None:
        before = self._measure(handle)
        ended = handle.perform(job)
        after = self._measure(handle)
        self.send(lambda: self._ended(handle, job, ended, before, after))

    def _measure(self, handle: ModelHandle) -> Reading | None:
        try:
            return measure(self._resident, handle.generation, self.state, self.handles.copy())
        except BaseException:  # noqa: BLE001 - what can't be read must not keep the job's end from being told
            complain("lifecycle could not read the resident memory")
            return None

    def _ended(
        self,
        handle: ModelHandle,
        job: Job,
        ended: signals.Input,
        before: Reading | None,
        after: Reading | None,
    ) -> None:
        generation = self.state.generations.get(handle.generation)
        charged = 0 if generation is None else generation.charged_nbytes
        self.happen(ended)
        if isinstance(ended, signals.JobFailed):
            return
        grown = self.residue.note(handle, job, before, after, charged_nbytes=charged)
        if grown > 0:
            self.announce(events.ResidueLeft(handle.key, handle.generation, grown))

    def _stuck(self) -> set[str]:
        jobs = [(g.job, number) for number, g in self.state.generations.items() if g.job is not None]
        return {f"lifecycle-{job.value}-{number}" for job, number in jobs}


def _is_open(state: State, number: int) -> bool:
    generation = state.generations.get(number)
    return generation is not None and generation.is_open
