"""How the house stands: no import circle, no folder that is a warehouse, and READMEs that are read in five minutes."""

from __future__ import annotations

import ast
from graphlib import CycleError, TopologicalSorter
from pathlib import Path

import pytest

ROOT = Path(__file__).resolve().parents[2]
PACKAGES = ("backends", "lifecycle", "rerank", "vectorsearch")
UNCOUNTED = {"__init__.py", "__main__.py", "__pycache__", "py.typed", "README.md"}
OF_ONE_KIND = {"backends/engines", "vectorsearch/cli/commands", "vectorsearch/service/dialects"}
MOST_THINGS = 15
FOLDERS = sorted(
    {path.parent.relative_to(ROOT).as_posix() for name in PACKAGES for path in (ROOT / name).rglob("*.py")}
)


def modules() -> dict[str, Path]:
    """Return every module of the project by its dotted name."""
    return {
        ".".join(path.relative_to(ROOT).with_suffix("").parts).removesuffix(".__init__"): path
        for name in PACKAGES
        for path in (ROOT / name).rglob("*.py")
    }


def imports(known: dict[str, Path]) -> dict[str, set[str]]:
    """Return what each module imports of the project, for types alone and within functions too."""
    found: dict[str, set[str]] = {}
    for name, path in known.items():
        targets = set()
        for node in ast.walk(ast.parse(path.read_text(encoding="utf-8"))):
            if isinstance(node, ast.Import):
                targets |= {alias.name for alias in node.names}
            elif isinstance(node, ast.ImportFrom) and node.module:
                whole = {f"{node.module}.{alias.name}" for alias in node.names}
                targets |= {each if each in known else node.module for each in whole}
        found[name] = {target for target in targets if target in known and target != name}
    return found


def circle(graph: dict[str, set[str]]) -> list[str]:
    try:
        TopologicalSorter(graph).prepare()
    except CycleError as exc:
        return list(exc.args[1])
    return []


def test_no_import_goes_in_a_circle() -> None:
    """Nor do those for types alone, or within a function: what belongs together is one file, or its type moves."""
    graph = imports(modules())
    assert circle(graph) == []
    assert circle({**graph, "backends.errors": {"vectorsearch"}}), "the positive control"


@pytest.mark.parametrize("folder", [each for each in FOLDERS if each not in OF_ONE_KIND])
def test_no_folder_is_a_warehouse(folder: str) -> None:
    """A folder shows at most fifteen things, unless its files are of one kind, found by name."""
    things = sorted(path.name for path in (ROOT / folder).iterdir() if path.name not in UNCOUNTED)
    assert len(things) <= MOST_THINGS, things


@pytest.mark.parametrize("folder", FOLDERS)
def test_folder_says_what_it_is_for(folder: str) -> None:
    """Each is a package whose first line names its question."""
    assert ast.get_docstring(ast.parse((ROOT / folder / "__init__.py").read_text(encoding="utf-8")))


@pytest.mark.parametrize(("readme", "most"), [("README.md", 110), *((f"{name}/README.md", 120) for name in PACKAGES)])
def test_readme_is_read_in_five_minutes(readme: str, most: int) -> None:
    """The root's ends before line 110, a package's before 120; figures are on the page of results."""
    assert len((ROOT / readme).read_text(encoding="utf-8").splitlines()) <= most
