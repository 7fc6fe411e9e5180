"""The fault matrix: whatever is raised, wherever, with however many callers, everybody is told and nothing leaks."""

from __future__ import annotations

import gc
import threading
from typing import TYPE_CHECKING

import pytest
from lifecycle_fakes import Call

from backends.errors import ModelUnavailable
from lifecycle import LoadFailed, ModelConfig, ModelRef, UnloadFailed, UnloadTimeout

if TYPE_CHECKING:
    from collections.abc import Callable

    from lifecycle_fakes import Bench

    MakeBench = Callable[..., Bench]

ERRORS = [OSError, MemoryError, ModelUnavailable, SystemExit, KeyboardInterrupt, GeneratorExit]


@pytest.mark.parametrize("callers", [1, 8])
@pytest.mark.parametrize("step", ["load", "nbytes", "warm_up"])
@pytest.mark.parametrize("kind", ERRORS)
def test_everybody_is_told_when_a_step_of_the_load_raises(
    bench: MakeBench, kind: type[BaseException], step: str, callers: int
) -> None:
    """All callers get LoadFailed with the cause, what was loaded is closed, and after the backoff it works."""
    b = bench(1)
    b.add("A", config=ModelConfig())
    error = kind("the reason")
    b.loader.faults["A", step] = [error]
    gate = b.loader.hold("A")
    waiters = [b.later("A") for _ in range(callers)]
    b.waiting(callers)
    gate.opened.set()
    for waiter in waiters:
        told = waiter.error()
        assert isinstance(told, LoadFailed)
        assert told.__cause__ is error
        assert "the reason" in str(told)
        assert kind.__name__ in str(told)
    b.until(lambda state: not state.generations)
    assert b.state.charged_nbytes == 0
    assert not +b.loader.resident or step == "load"
    b.pass_time(1.0)
    b.use("A")
    assert b.manager.snapshot().counters.load_failures == 1


@pytest.mark.parametrize("callers", [1, 8])
@pytest.mark.parametrize("kind", ERRORS)
def test_bytes_stay_charged_when_close_raises(bench: MakeBench, kind: type[BaseException], callers: int) -> None:
    """A failed unload is told to everybody who asked, quarantined, and blocks nobody but by its bytes."""
    b = bench(2)
    b.add("A")
    b.use("A")
    b.loader.faults["A", "close"] = [kind("stuck")]
    gate = b.loader.hold("A", "close")
    unloads = [Call(lambda: b.manager.unload(ModelRef("t", "A"))) for _ in range(callers)]
    gate.reached.wait()
    keeper = b.manager._keeper
    while len(keeper._watches) < callers:
        b.manager.reap()
    gate.opened.set()
    for unload in unloads:
        error = unload.error()
        assert isinstance(error, UnloadFailed)
        assert "stuck" in str(error)
    snapshot = b.manager.snapshot()
    assert (snapshot.quarantined_nbytes, snapshot.charged_nbytes, snapshot.counters.quarantined) == (1, 1, 1)
    b.use("A")
    assert b.state.charged_nbytes == 2
    with pytest.raises(UnloadFailed, match="stuck"):
        b.manager.close()
    assert b.state.charged_nbytes == 1
    b.has_quarantine = True


@pytest.mark.parametrize("kind", [OSError, ModelUnavailable, MemoryError])
def test_nothing_is_registered_when_the_estimate_raises(bench: MakeBench, kind: type[Exception]) -> None:
    """A loader that can't tell the size fails the registration, and a later one works."""
    b = bench(1)
    b.loader.faults["A", "estimate"] = [kind("no files")]
    with pytest.raises(LoadFailed, match="no files") as caught:
        b.add("A")
    assert isinstance(caught.value.__cause__, kind)
    assert b.manager.registered() == ()
    b.add("A")
    b.use("A")


@pytest.mark.parametrize("kind", [SystemExit, KeyboardInterrupt])
def test_interrupt_passes_through_when_it_hits_the_estimate(bench: MakeBench, kind: type[BaseException]) -> None:
    """The estimate runs on the caller's thread, so a caller's own interrupt stays one."""
    b = bench(1)
    b.loader.faults["A", "estimate"] = [kind()]
    with pytest.raises(kind):
        b.add("A")
    assert b.manager.registered() == ()


def test_waiters_are_told_when_a_load_is_too_slow(bench: MakeBench) -> None:
    """A load past its deadline fails its waiters, keeps its bytes charged, and is closed when it ends after all."""
    b = bench(2)
    b.add("A", config=ModelConfig(warm_up=False, load_timeout_s=5.0))
    gate = b.loader.hold("A")
    waiter = b.later("A")
    gate.reached.wait()
    b.pass_time(5.0)
    told = waiter.error()
    assert isinstance(told, LoadFailed)
    assert isinstance(told.cause, TimeoutError)
    assert b.manager.snapshot().quarantined_nbytes == 1
    gate.opened.set()
    b.until(lambda state: not state.generations)
    assert b.loader.done["A", "close"] == 1
    b.pass_time(1.0)
    b.use("A")


