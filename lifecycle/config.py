"""What callers name and set: `ModelRef`, `InstanceKey`, `ModelConfig`, `Loader`.

`ModelRef` and `InstanceKey` are named tuples, not dataclasses: a tuple is hashed in C, and every lease begins by
looking its `ModelRef` up.
"""

from __future__ import annotations

import math
import sys
import warnings
from dataclasses import dataclass
from enum import StrEnum
from functools import wraps
from numbers import Integral, Real
from typing import TYPE_CHECKING, Any, NamedTuple, Protocol, TypeVar

from backends.errors import InvalidInput

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable

T = TypeVar("T")

MOST = 2**63 - 1  # of bytes, or of whatever else is counted: a size beyond that is a mistake


class ModelRef(NamedTuple):
    """Name a model as its users do: whose it is, and what they call it."""

    tenant: str
    name: str

    def __str__(self) -> str:
        return f"{self.tenant}/{self.name}" if self.tenant else self.name


class InstanceKey(NamedTuple):
    """Identify what is loaded: two refs with one key share one instance and are charged once.

    `digest` covers weights, tokenizer and configuration; `options` holds (name, value) pairs that change the
    instance, such as a number of threads.
    """

    digest: str
    backend: str
    options: tuple[tuple[str, str | int | float | bool], ...] = ()


class LoadPolicy(StrEnum):
    """Say when a model is first loaded: on its first use, or as soon as it is registered."""

    LAZY = "lazy"
    EAGER = "eager"


def renamed(old: str, new: str) -> Callable[[type[T]], type[T]]:
    """Return a decorator with which a class takes a keyword, and has an attribute, by its old name for one release."""

    def decorate(cls: type[T]) -> type[T]:
        made = cls.__init__

        @wraps(made)
        def make(self: T, *args: Any, **options: Any) -> None:  # noqa: ANN401 -- those of the class
            if old in options:
                warn_of_old(old, new)
                options[new] = options.pop(old)
            made(self, *args, **options)

        def read(self: T) -> Any:  # noqa: ANN401 -- what the attribute holds
            warn_of_old(old, new)
            return getattr(self, new)

        cls.__init__ = make  # type: ignore[assignment]  # dataclasses write it, and have no other place for this
        setattr(cls, old, property(read))
        return cls

    return decorate


def warn_of_old(old: str, new: str) -> None:
    """Tell the caller's caller that a name goes with the next release."""
    warnings.warn(f"{old} is now {new}: the old name goes with the next release", DeprecationWarning, stacklevel=3)


@renamed("priority", "eviction_rank")
@dataclass(frozen=True, slots=True, kw_only=True)
class ModelConfig:
    """Set how long a model stays, and how it is loaded.

    `ttl_s` counts from the last release: 0 unloads after the last lease, None never expires (the model can still
    be evicted). `eviction_rank`: the higher number is evicted first (`priority` is its old name). `pinned`: never
    evicted, never expires; only `unload` and `close` end it. `min_residency_s`: for so long after its load an idle
    model is evicted only if no other idle one will do, and not for a prefetch. `warm_up` runs the model's own
    `warm_up()`, if it has one, before the first lease.

    Raises:
        InvalidInput: `ttl_s` or `min_residency_s` is negative, `load_timeout_s` is not positive, one is no number, or
            `pinned` or `warm_up` is neither True nor False, or `load_policy` is no `LoadPolicy`.
    """

    load_policy: LoadPolicy = LoadPolicy.LAZY
    ttl_s: float | None = None
    eviction_rank: int = 0
    pinned: bool = False
    min_residency_s: float = 0.0
    warm_up: bool = True
    load_timeout_s: float = 120.0

    def __post_init__(self) -> None:
        check_kind("load_policy", self.load_policy, LoadPolicy)
        load_timeout_s = check_seconds("load_timeout_s", self.load_timeout_s, positive=True, endless=True)
        set_fields(
            self,
            ttl_s=None if self.ttl_s is None else check_seconds("ttl_s", self.ttl_s, endless=True),
            min_residency_s=check_seconds("min_residency_s", self.min_residency_s),
            load_timeout_s=load_timeout_s,
            eviction_rank=check_count("eviction_rank", self.eviction_rank, least=None),
        )
        for name, value in (("pinned", self.pinned), ("warm_up", self.warm_up)):
            if not isinstance(value, bool):
                raise InvalidInput(f"{name} is {value!r}: give True or False")


