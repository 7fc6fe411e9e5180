"""Find backends, order them by priority, and select the one that serves a model.

A backend is found by its file's name, `backends/NAME_backend.py`, whose function `backend()` returns it, by the
entry-point group `vectorsearch.backends` (NAME = a function that returns it), or by `register`. Files are
imported on first use; none of them imports its runtime before a model is loaded.
"""

from __future__ import annotations

import importlib
import pkgutil
import threading
from functools import partial
from importlib.metadata import EntryPoint, entry_points
from typing import TYPE_CHECKING

import backends as package
from backends.errors import CannotServe, InvalidInput

if TYPE_CHECKING:
    from collections.abc import Callable

    from backends.base import Backend, ModelSpec

ENTRY_POINT_GROUP = "vectorsearch.backends"
_SUFFIX = "_backend"

_known: dict[str, Backend] = {}
_broken: dict[str, str] = {}
_discovered = False
# Guards the three above; nothing else is locked while it is held.
_lock = threading.RLock()


def available() -> tuple[str, ...]:
    """Return the names of all backends, lowest priority number first, those never chosen unasked last."""
    with _lock:
        _discover()
        return tuple(sorted(_known, key=lambda name: (_rank(_known[name]), name)))


def get(name: str) -> Backend:
    """Return the backend of this name.

    Raises:
        InvalidInput: there is none, or it could not be imported; the message lists those that exist.
    """
    names = available()
    if name in _known:
        return _known[name]
    why = f": {_broken[name]}" if name in _broken else ""
    raise InvalidInput(f"no backend {name!r}{why}; there are {', '.join(names)}")


def register(backend: Backend) -> None:
    """Add a backend, or replace the one of the same name."""
    with _lock:
        _discover()
        _known[backend.name] = backend


def select(spec: ModelSpec, *, backend: str | None = None) -> Backend:
    """Return the named backend, or the first by priority, that can serve the model.

    Raises:
        CannotServe: none can; the message gives each one's reason.
        InvalidInput: no backend has the name.
    """
    asked = [get(backend)] if backend else [b for b in map(get, available()) if b.priority is not None]
    reasons = []
    for candidate in asked:
        answer = candidate.can_serve(spec)
        if answer:
            return candidate
        reasons.append(f"{candidate.name}: {answer.reason}")
    reasons += [f"{name}: {why}" for name, why in _broken.items()] if not backend else []
    raise CannotServe(f"no backend can serve model {spec.name!r}: " + "; ".join(reasons or ["none is installed"]))


def _rank(backend: Backend) -> float:
    return float("inf") if backend.priority is None else backend.priority


def _discover() -> None:
    global _discovered  # noqa: PLW0603  (the registry is one per process, like the modules that it finds)
    if _discovered:
        return
    _discovered = True
    for module in pkgutil.iter_modules(package.__path__):
        if module.name.endswith(_SUFFIX):
            _add(module.name.removesuffix(_SUFFIX), importlib.import_module(f"backends.{module.name}").backend)
    for point in entry_points(group=ENTRY_POINT_GROUP):
        _add(point.name, partial(_load, point))


def _load(point: EntryPoint) -> Backend:
    made: Backend = point.load()()
    return made


def _add(name: str, make: Callable[[], Backend]) -> None:
    try:
        backend = make()
    except Exception as exc:  # noqa: BLE001  (code from outside; one broken plug-in must not take the others along)
        _broken[name] = f"it can't be imported ({type(exc).__name__}: {exc})"
    else:
        _known[backend.name] = backend
