"""Work beside the caller's own, and what becomes of late work."""

from __future__ import annotations

import threading

import pytest

from backends.errors import DeadlineExceeded
from backends.running.deadline import Deadline
from vectorsearch.query.execution.branches import Branches


def test_answer_or_error_comes_from_the_branch() -> None:
    """What the work returns or raises reaches who asks for it."""
    branches = Branches()
    assert branches.start(lambda: 3).result(None) == 3
    with pytest.raises(ZeroDivisionError):
        branches.start(lambda: 1 // 0).result(None)


def test_work_is_done_by_the_caller_when_there_are_no_more_threads(monkeypatch: pytest.MonkeyPatch) -> None:
    """Where the system refuses a thread, the answer comes all the same."""

    def refuse(*_: object) -> int:
        raise RuntimeError("can't start new thread")

    monkeypatch.setattr("_thread.start_new_thread", refuse)
    assert Branches().start(threading.get_ident).result(None) == threading.get_ident()


def test_work_is_done_by_the_caller_when_its_thread_has_not_begun(monkeypatch: pytest.MonkeyPatch) -> None:
    """Whoever has nothing else to do than to wait doesn't wait for a core; the thread then has nothing left to do."""
    held, done = [], []
    monkeypatch.setattr("_thread.start_new_thread", lambda perform, _: held.append(perform))
    assert Branches().start(lambda: done.append(threading.get_ident()) or 3).result(None) == 3
    held[0]()
    assert done == [threading.get_ident()]


def test_late_work_is_bounded_and_ends_by_itself() -> None:
    """Who waits no longer leaves the work behind; no more than so many pieces go on, and new ones are refused."""
    gate = threading.Event()
    branches = Branches(most_late=2)
    ended = [threading.Event() for _ in range(3)]

    def work(number: int) -> None:
        assert gate.wait(600)
        ended[number].set()

    for number in range(2):
        with pytest.raises(DeadlineExceeded, match="goes on by itself"):
            branches.start(lambda number=number: work(number)).result(Deadline.after(0.0))
    with pytest.raises(DeadlineExceeded, match="2 pieces"):
        branches.start(lambda: work(2)).result(None)
    gate.set()
    assert all(event.wait(600) for event in ended[:2])
    assert not ended[2].is_set()
