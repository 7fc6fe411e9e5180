"""Steps of two threads in the one order that would harm: each is held there on purpose."""

from __future__ import annotations

import queue
import threading
import time
from contextlib import suppress
from typing import TYPE_CHECKING, Any

import pytest
from lifecycle_fakes import COLD, Bench, FakeLoader, FakeSpec

from backends.engines.fake_backend import FakeBackend, Fault, fake_spec
from backends.running.text_model import TextLoader
from lifecycle import Chain, FallbackExhausted, ManagerClosed, ModelConfig, ModelManager, ModelNotRegistered, ModelRef
from lifecycle.keeping import report
from lifecycle.leasing.handle import ModelHandle
from lifecycle.watchdog import Watchdog

if TYPE_CHECKING:
    from collections.abc import Callable

    from lifecycle.leasing.lease import Lease

    MakeBench = Callable[..., Bench]

A, B = ModelRef("t", "A"), ModelRef("t", "B")
PATIENCE_S = 600.0  # what a lost message would cost; nothing here waits so long
START = threading.Thread.start


def use(manager: ModelManager, ref: ModelRef) -> None:
    """Take and return a lease."""
    with manager.lease(ref, PATIENCE_S):
        pass


def refuse(_: threading.Thread) -> None:
    """Start no thread, as where the system has no more."""
    raise RuntimeError("can't start new thread")