@pytest.mark.parametrize("callers", [1, 8])
@pytest.mark.parametrize("kind", ERRORS)
def test_caller_decides_when_its_own_inference_raises(
    bench: MakeBench, kind: type[BaseException], callers: int
) -> None:
    """An exception in the block is the caller's own: the model stays, others hold it, and the next caller finds it."""
    b = bench(1)
    b.add("A")
    inside = threading.Barrier(callers)

    def infer() -> None:
        with b.lease("A"):
            inside.wait()
            raise kind

    calls = [Call(infer) for _ in range(callers)]
    assert {type(call.error()) for call in calls} == {kind}
    b.use("A", 0.0)
    assert b.loads("A") == 1
    assert b.manager.snapshot().models[0].leases == 0


def test_all_else_is_unloaded_when_closing_with_a_lease_open(bench: MakeBench) -> None:
    """Closing tries everything: the leased model is quarantined, told of, and leaves with its last lease."""
    b = bench(2)
    b.add("A")
    b.add("B")
    b.use("B")
    with b.lease("A") as model:
        closing = Call(lambda: b.manager.close(timeout_s=5.0))
        b.until(lambda state: state.closing and len(state.generations) == 1)
        b.pass_time(5.0)
        assert isinstance(closing.error(), UnloadTimeout)
        assert b.loader.done["B", "close"] == 1
        assert not model.closed
    b.until(lambda state: not state.generations)
    assert model.closed


def test_hook_harms_nobody_when_it_raises(bench: MakeBench, caplog: pytest.LogCaptureFixture) -> None:
    """A raising hook is logged, and the others and the manager go on."""
    b = bench(1)
    b.add("A")
    told: list[str] = []

    def broken(event: object) -> None:
        raise RuntimeError(type(event).__name__)

    b.manager.subscribe(broken)
    b.manager.subscribe(lambda event: told.append(type(event).__name__))
    b.use("A")
    b.manager.close()
    assert told == ["ModelReady", "ModelUnloaded"]
    assert "hook" in caplog.text


def test_load_fails_when_there_is_no_thread_to_be_had(bench: MakeBench, monkeypatch: pytest.MonkeyPatch) -> None:
    """A worker that can't be started is a failed load, not a wait without end."""
    b = bench(1)
    b.add("A")
    start = threading.Thread.start

    def refuse(self: threading.Thread) -> None:
        if self.name.startswith("lifecycle-load"):
            raise RuntimeError("can't start new thread")
        start(self)

    monkeypatch.setattr(threading.Thread, "start", refuse)
    with pytest.raises(LoadFailed, match="can't start new thread"):
        b.use("A")
    monkeypatch.undo()
    b.pass_time(1.0)
    b.use("A")


def test_model_is_closed_when_it_tells_an_impossible_size(bench: MakeBench) -> None:
    """A negative size fails the load, and what was loaded is closed."""
    b = bench(1)
    b.add("A", measured=-1)
    with pytest.raises(LoadFailed, match="can't be negative"):
        b.use("A")
    b.until(lambda state: not state.generations)
    assert b.loader.done["A", "close"] == 1


def test_model_needs_only_size_and_close_when_it_is_foreign(bench: MakeBench) -> None:
    """A model without warm_up and device is served all the same."""
    b = bench(1)

    class Plain:
        nbytes = 1

        def close(self) -> None:
            """Close."""

    ref = b.add("A", config=ModelConfig())
    b.loader.load_model = lambda _spec: Plain()  # type: ignore[method-assign,assignment,return-value] - that is the point
    lease = b.manager.lease(ref)
    assert lease.device is None
    with lease as model:
        assert isinstance(model, Plain)
    assert (lease.ref, lease.device) == (ref, None)


def test_leak_is_logged_when_warnings_are_errors(bench: MakeBench, caplog: pytest.LogCaptureFixture) -> None:
    """Where a warning would be raised on nobody's thread, it is logged, and the lease is returned."""
    b = bench(1)
    b.add("A")
    b.lease("A").__enter__()
    gc.collect()
    b.manager.reap()
    assert "was never closed" in caplog.text
    assert b.manager.snapshot().models[0].leases == 0


def test_keeper_goes_on_when_something_it_was_sent_raises(bench: MakeBench, caplog: pytest.LogCaptureFixture) -> None:
    """A defect met by one piece of mail is logged, and the thread on which all callers wait lives on."""
    b = bench(1)
    b.add("A")
    b.manager._keeper.send(lambda: 1 // 0)
    b.use("A")
    assert "ZeroDivisionError" in caplog.text
