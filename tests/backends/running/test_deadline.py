"""Deadlines: batches fit the time that is left, the runtime stops late runs, what can't be stopped is bounded."""

from __future__ import annotations

import threading
from contextlib import ExitStack
from typing import TYPE_CHECKING

import numpy as np
import onnx
import pytest
from onnx import TensorProto, helper, numpy_helper

from backends.catalogue import catalogue
from backends.choosing import registry
from backends.engines.fake_backend import FakeBackend, FakeModel, fake_spec
from backends.errors import DeadlineExceeded, InvalidInput
from backends.running import text_model
from backends.running.alarm import Alarm
from backends.running.deadline import Deadline, Pace
from backends.running.overtime import Overtime
from backends.running.text_model import TextLoader

if TYPE_CHECKING:
    from collections.abc import Callable
    from pathlib import Path

    from numpy.typing import NDArray

    from backends.base import TokenBatch

FAR_S = 600.0


class Clock:
    """Seconds that pass when told to."""

    def __init__(self) -> None:
        self.now = 0.0

    def __call__(self) -> float:
        """Return the time."""
        return self.now


def slow_graph(width: int = 1024, depth: int = 300) -> onnx.ModelProto:
    """Build an embedder that takes seconds for a full batch: each operator needs the one before it."""
    weights = {
        "table": np.eye(16, width, dtype=np.float32),
        "turn": np.roll(np.eye(width, dtype=np.float32), 1, axis=0),
    }
    nodes = [helper.make_node("Gather", ["table", "input_ids"], ["x0"])]
    nodes += [helper.make_node("MatMul", [f"x{i}", "turn"], [f"x{i + 1}"]) for i in range(depth)]
    nodes.append(helper.make_node("Identity", [f"x{depth}"], ["last_hidden_state"]))
    made = helper.make_graph(
        nodes,
        "slow",
        [helper.make_tensor_value_info(n, TensorProto.INT64, ["n", "l"]) for n in ("input_ids", "attention_mask")],
        [helper.make_tensor_value_info("last_hidden_state", TensorProto.FLOAT, ["n", "l", width])],
        [numpy_helper.from_array(value, name) for name, value in weights.items()],
    )
    return helper.make_model(made, opset_imports=[helper.make_opsetid("", 17)], ir_version=8)


def test_run_is_stopped_when_its_deadline_passes(make_folder: Callable[..., Path]) -> None:
    """A run that would take seconds ends with `DeadlineExceeded`, and the session serves the next call."""
    folder = make_folder(files={"config.json": {"architectures": ["TinyModel"], "hidden_size": 1024}})
    onnx.save(slow_graph(), str(folder / "model.onnx"))
    spec = catalogue.resolve(folder)
    model = text_model.TextLoader(registry.select(spec, backend="onnx")).load_model(spec)
    assert model.stops
    with pytest.raises(DeadlineExceeded, match="was stopped in a batch of"):
        model.embed(["dog " * 500], kind="passage", deadline=Deadline.after(0.02))
    assert np.isfinite(model.embed(["dog"], kind="passage", deadline=Deadline.after(FAR_S)).vectors).all()
    model.close()


def test_caller_leaves_when_the_session_is_busy_until_its_deadline(make_folder: Callable[..., Path]) -> None:
    """A run that waits for its turn gives up at its deadline; the one before it is not harmed."""
    spec = catalogue.resolve(make_folder())
    model = text_model.TextLoader(registry.select(spec, backend="onnx")).load_model(spec)
    with model._model._turn, pytest.raises(DeadlineExceeded, match="busy"):  # type: ignore[attr-defined]  (the session's)
        model.embed(["dog"], kind="passage", deadline=Deadline.after(0.01))
    assert model.embed(["dog"], kind="passage").vectors.shape == (1, 8)
    model.close()


def test_batches_shrink_when_little_time_is_left(monkeypatch: pytest.MonkeyPatch) -> None:
    """At 1 ms a token and 20 ms left no batch has more than 20 tokens; without a deadline all go in one."""
    clock, sizes, infer = Clock(), [], FakeModel.infer

    def watched(self: FakeModel, batch: TokenBatch) -> NDArray[np.float32]:
        sizes.append(batch.input_ids.size)
        return infer(self, batch)

    monkeypatch.setattr(FakeModel, "infer", watched)
    model = TextLoader(FakeBackend()).load_model(fake_spec("e"))
    expected = model.embed(["one two"] * 8, kind="query").vectors
    assert sizes == [32]
    model._pace = Pace()
    model._pace.note(1_000_000, 1.0)
    model._pace._usual_s = 0.001
    sizes.clear()
    vectors = model.embed(["one two"] * 8, kind="query", deadline=Deadline.after(0.02, clock)).vectors
    np.testing.assert_array_equal(vectors, expected)
    assert sizes[0] == 20
    assert sum(sizes) == 32