def test_close_returns_when_another_close_is_starting_the_keeper(
    bench: MakeBench, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A keeper's thread that is made but not running yet is left to the caller that starts it; it was joined once."""
    b = bench(1)
    b.manager.close()
    joined: list[str] = []

    def start_late(thread: threading.Thread) -> None:
        if thread.name == "lifecycle-keeper":
            b.manager._keeper.join()  # what another close does at this moment
            joined.append(thread.name)
        START(thread)

    monkeypatch.setattr(threading.Thread, "start", start_late)
    b.manager.close()
    assert set(joined) == {"lifecycle-keeper"}


@pytest.mark.parametrize("how", ["claim", "unload", "close"])
def test_the_keeper_hears_of_a_lease_that_ends_between_its_count_and_the_gate(
    how: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    """It was counted as open, and its end not yet watched: who waits for it is served at once all the same."""
    manager, loader = ModelManager(1, resident=lambda: None), FakeLoader()
    for ref in (A, B):
        manager.register(ref, FakeSpec(ref.name, 1, 1), loader, COLD)
    use(manager, A)
    lease = manager.lease(A)
    lease.__enter__()
    shut_gate = ModelHandle.shut_gate

    def shut_late(handle: ModelHandle) -> None:
        lease.release()
        shut_gate(handle)

    monkeypatch.setattr(ModelHandle, "shut_gate", shut_late)
    begun = time.monotonic()
    match how:
        case "claim":
            use(manager, B)
        case "unload":
            manager.unload(A, drain_timeout_s=PATIENCE_S)
    manager.close(timeout_s=PATIENCE_S)
    assert time.monotonic() - begun < PATIENCE_S


ASKED: dict[str, Callable[[ModelManager], object]] = {
    "reap": lambda manager: manager.reap(),
    "lease": lambda manager: use(manager, A),
    "prefetch": lambda manager: manager.prefetch([A]),
    "ping": lambda manager: manager.ping(int),
}


@pytest.mark.parametrize("ask", ASKED)
def test_the_keeper_does_not_end_when_it_is_about_to_be_asked(bench: MakeBench, ask: str) -> None:
    """Between finding its thread alive and the question's arrival it is kept from ending."""
    b = bench(1)
    b.add("A")
    keeper, held = b.manager._keeper, []

    class Mail(queue.SimpleQueue[Any]):
        def put(self, item: Any) -> None:  # type: ignore[override]  (no timeout is ever given)
            if threading.current_thread() is threading.main_thread():
                held.append(keeper._starting.locked())
            super().put(item)

    b.manager.reap()
    b.manager.close()
    keeper.join_thread()
    keeper._mail = Mail()
    with suppress(ManagerClosed):
        ASKED[ask](b.manager)
    assert held[0]


def test_one_keeper_is_left_when_its_start_was_interrupted(bench: MakeBench, monkeypatch: pytest.MonkeyPatch) -> None:
    """An interrupt before the new thread has begun makes it look dead; it ends by itself once it begins."""
    b = bench(1)
    late: list[threading.Thread] = []

    def interrupted(thread: threading.Thread) -> None:
        if thread.name == "lifecycle-keeper" and not late:
            late.append(thread)
            raise KeyboardInterrupt
        START(thread)

    monkeypatch.setattr(threading.Thread, "start", interrupted)
    with pytest.raises(KeyboardInterrupt):
        b.manager.reap()
    b.manager.reap()
    START(late[0])
    late[0].join(PATIENCE_S)
    assert not late[0].is_alive()
    b.add("A")
    assert b.use("A")


def test_snapshot_is_of_one_moment_when_a_model_is_forgotten_meanwhile(
    bench: MakeBench, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Every model of the state that it began with is in it."""
    b = bench(1)
    a = b.add("A")
    by_tenant = report.by_tenant

    def forgetting(state: Any) -> dict[str, int]:
        b.manager.unregister(a)
        return by_tenant(state)

    monkeypatch.setattr(report, "by_tenant", forgetting)
    assert [model.key.digest for model in b.manager.snapshot().models] == ["A"]
    with pytest.raises(ModelNotRegistered):
        b.manager.status(a)


def test_silence_is_not_reported_when_the_question_could_not_be_asked(
    bench: MakeBench, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A watchdog whose manager finds no thread tells so, and asks again at its next look."""
    b = bench(1)
    watchdog = Watchdog(b.manager, stall_s=60.0)
    with monkeypatch.context() as patch:
        patch.setattr(threading.Thread, "start", refuse)
        with pytest.raises(RuntimeError, match="can't start"):
            watchdog.check()
    b.clock.now += 120.0
    assert watchdog.check() is None


def test_a_hook_is_told_once_when_it_was_subscribed_again(bench: MakeBench, monkeypatch: pytest.MonkeyPatch) -> None:
    """One that was refused for want of a thread is not subscribed."""
    b = bench(1)
    told: list[str] = []

    def hook(event: Any) -> None:
        told.append(type(event).__name__)

    with monkeypatch.context() as patch:
        patch.setattr(threading.Thread, "start", refuse)
        with pytest.raises(RuntimeError, match="can't start"):
            b.manager.subscribe(hook)
    b.manager.subscribe(hook)
    b.add("A")
    b.use("A")
    b.manager.close()
    assert told.count("ModelReady") == 1


def test_a_breaker_is_probed_again_when_the_probe_met_a_forgotten_model() -> None:
    """What raises between the breaker's leave and the call decides nothing, and gives the probe back."""
    clock = {"now": 0.0}
    manager = ModelManager(100, clock=lambda: clock["now"])
    backends = [FakeBackend(name, nbytes=1, infers=[Fault.OUT_OF_MEMORY] * 9) for name in ("one", "two")]
    refs = [ModelRef("t", backend.name) for backend in backends]
    for ref, backend in zip(refs, backends, strict=True):
        manager.register(ref, fake_spec("m"), TextLoader(backend), ModelConfig(warm_up=False))
    chain = Chain(manager, refs)

    def work(model: Any, _: Lease) -> Any:
        return model.embed(["x"], kind="query")

    for _ in range(5):
        with pytest.raises(FallbackExhausted):
            chain.run(work)
    clock["now"] += 20.0
    manager.health.of("one").failed()  # so that it stays open beyond the other
    clock["now"] += 15.0
    for ref in refs:
        manager.unload(ref)  # which waits, as `unregister` doesn't: the clock is put on below
        manager.unregister(ref)
    with pytest.raises(ModelNotRegistered):
        chain.run(work)
    manager.health.of("one").failed()
    clock["now"] += 10_000.0
    manager.health.of("one").failed()
    assert manager.health.of("two").admits()
    manager.close()
