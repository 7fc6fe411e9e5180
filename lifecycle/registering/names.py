"""`Names`: which ref means which key, and with what config. The keeper's thread writes it, reading is safe anywhere.

A ref means one key at a time. It is given its first one by `register` and every later one by a swap, in four steps:
`offer` makes the new key known, the swap then holds it loaded, `point` lets the ref mean it, and `end` closes the swap
whether or not it came that far. A key that neither a ref nor a swap wants any more is retired.
"""

from __future__ import annotations

import itertools
import threading
from dataclasses import replace
from typing import TYPE_CHECKING, Any

from backends.errors import InvalidInput
from lifecycle import errors, events
from lifecycle.config import MOST, InstanceKey, LoadPolicy, ModelRef, check_kind, merge_configs
from lifecycle.heart import signals

if TYPE_CHECKING:
    from lifecycle.config import Loader, ModelConfig
    from lifecycle.keeping.instance import Exchange, Instance
    from lifecycle.keeping.keeper import Keeper


def key_for(spec: Any, loader: Loader, key: InstanceKey | None) -> InstanceKey:  # noqa: ANN401 - as below
    """Return the key under which a spec is loaded: the given one, else its own digest on this loader.

    Raises:
        InvalidInput: the key is no `InstanceKey`, or there is neither a key nor a digest.
    """
    if key is None and not hasattr(spec, "digest"):
        raise InvalidInput(f"a {type(spec).__name__} has no digest: give key=InstanceKey(digest, backend)")
    key = key or InstanceKey(spec.digest, loader.name)
    check_kind("key", key, InstanceKey)
    return key


def estimate(ref: ModelRef, spec: Any, loader: Loader) -> int:  # noqa: ANN401 - each loader has its own kind of spec
    """Return what a loader expects a model to take, in bytes.

    Raises:
        LoadFailed: the loader can't say.
        InvalidInput: what it says is negative, or beyond all memory.
    """
    try:
        nbytes = int(loader.estimate(spec))
    except BaseException as error:  # a loader is foreign code, and may raise what `except Exception` lets pass
        is_ours = isinstance(error, KeyboardInterrupt | SystemExit)  # where signals arrive it may be of one
        if is_ours and threading.current_thread() is threading.main_thread():
            raise
        raise errors.LoadFailed(f"'{ref}'", cause=error, retry_after_s=0.0) from error
    if not 0 <= nbytes <= MOST:
        size = nbytes if nbytes < 0 else "more than 2^63"
        raise InvalidInput(f"model '{ref}': its loader's estimate is {size} bytes")
    return nbytes


