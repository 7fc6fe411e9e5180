"""Find backends, order them by priority, and tell which one serves a model.

A backend is found by its file's name, `backends/engines/NAME_backend.py`, whose function `backend()` returns it, by the
entry-point group `vectorsearch.backends` (NAME = a function that returns it), or by `register`. Files are
imported on first use; none of them imports its runtime before a model is loaded.

A name may carry a precision, `jax:bfloat16`, where the backend has several (`HasPrecisions`).
"""

from __future__ import annotations

import importlib
import pkgutil
import threading
from functools import partial
from importlib.metadata import EntryPoint, entry_points
from typing import TYPE_CHECKING, Protocol, runtime_checkable

from backends import engines
from backends.choosing import selection
from backends.errors import InvalidInput, TransientBackendError
from backends.running.process import has_bfloat16_tiles

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping

    from backends.base import Backend, ModelSpec
    from backends.choosing.selection import Choice, Cost, Workload

ENTRY_POINT_GROUP = "vectorsearch.backends"
_SUFFIX = "_backend"

_known: dict[str, Backend] = {}
_broken: dict[str, str] = {}
_by_hand: set[str] = set()  # names that `register` was given: another process doesn't know them
_discovered = False
# Guards the four above; nothing else is locked while it is held.
_lock = threading.RLock()


@runtime_checkable
class HasPrecisions(Protocol):
    """A backend that can compute in several precisions; by its plain name it chooses one itself."""

    @property
    def precisions(self) -> tuple[str, ...]:
        """Return the names of the precisions, such as `float32`."""

    def with_precision(self, precision: str) -> Backend:
        """Return this backend in one precision, named `NAME:PRECISION`."""


def available() -> tuple[str, ...]:
    """Return the names of all backends, lowest priority number first, those never chosen unasked last."""
    with _lock:
        _discover()
        return tuple(sorted(_known, key=lambda name: (_rank(_known[name]), name)))


def unasked() -> tuple[str, ...]:
    """Return the names of those that may be chosen unasked, lowest priority number first."""
    return tuple(name for name in available() if get(name).priority is not None)


def variants(name: str) -> tuple[str, ...]:
    """Return the names to measure one by one for a backend: one for each of its precisions, or its own.

    Raises:
        InvalidInput: no backend has the name.
    """
    backend = get(name)
    if isinstance(backend, HasPrecisions) and ":" not in name:
        return tuple(f"{name}:{precision}" for precision in backend.precisions)
    return (name,)


def get(name: str) -> Backend:
    """Return the backend of this name, or of `name:precision`.

    Raises:
        InvalidInput: there is none, or it could not be imported, or it has no such precision; the message lists
            those that exist, but for those that are there for tests.
    """
    available()
    if name in _known:
        return _known[name]
    base, _, precision = name.partition(":")
    if base not in _known:
        why = f": {_broken[base]}" if base in _broken else ""
        raise InvalidInput(f"no backend {base!r}{why}; there are {', '.join(unasked())}")
    backend = _known[base]
    if not isinstance(backend, HasPrecisions):
        raise InvalidInput(f"backend {base!r} has one precision only: leave out ':{precision}'")
    if precision not in backend.precisions:
        there_are = ", ".join(f"{base}:{each}" for each in backend.precisions)
        raise InvalidInput(f"backend {base!r} has no precision {precision!r}; there are {there_are}")
    return backend.with_precision(precision)


def register(backend: Backend) -> None:
    """Add a backend, or replace the one of the same name."""
    with _lock:
        _discover()
        _known[backend.name] = backend
        _by_hand.add(backend.name)


def is_known_elsewhere(name: str) -> bool:
    """Return whether another process finds this backend too: it is a file here, or an entry point."""
    return not {name, selection.base_name(name)} & _by_hand


def choose(
    spec: ModelSpec, workload: Workload, *, asked: str | None = None, costs: Mapping[str, Cost] | None = None
) -> Choice:
    """Decide among all backends that may be chosen unasked, or on the one asked for; see `selection.choose`.

    Raises:
        CannotServe: none can; the message gives each one's reason.
        InvalidInput: no backend has the name.
    """
    if asked:
        return selection.choose(spec, workload, candidates=[get(asked)], asked=asked)
    candidates = [get(name) for name in unasked()]
    return selection.choose(
        spec,
        workload,
        candidates=candidates,
        costs=costs,
        refused=dict(_broken),
        bfloat16_tiles=has_bfloat16_tiles(),
    )


def select(spec: ModelSpec, *, backend: str | None = None) -> Backend:
    """Return the named backend, or the one that serves the model's queries unasked.

    Raises:
        CannotServe: none can; the message gives each one's reason.
        InvalidInput: no backend has the name.
    """
    return get(choose(spec, "query", asked=backend).backend)


def is_transient(error: BaseException) -> bool:
    """Return whether another backend, or a later try, may succeed: the error, or a cause of it, was declared so."""
    cause: BaseException | None = error
    while cause is not None:
        if isinstance(cause, TransientBackendError):
            return True
        cause = cause.__cause__
    return False


def _rank(backend: Backend) -> float:
    return float("inf") if backend.priority is None else backend.priority


def _discover() -> None:
    global _discovered  # noqa: PLW0603  (the registry is one per process, like the modules that it finds)
    if _discovered:
        return
    _discovered = True
    for module in pkgutil.iter_modules(engines.__path__):
        if module.name.endswith(_SUFFIX):
            found = importlib.import_module(f"{engines.__name__}.{module.name}")
            _add(module.name.removesuffix(_SUFFIX), found.backend)
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
