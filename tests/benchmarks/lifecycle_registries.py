"""The registries that `lifecycle_hot_swap` compares: the post-mortem's, its patched form in two orders, and ours."""

from __future__ import annotations

import threading
import time
from collections import Counter
from typing import TYPE_CHECKING, Protocol

from lifecycle import InstanceKey, LoadPolicy, ModelConfig, ModelManager, ModelRef

if TYPE_CHECKING:
    from pathlib import Path

    from lifecycle_measuring import GraphLoader, GraphModel

TIMEOUT_S = 5.0
POLL_S = 0.05


class Registry(Protocol):
    """What a contender must do."""

    def infer(self) -> float:
        """Answer with the active model."""

    def switch(self, name: str) -> None:
        """Make another model the active one, and return when the old one is gone."""

    def close(self) -> None:
        """Unload what is left."""


class Naive:
    """The registry of the post-mortem: a map, and nil when a model is unloaded."""

    def __init__(self, loader: GraphLoader, paths: dict[str, Path], *, roomy: bool) -> None:
        self._loader, self._paths, self._roomy = loader, paths, roomy
        self._models: dict[str, GraphModel | None] = {"A": loader.load_model(paths["A"])}
        self._active = "A"

    def infer(self) -> float:
        """Look up and run."""
        return self._models[self._active].infer()  # type: ignore[union-attr] - the mistake that is measured

    def switch(self, name: str) -> None:
        """Load the new one first only if there is room for both."""
        old = self._active
        if not self._roomy:
            self._unload(old)
        self._models[name] = self._loader.load_model(self._paths[name])
        self._active = name
        if self._roomy:
            self._unload(old)

    def _unload(self, name: str) -> None:
        model, self._models[name] = self._models[name], None
        if model is not None:
            model.close()

    def close(self) -> None:
        """Unload the active one."""
        self._unload(self._active)


class ModelNotFound(Exception):
    """The model is not loaded, or is being unloaded."""


class Patched:
    """The post-mortem's remedy: references counted under a lock, a drain that polls, clients that try again.

    A switch drains and unloads the old model, then loads the new one, and meanwhile there is none. The post-mortem
    doesn't tell the order; its p99 with this remedy, 340 ms, fits requests that waited for a load. It loads outside its
    lock. Go's is a RWMutex; these sections are so short that readers need not share them.
    """

    def __init__(self, loader: GraphLoader, paths: dict[str, Path], *, roomy: bool) -> None:  # noqa: ARG002 - all registries are made alike
        self._loader, self._paths = loader, paths
        self._lock = threading.Lock()  # protects everything below
        self._models = {"A": loader.load_model(paths["A"])}
        self._refs: Counter[str] = Counter()
        self._unloading: set[str] = set()
        self._active = "A"

    def infer(self) -> float:
        """Run on a counted reference; while there is no model, ask again."""
        give_up = time.monotonic() + TIMEOUT_S
        while True:
            try:
                name, model = self._get()
            except ModelNotFound:
                if time.monotonic() > give_up:
                    raise TimeoutError from None
                time.sleep(POLL_S)
            else:
                break
        try:
            return model.infer()
        finally:
            with self._lock:
                self._refs[name] -= 1

    def _get(self) -> tuple[str, GraphModel]:
        with self._lock:
            name = self._active
            if name not in self._models or name in self._unloading:
                raise ModelNotFound(name)
            self._refs[name] += 1
            return name, self._models[name]

    def switch(self, name: str) -> None:
        """Unload the old one, then load the new one, whatever there is room for."""
        self._unload(self._active)
        self._load(name)

    def _load(self, name: str) -> None:
        model = self._loader.load_model(self._paths[name])
        with self._lock:
            self._models[name] = model
            self._active = name

    def _unload(self, name: str) -> None:
        with self._lock:
            self._unloading.add(name)
        give_up = time.monotonic() + TIMEOUT_S
        while self._refs[name]:
            if time.monotonic() > give_up:
                raise TimeoutError
            time.sleep(POLL_S)
        with self._lock:
            self._unloading.discard(name)
            model = self._models.pop(name)
        model.close()

    def close(self) -> None:
        """Unload the active one."""
        self._unload(self._active)


class PatchedBeside(Patched):
    """The same with the order that room for both allows, which the post-mortem doesn't speak of."""

    def switch(self, name: str) -> None:
        """Load the new one, then unload the old one."""
        old = self._active
        self._load(name)
        self._unload(old)


class Replace:
    """The manager of this package: one name, whose model is replaced."""

    def __init__(self, loader: GraphLoader, paths: dict[str, Path], *, roomy: bool) -> None:
        self._paths, self._roomy = paths, roomy
        self._keys = {name: InstanceKey(name, loader.name) for name in paths}
        self._manager = _manager(loader, paths, roomy=roomy)
        self._ref = ModelRef("bench", "active")
        self._manager.register(self._ref, paths["A"], loader, key=self._keys["A"])
        self.infer()

    def infer(self) -> float:
        """Lease and run."""
        with self._manager.lease(self._ref, TIMEOUT_S) as model:
            return model.infer()

    def switch(self, name: str) -> None:
        """Have the old one leave first only if there is no room for both."""
        self._manager.replace(
            self._ref, self._paths[name], key=self._keys[name], drain_first=not self._roomy, timeout_s=TIMEOUT_S
        )

    def close(self) -> None:
        """Close the manager."""
        self._manager.close()


class Ours:
    """The manager of this package: a name for each model; both are loaded from the start if both fit."""

    def __init__(self, loader: GraphLoader, paths: dict[str, Path], *, roomy: bool) -> None:
        self._roomy = roomy
        self._manager = _manager(loader, paths, roomy=roomy)
        self._refs = {name: ModelRef("bench", name) for name in paths}
        config = ModelConfig(load_policy=LoadPolicy.EAGER if roomy else LoadPolicy.LAZY)
        for name, path in paths.items():
            self._manager.register(self._refs[name], path, loader, key=InstanceKey(name, loader.name), config=config)
        for name in "BA" if roomy else "A":
            self._active = name
            self.infer()

    def infer(self) -> float:
        """Lease and run."""
        with self._manager.lease(self._refs[self._active], TIMEOUT_S) as model:
            return model.infer()

    def switch(self, name: str) -> None:
        """Have requests go to the other one once it has run; at once, if it can't be loaded beside the old.

        Memory that idled for seconds may be slow to reach, the more so where a host takes it back from its guests.
        """
        if not self._roomy:
            self._active = name
        with self._manager.lease(self._refs[name], TIMEOUT_S) as model:
            if self._roomy:
                model.infer()
            self._active = name

    def close(self) -> None:
        """Close the manager."""
        self._manager.close()


def _manager(loader: GraphLoader, paths: dict[str, Path], *, roomy: bool) -> ModelManager:
    nbytes = sum(loader.estimate(path) for path in paths.values())
    return ModelManager(nbytes if roomy else nbytes // 2)
