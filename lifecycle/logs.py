"""Structured logs: a hook that turns each event into one `logging` record, its fields in `extra`."""

from __future__ import annotations

import logging
from dataclasses import fields
from typing import TYPE_CHECKING

from lifecycle import events

if TYPE_CHECKING:
    from collections.abc import Callable

    from lifecycle.manager import ModelManager

_LEVELS = {
    events.ModelQuarantined: logging.ERROR,
    events.LoadFailure: logging.WARNING,
    events.DeficitOpened: logging.WARNING,
    events.Overpromised: logging.WARNING,
    events.ResidueLeft: logging.WARNING,
    events.AdmissionExhausted: logging.WARNING,
    events.LeaseLeaked: logging.WARNING,
    events.FellBack: logging.WARNING,
    events.Stalled: logging.ERROR,
}
_LOGGED_BY_THEMSELVES = (events.FellBack, events.Overpromised, events.Stalled)  # whether or not anybody asks for logs


def log_events(manager: ModelManager, logger: logging.Logger | None = None) -> Callable[[events.Event], None]:
    """Log the manager's events from now on, to `logger` or `lifecycle`, and return the hook that does.

    A record's message is for humans. Its attributes are the event's own fields and `event` (the type's name),
    `models` (the names of all refs that share the instance), `digest`, `backend`. Alarms are errors; failures,
    refusals, deficits, leaks and fallbacks are warnings; all else is information. Formatters and handlers are the
    caller's. Fallbacks, stalls and promises beyond the budget are in `lifecycle` anyway, and are logged again only to
    another logger.
    """
    target = logger or logging.getLogger("lifecycle")

    def log(event: events.Event) -> None:
        level = _LEVELS.get(type(event), logging.INFO)
        if not target.isEnabledFor(level) or (logger is None and isinstance(event, _LOGGED_BY_THEMSELVES)):
            return
        kind = type(event).__name__
        models = [str(ref) for ref, key in manager.keys_by_ref().items() if key == event.key]
        own = {field.name: getattr(event, field.name) for field in fields(event) if field.name != "key"}
        told = " ".join(f"{name}={value!r}" for name, value in own.items())
        extra = {"event": kind, "models": models, "digest": event.key.digest, "backend": event.key.backend, **own}
        target.log(level, "%s %s %s", kind, "=".join(models), told, extra=extra)

    manager.subscribe(log)
    return log