@dataclass(frozen=True, slots=True)
class Tenant:
    """Bound what one tenant may be charged, and say what nobody else may take from it.

    Raises:
        InvalidInput: a size is negative or no whole number, or the guarantee is larger than the quota.
    """

    quota_nbytes: int | None = None
    guaranteed_nbytes: int = 0

    def __post_init__(self) -> None:
        set_fields(self, guaranteed_nbytes=check_count("guaranteed_nbytes", self.guaranteed_nbytes))
        if self.quota_nbytes is not None:
            set_fields(self, quota_nbytes=check_count("quota_nbytes", self.quota_nbytes))
            if self.guaranteed_nbytes > self.quota_nbytes:
                raise InvalidInput(
                    f"guaranteed_nbytes is {self.guaranteed_nbytes} and quota_nbytes {self.quota_nbytes}: "
                    "a guarantee can't be larger than its quota"
                )


def merge_configs(configs: Iterable[ModelConfig]) -> ModelConfig:
    """Return the config of an instance that several refs share: whatever keeps it longest and protects it most."""
    every = tuple(configs)
    ttl_s = max(math.inf if config.ttl_s is None else config.ttl_s for config in every)
    return ModelConfig(
        load_policy=LoadPolicy.EAGER if any(c.load_policy is LoadPolicy.EAGER for c in every) else LoadPolicy.LAZY,
        ttl_s=None if ttl_s == math.inf else ttl_s,
        eviction_rank=min(config.eviction_rank for config in every),
        pinned=any(config.pinned for config in every),
        min_residency_s=max(config.min_residency_s for config in every),
        warm_up=any(config.warm_up for config in every),
        load_timeout_s=max(config.load_timeout_s for config in every),
    )


def check_kind(name: str, value: object, kind: type) -> None:
    """Insist on a value of one type that can be hashed; a plain tuple equals a `ModelRef` and is none.

    Raises:
        InvalidInput: it is something else, or has a part that can't be hashed.
    """
    if not isinstance(value, kind):
        raise InvalidInput(f"{name} is {value!r}: give a {kind.__name__}")
    try:
        hash(value)
    except TypeError as exc:
        raise InvalidInput(f"{name} is {value!r}: {exc}; give strings and numbers") from exc


def check_count(name: str, count: object, *, least: int | None = 0) -> int:
    """Return a whole number as an `int`; True and 3.0 are none.

    Raises:
        InvalidInput: it is something else, less than `least`, or has more than 64 bits.
    """
    is_whole = isinstance(count, Integral) and not isinstance(count, bool)
    whole = int(count) if is_whole else 0  # type: ignore[call-overload]  # it is whole
    if not is_whole or (least is not None and whole < least):
        raise InvalidInput(f"{name} is {count!r}: give a whole number{'' if least is None else f' >= {least}'}")
    if abs(whole) > MOST:
        raise InvalidInput(f"{name} has {whole.bit_length()} bits: give a whole number of at most {MOST}")
    return whole


def check_seconds(name: str, seconds: object, *, positive: bool = False, endless: bool = False) -> float:
    """Return seconds as a `float`: 0 unless they must be `positive`, infinity only if they may be `endless`.

    What no float can hold becomes the largest of them: only what goes to a timer must be shorter, and is cut there.

    Raises:
        InvalidInput: they are something else, NaN or True included.
    """
    is_number = isinstance(seconds, Real) and not isinstance(seconds, bool)
    try:
        value = float(seconds) if isinstance(seconds, Real) and is_number else math.nan
    except OverflowError:
        value = math.copysign(sys.float_info.max, 1 if seconds > 0 else -1)  # type: ignore[operator]  # it is a number
    if not (value > 0 or (value == 0 and not positive)) or (value == math.inf and not endless):
        given = value if is_number else repr(seconds)  # a whole number may have too many digits to be shown
        finite = "" if endless else "finite "
        raise InvalidInput(f"{name} is {given}: give {finite}seconds {'> 0' if positive else '>= 0'}")
    return value


def set_fields(config: object, **values: object) -> None:
    """Set fields of a frozen dataclass that is being made."""
    for name, value in values.items():
        object.__setattr__(config, name, value)


class Loader(Protocol):
    """Anything that can load a model: a backend, or a test's fake. The spec is opaque to this package.

    The model it returns has `nbytes` and `close()`, and may have `warm_up()` and `device`.
    """

    @property
    def name(self) -> str:
        """Return the backend's name, part of the default key and of `Snapshot.by_backend`."""

    def estimate(self, spec: Any) -> int:  # noqa: ANN401 - each loader has its own kind of spec
        """Return the bytes that the model is expected to take, workspace included."""

    def load_model(self, spec: Any) -> Any:  # noqa: ANN401 - as above, and its own kind of model
        """Load the model. On an exception nothing of it may stay in memory."""