def test_call_is_refused_when_its_model_was_never_so_fast() -> None:
    """What takes 10 s at the best pace is not begun for 1 s; each refusal doubts the past, so one day it is tried."""
    clock, pace = Clock(), Pace()
    pace.note(100, 1.0)
    deadline = Deadline.after(1.0, clock)
    assert pace.allowance(deadline, left_tokens=100, most=512) == 100
    refusals = 0
    for _ in range(100):
        try:
            pace.allowance(deadline, left_tokens=1000, most=512)
        except DeadlineExceeded as error:
            assert "1000 tokens" in str(error)  # noqa: PT017  (the message is what is checked, the loop what is counted)
            refusals += 1
    assert 0 < refusals < 100
    clock.now = 1.0
    with pytest.raises(DeadlineExceeded):
        pace.allowance(deadline, left_tokens=0, most=512)


@pytest.mark.parametrize("timeout_s", [-1.0, float("nan"), float("inf")])
def test_deadline_is_refused_when_it_is_no_time(timeout_s: float) -> None:
    """Negative, infinite and NaN seconds are the caller's error."""
    with pytest.raises(InvalidInput, match="timeout_s"):
        Deadline.after(timeout_s)


def test_alarm_rings_in_order_when_its_time_comes_and_not_when_the_block_was_left() -> None:
    """A ring whose block is over is silent; the others ring, the earliest first, however they were set."""
    alarm, rung, last = Alarm(), [], threading.Event()
    with alarm.set(0.005, lambda: rung.append("left")):
        pass
    with ExitStack() as sets:
        with alarm._changed:  # so that none rings before all are set, however long that takes
            sets.enter_context(alarm.set(0.02, last.set))
            sets.enter_context(alarm.set(0.01, lambda: rung.append("second")))
            sets.enter_context(alarm.set(0.0, lambda: rung.append("first")))
        assert last.wait(FAR_S)
    assert rung == ["first", "second"]


def test_work_goes_on_and_is_bounded_when_callers_have_left() -> None:
    """Late work keeps its thread; what finds none is never begun; each call is finished with exactly once."""
    overtime, gate, begun, finished = Overtime(most=2), threading.Event(), threading.Semaphore(0), []

    def work() -> None:
        begun.release()
        assert gate.wait(FAR_S)

    passes_when_begun = Deadline(0.0, lambda: 0.0 if begun.acquire(timeout=FAR_S) else -FAR_S)
    for number in range(2):
        with pytest.raises(DeadlineExceeded, match="goes on by itself"):
            overtime.run(work, passes_when_begun, finally_do=lambda number=number: finished.append(number))
    assert finished == []
    with pytest.raises(DeadlineExceeded, match="one of 2 threads"):
        overtime.run(work, Deadline.after(0.01), finally_do=lambda: finished.append("never begun"))
    assert finished == ["never begun"]
    gate.set()
    assert overtime.run(lambda: 7, Deadline.after(FAR_S)) == 7
    with pytest.raises(ZeroDivisionError):
        overtime.run(lambda: 1 / 0, Deadline.after(FAR_S), finally_do=lambda: finished.append("failed"))
    overtime.close()
    for thread in overtime._threads:
        thread.join()
    assert sorted(map(str, finished)) == ["0", "1", "failed", "never begun"]
    assert not begun.acquire(blocking=False)


def test_work_finds_all_threads_when_one_could_not_be_started(monkeypatch: pytest.MonkeyPatch) -> None:
    """A call that was refused for want of a thread leaves nothing: two later ones run side by side."""
    overtime, both = Overtime(most=4), threading.Barrier(2)

    def refuse(_: threading.Thread) -> None:
        raise RuntimeError("can't start new thread")

    with monkeypatch.context() as patch:
        patch.setattr(threading.Thread, "start", refuse)
        for _ in range(3):
            with pytest.raises(RuntimeError, match="can't start"):
                overtime.run(int, Deadline.after(FAR_S))
    beside = threading.Thread(target=lambda: overtime.run(lambda: both.wait(600), Deadline.after(FAR_S)), daemon=True)
    beside.start()
    assert overtime.run(lambda: both.wait(600), Deadline.after(FAR_S)) in {0, 1}
    beside.join()
    overtime.close()


def test_work_finds_threads_when_its_process_was_forked() -> None:
    """A child has none of its parent's threads, but what they were counted by: it starts its own."""
    overtime = Overtime()
    assert overtime.run(lambda: 1, Deadline.after(FAR_S)) == 1
    overtime.close()
    for thread in overtime._threads:
        thread.join()  # as a fork leaves them
    assert overtime.run(lambda: 2, Deadline.after(30)) == 2
    overtime.close()