class Names:
    """The refs of one keeper."""

    def __init__(self, keeper: Keeper) -> None:
        self.keys: dict[ModelRef, InstanceKey] = {}
        self.configs: dict[ModelRef, ModelConfig] = {}
        self._keeper = keeper
        self._turns = itertools.count(1)
        self._decided: dict[ModelRef, int] = {}  # the turn of the registration or swap that gave a ref its meaning

    def key_of(self, ref: ModelRef) -> InstanceKey:
        """Return the key that a ref means.

        Raises:
            ModelNotRegistered: there is no such ref.
            InvalidInput: it is no `ModelRef`.
        """
        check_kind("ref", ref, ModelRef)
        try:
            return self.keys[ref]
        except KeyError:
            raise errors.ModelNotRegistered(f"no model '{ref}' is registered: call register() first") from None

    # For the keeper's thread.

    def instance_of(self, ref: ModelRef) -> Instance:
        """Return what is registered under the key that a ref means.

        Raises:
            ModelNotRegistered: there is no such ref.
        """
        return self._keeper.instances[self.key_of(ref)]

    def register(self, ref: ModelRef, key: InstanceKey, instance: Instance, config: ModelConfig, nbytes: int) -> None:
        """Let a ref mean a key from now on, or change its config."""
        self._refuse_when_closing(ref)
        known = self.keys.setdefault(ref, key)
        if known != key:
            raise InvalidInput(
                f"model '{ref}' is registered as {known}, not {key}: give the other one its own name, or call replace()"
            )
        self._decided.setdefault(ref, next(self._turns))
        self.configs[ref] = config
        instance = self._keeper.instances.setdefault(key, instance)
        if ref not in instance.refs:
            instance.refs = (*instance.refs, ref)
        self._refresh(key, nbytes)

    def unregister(self, ref: ModelRef, drain_by: float) -> None:
        """Let a ref mean nothing any more, and retire its key if it was the last that meant it."""
        key, instance = self.key_of(ref), self.instance_of(ref)
        del self.keys[ref], self.configs[ref], self._decided[ref]
        instance.refs = tuple(other for other in instance.refs if other != ref)
        self._keeper.open_handles.pop(ref, None)
        self._leave(key, drain_by)

    def pin(self, ref: ModelRef, *, pinned: bool) -> None:
        """Change whether a ref pins what it means."""
        key = self.key_of(ref)
        self.configs[ref] = replace(self.configs[ref], pinned=pinned)
        self._refresh(key)

    def offer(self, swap: Exchange, instance: Instance, nbytes: int) -> None:
        """Make a swap's key known; no eager load comes of it before a ref means the key."""
        self._refuse_when_closing(swap.ref)
        self.key_of(swap.ref)  # it may be forgotten by now
        swap.turn = next(self._turns)
        instance = self._keeper.instances.setdefault(swap.key, instance)
        instance.swaps.add(swap)
        own = replace(self.configs[swap.ref], load_policy=LoadPolicy.LAZY)
        self._keeper.happen(
            signals.Register(swap.key, nbytes, self._merged(instance, own), _tenants(instance, swap.ref))
        )

    def point(self, swap: Exchange, drain_by: float) -> None:
        """Let a swap's ref mean its key, which the swap holds loaded, and move all who wait for the ref with it."""
        ref, key, keeper = swap.ref, swap.key, self._keeper
        self._refuse_when_closing(ref)
        old = self.key_of(ref)  # as above
        if swap.turn < self._decided[ref]:
            raise errors.ReplaceOvertaken(f"model '{ref}' was given its meaning by a later call, which was done first")
        self._decided[ref] = swap.turn
        self.keys[ref] = key
        if old == key:
            return
        keeper.instances[old].refs = tuple(other for other in keeper.instances[old].refs if other != ref)
        keeper.instances[key].refs = (*keeper.instances[key].refs, ref)
        keeper.open_handles.pop(ref, None)
        keeper.publish_key(key)
        keeper.redirect()
        self._refresh(key)
        self._leave(old, drain_by)
        keeper.announce(events.ModelReplaced(key, swap.handles[0].generation, old))

    def end(self, swap: Exchange, drain_by: float) -> None:
        """Forget a swap, done or not, begun or not."""
        instance = self._keeper.instances.get(swap.key)
        if instance is not None and swap in instance.swaps:
            instance.swaps.remove(swap)
            self._leave(swap.key, drain_by)

    def _leave(self, key: InstanceKey, drain_by: float) -> None:
        """Retire a key that nobody wants any more; else let its config be that of those who still do."""
        instance = self._keeper.instances[key]
        if instance.refs:
            self._refresh(key)
        elif not instance.swaps:
            self._keeper.happen(signals.Retire(key, drain_by))

    def _refresh(self, key: InstanceKey, nbytes: int = 0) -> None:
        """Tell the heart a key's config, merged anew; `nbytes` counts only if the key is new."""
        instance = self._keeper.instances[key]
        self._keeper.happen(signals.Register(key, nbytes, self._merged(instance), _tenants(instance)))
        self._keeper.publish_key(key)
        self._keeper.tick()  # the last lease may have ended unwatched, before a TTL of 0 was set

    def _merged(self, instance: Instance, *others: ModelConfig) -> ModelConfig:
        return merge_configs([*others, *(self.configs[ref] for ref in instance.refs)])

    def _refuse_when_closing(self, ref: ModelRef) -> None:
        if self._keeper.state.closing:
            raise errors.ManagerClosed(f"model '{ref}' can't be registered: the manager is closed")


def _tenants(instance: Instance, *others: ModelRef) -> tuple[str, ...]:
    return tuple(sorted({ref.tenant for ref in (*instance.refs, *others)}))
