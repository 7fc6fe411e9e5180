"""Put one text model on several backends: registered once for each, tried in order."""

from __future__ import annotations

import logging
from dataclasses import replace
from typing import TYPE_CHECKING

from backends.choosing import registry
from backends.running.text_model import TextLoader
from lifecycle.chains.fallback import Chain
from lifecycle.config import InstanceKey, LoadPolicy, ModelRef
from lifecycle.errors import LifecycleError
from lifecycle.measuring.profile import profiled_nbytes

if TYPE_CHECKING:
    from collections.abc import Iterable

    from backends.base import ModelSpec
    from lifecycle.config import ModelConfig
    from lifecycle.manager import ModelManager

_log = logging.getLogger(__name__)


def text_chain(
    manager: ModelManager,
    spec: ModelSpec,
    backends: Iterable[str],
    *,
    tenant: str = "",
    config: ModelConfig | None = None,
) -> Chain:
    """Register a tenant's model on each of these backends, and return the chain of them in that order.

    `config` is that of the first; the others, which only stand in for it, are never eager or pinned.

    Its refs go by the model's name; on every backend but the one that was registered first by `NAME+BACKEND`. If
    another model has the name, the digest tells them apart. A backend that can't say what it needs is left out, unless
    it is the first.

    Raises:
        LoadFailed: the first backend can't estimate the model's size.
        InvalidInput: no backend has one of the names.
    """
    refs: list[ModelRef] = []
    for name in backends:
        loader = TextLoader(registry.get(name), measured=profiled_nbytes)
        ref = _ref(manager, spec, loader.name, tenant)
        try:
            manager.register(ref, spec, loader, _standing_in(config) if refs else config)
        except LifecycleError as exc:
            if not refs:
                raise
            _log.warning("model '%s' has no fallback on %s: %s", spec.name, name, exc)
        else:
            refs.append(ref)
    return Chain(manager, refs)


def _standing_in(config: ModelConfig | None) -> ModelConfig | None:
    return config and replace(config, load_policy=LoadPolicy.LAZY, pinned=False)


def _ref(manager: ModelManager, spec: ModelSpec, backend: str, tenant: str) -> ModelRef:
    known = manager.keys_by_ref()

    def is_free(name: str, key: InstanceKey) -> bool:
        return known.get(ModelRef(tenant, name), key) == key

    taken = known.get(ModelRef(tenant, spec.name))
    own = spec.name if taken is None or taken.digest == spec.digest else f"{spec.name}@{spec.digest[:8]}"
    return ModelRef(tenant, own if is_free(own, InstanceKey(spec.digest, backend)) else f"{own}+{backend}")
