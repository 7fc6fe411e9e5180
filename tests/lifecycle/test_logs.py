"""Structured logs: one record an event, with the event's fields as attributes."""

from __future__ import annotations

import dataclasses
import logging
from typing import TYPE_CHECKING

import pytest

from lifecycle import LoadFailed, events
from lifecycle.logs import log_events

if TYPE_CHECKING:
    from collections.abc import Callable

    from lifecycle_fakes import Bench

    MakeBench = Callable[..., Bench]


def test_records_hold_the_fields_when_events_happen(bench: MakeBench, caplog: pytest.LogCaptureFixture) -> None:
    """Each event is a record of its level, with names for humans and the event's own fields in `extra`."""
    caplog.set_level(logging.INFO, "lifecycle")
    b = bench(1)
    log_events(b.manager)
    b.add("A", digest="same")
    b.add("B", digest="same")
    b.loader.faults["same", "load"].append(ValueError("broken"))
    with pytest.raises(LoadFailed):
        b.use("A")
    b.pass_time(1.0)
    with b.lease("A"):
        pass
    b.manager.close()
    failure, ready, unloaded = (vars(record) for record in caplog.records)
    assert failure["levelname"] == "WARNING"
    assert (failure["event"], failure["retry_after_s"]) == ("LoadFailure", 1.0)
    assert ready["message"] == "ModelReady t/A=t/B generation=2 nbytes=1 load_s=0.0 eager=False"
    assert (ready["models"], ready["digest"], ready["backend"]) == (["t/A", "t/B"], "same", "fake")
    assert (ready["generation"], ready["nbytes"], ready["levelname"]) == (2, 1, "INFO")
    assert unloaded["event"] == "ModelUnloaded"


def test_nothing_is_logged_when_the_level_is_higher(bench: MakeBench, caplog: pytest.LogCaptureFixture) -> None:
    """A logger set to errors hears of no load, and its own name is used."""
    logger = logging.getLogger("a.caller")
    caplog.set_level(logging.ERROR, "a.caller")
    b = bench(1)
    log_events(b.manager, logger)
    b.add("A")
    b.use("A")
    b.manager.close()
    assert not caplog.records


def test_no_field_collides_when_it_becomes_an_attribute_of_a_record() -> None:
    """`logging` refuses extra fields that a record has already; no event's field is one."""
    taken = set(vars(logging.makeLogRecord({}))) | {"message", "asctime", "event", "models", "digest", "backend"}
    kinds = [kind for kind in vars(events).values() if isinstance(kind, type) and issubclass(kind, events.Event)]
    assert len(kinds) > 5
    for kind in kinds:
        assert not taken & {field.name for field in dataclasses.fields(kind)}
