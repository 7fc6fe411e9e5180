"""Modules that a README named, under the names that they had: for one release, with a word of the new one."""

from __future__ import annotations

import importlib
import sys
import warnings
from importlib.abc import Loader, MetaPathFinder
from importlib.machinery import ModuleSpec
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Sequence
    from types import ModuleType

MOVED = {
    "backends.fake_backend": "backends.engines.fake_backend",
    "backends.selection": "backends.choosing.selection",
    "lifecycle.calibration": "lifecycle.measuring.calibration",
    "lifecycle.profile": "lifecycle.measuring.profile",
    "lifecycle.trial": "lifecycle.measuring.trial",
    "rerank.distil": "rerank.distilling.distil",
    "rerank.train": "rerank.training.train",
    "vectorsearch.distillation": "vectorsearch.training.distillation",
    "vectorsearch.fine_tuning": "vectorsearch.training.fine_tuning",
}


class FormerNames(MetaPathFinder, Loader):
    """Finds a module by its old name, after everything else has been asked: the module itself, not a copy."""

    def find_spec(
        self, fullname: str, _path: Sequence[str] | None = None, _target: ModuleType | None = None
    ) -> ModuleSpec | None:
        """Return a spec for an old name, None for every other."""
        return ModuleSpec(fullname, self) if fullname in MOVED else None

    def create_module(self, spec: ModuleSpec) -> ModuleType:
        """Import the module by its new name."""
        new = MOVED[spec.name]
        warnings.warn(
            f"{spec.name} is now {new}: the old name goes with the next release", DeprecationWarning, stacklevel=2
        )
        module = importlib.import_module(new)
        spec.loader_state = module.__spec__
        return module

    def exec_module(self, module: ModuleType) -> None:
        """Leave the module as it is: its spec is the new name's."""
        if module.__spec__ is not None:
            module.__spec__ = module.__spec__.loader_state


def install() -> None:
    """Let old names be found; once is enough."""
    if not any(isinstance(finder, FormerNames) for finder in sys.meta_path):
        sys.meta_path.append(FormerNames())
