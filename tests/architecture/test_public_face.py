"""What callers meet is importable from `vectorsearch`: every type of a public signature, and every error."""

from __future__ import annotations

import ast
import importlib
import subprocess
import sys
from functools import cache
from pathlib import Path
from typing import TYPE_CHECKING

import pytest

import vectorsearch as vs
from vectorsearch import errors

if TYPE_CHECKING:
    from collections.abc import Iterator

ROOT = Path(__file__).resolve().parents[2]
OURS = ("backends", "lifecycle", "rerank", "vectorsearch")


@cache
def tree_of(module: str) -> ast.Module:
    path = ROOT.joinpath(*module.split("."))
    path = path / "__init__.py" if path.is_dir() else path.with_suffix(".py")
    return ast.parse(path.read_text(encoding="utf-8"))


@cache
def imported(module: str) -> dict[str, tuple[str, str]]:
    """Return the names that a module imports from this project: the module and the name there."""
    return {
        alias.asname or alias.name: (node.module, alias.name)
        for node in ast.walk(tree_of(module))
        if isinstance(node, ast.ImportFrom) and node.module and node.module.split(".")[0] in OURS
        for alias in node.names
    }


def home_of(module: str, name: str) -> tuple[str, str, ast.stmt] | None:
    """Return where a name is defined, and its statement; None if it isn't this project's, or is a module."""
    for node in tree_of(module).body:
        named = getattr(node, "name", None)
        if named == name and isinstance(node, ast.ClassDef | ast.FunctionDef):
            return module, name, node
        targets = node.targets if isinstance(node, ast.Assign) else [getattr(node, "target", None)]
        if any(isinstance(target, ast.Name) and target.id == name for target in targets):
            return module, name, node
    if name not in imported(module):
        return None
    where, original = imported(module)[name]
    if ROOT.joinpath(*where.split("."), original).with_suffix(".py").exists():
        return None
    return home_of(where, original)


def annotations(node: ast.AST) -> Iterator[ast.AST]:
    """Yield what a public function or class tells of types: arguments, results, fields of dataclasses."""
    if isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef):
        if node.name.startswith("_") and node.name not in {"__enter__", "__getitem__", "__iter__"}:
            return
        args = node.args
        yield from (a.annotation for a in [*args.posonlyargs, *args.args, *args.kwonlyargs] if a.annotation)
        if node.returns:
            yield node.returns
    elif isinstance(node, ast.ClassDef):
        for part in node.body:
            if isinstance(part, ast.AnnAssign) and not getattr(part.target, "id", "_").startswith("_"):
                yield part.annotation
            else:
                yield from annotations(part)


def names_in(node: ast.AST) -> Iterator[str]:
    for part in ast.walk(node):
        if isinstance(part, ast.Name):
            yield part.id
        elif isinstance(part, ast.Constant) and isinstance(part.value, str) and part.value.isidentifier():
            yield part.value


def met() -> dict[str, str]:
    """Return every name of this project's that a caller meets, from the public ones on, and who speaks of it."""
    found: dict[str, str] = {}
    waiting = [(vs.__name__, name, "__all__") for name in vs.__all__]
    seen = set()
    while waiting:
        module, name, whose = waiting.pop()
        home = home_of(module, name)
        if home is None or home[:2] in seen or name.startswith("_"):
            continue
        seen.add(home[:2])
        found[home[1]] = whose
        for annotation in annotations(home[2]):
            waiting += [(home[0], other, f"{home[0]}.{home[1]}") for other in set(names_in(annotation))]
    return found


def test_every_type_of_a_public_signature_is_importable() -> None:
    """What a caller is given, gives or catches has its name in `vectorsearch`."""
    missing = {name: whose for name, whose in met().items() if name not in vs.__all__}
    assert missing == {}


def test_every_error_is_importable() -> None:
    """`except vs.NAME` works for each error of the tree, and tracebacks name it so."""
    for name in errors.__all__:
        found = getattr(vs, name)
        assert found is getattr(errors, name)
    assert set(errors.__all__) <= set(vs.__all__)


def test_dir_is_whole() -> None:
    """`dir(vectorsearch)` shows what there is before any of it is used, and completion finds it."""
    code = "import vectorsearch as vs; print(sorted(set(vs.__all__) - set(dir(vs))))"
    done = subprocess.run([sys.executable, "-c", code], cwd=ROOT, capture_output=True, text=True, check=True)
    assert done.stdout.strip() == "[]"


@pytest.mark.parametrize("name", ["Database", "Hit", "SearchResult", "InvalidInput"])
def test_traceback_names_the_public_place(name: str) -> None:
    """What callers read of a public class is where they import it from."""
    assert getattr(importlib.import_module("vectorsearch"), name).__module__ == "vectorsearch"
