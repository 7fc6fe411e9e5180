"""The error tree is drawn, complete, and importable from one place."""

from __future__ import annotations

import importlib
import pkgutil

import backends
import lifecycle
import rerank
import vectorsearch
from vectorsearch import errors


def all_errors() -> set[type[Exception]]:
    """Import every module of the four packages and give the errors that they define."""
    for package in (backends, lifecycle, rerank, vectorsearch):
        for module in pkgutil.walk_packages(package.__path__, f"{package.__name__}."):
            if not module.name.endswith("__main__"):
                importlib.import_module(module.name)
    found = {errors.VectorSearchError}
    waiting = [errors.VectorSearchError]
    while waiting:
        below = waiting.pop().__subclasses__()
        found.update(below)
        waiting.extend(below)
    return {
        kind for kind in found if kind.__module__.split(".")[0] in {"backends", "lifecycle", "rerank", "vectorsearch"}
    }


def test_every_error_is_exported() -> None:
    """`vectorsearch.errors` has each error that the project defines, and nothing else."""
    assert {kind.__name__ for kind in all_errors()} == set(errors.__all__)


def test_tree_is_drawn_as_it_is() -> None:
    """The docstring's tree names each error at its depth below its parent."""
    tree = (errors.__doc__ or "").split("```")[1].splitlines()
    depths = {}
    for line in filter(str.strip, tree):
        drawn = line.lstrip("│├└─ ")
        depths[drawn.split()[0]] = (len(line) - len(drawn)) // 4
    expected = {
        kind.__name__: len([base for base in kind.__mro__ if base in all_errors()]) - 1 for kind in all_errors()
    }
    assert depths == expected


def test_error_is_of_the_builtin_kind_that_callers_expect() -> None:
    """Errors that the language has a kind for are of that kind as well."""
    assert issubclass(errors.InvalidInput, ValueError)
    assert issubclass(errors.MissingExtra, ImportError)
    assert issubclass(errors.UnknownModel, LookupError)
    assert issubclass(errors.LeaseTimeout, TimeoutError)
