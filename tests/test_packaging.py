"""What importing costs, what the wheel holds, and which package may import which."""

from __future__ import annotations

import subprocess
import sys
import tomllib
from pathlib import Path

import pytest
from setuptools.discovery import PackageFinder

ROOT = Path(__file__).resolve().parents[1]
PACKAGES = ("backends", "lifecycle", "rerank", "vectorsearch")


def python(code: str, *, cwd: Path = ROOT, path: str | None = None) -> subprocess.CompletedProcess[str]:
    """Run code in a fresh interpreter."""
    program = f"import sys; sys.path.insert(0, {path!r})\n{code}" if path else code
    return subprocess.run(
        [sys.executable, "-W", "error", "-c", program],
        cwd=cwd,
        capture_output=True,
        text=True,
        check=False,
        timeout=600,
    )


@pytest.mark.parametrize(
    "module", ["vectorsearch", "vectorsearch.cli", "rerank", "lifecycle", "backends.choosing.registry"]
)
def test_import_loads_no_runtime(module: str) -> None:
    """Importing a package loads no inference runtime, index library or tokenizer."""
    heavy = ["faiss", "onnxruntime", "onnx", "tantivy", "tokenizers", "rank_bm25", "jax", "torch", "ir_measures"]
    done = python(f"import sys, {module}; print([name for name in {heavy} if name in sys.modules])")
    assert done.returncode == 0, done.stderr
    assert done.stdout.strip() == "[]"


def test_import_fails_clearly_when_a_sibling_is_somebody_elses(tmp_path: Path) -> None:
    """A foreign package called `backends` is named in the error, with the next step."""
    (tmp_path / "backends").mkdir()
    (tmp_path / "backends" / "__init__.py").touch()
    done = python("import vectorsearch", path=str(tmp_path))
    assert done.returncode != 0
    assert "needs its own package 'backends'" in done.stderr
    assert str(tmp_path) in done.stderr


def test_wheel_is_told_of_every_package() -> None:
    """What pyproject.toml includes is every folder that holds Python, each a package, under four top-level names."""
    packages = tomllib.loads((ROOT / "pyproject.toml").read_text())["tool"]["setuptools"]["packages"]
    assert {name: list(options) for name, options in packages.items()} == {"find": ["include"]}
    include = packages["find"]["include"]
    found = {".".join(path.parent.relative_to(ROOT).parts) for name in PACKAGES for path in (ROOT / name).rglob("*.py")}
    assert set(PackageFinder.find(str(ROOT), include=include)) == found
    assert {name.split(".")[0] for name in found} == set(PACKAGES)


def test_datasets_holds_no_python() -> None:
    """A folder called `datasets` with Python in it would pass for the well-known package of that name."""
    assert list((ROOT / "datasets").rglob("*.py")) == []


def test_root_holds_only_what_the_project_allows() -> None:
    """Beside the four packages, tests and datasets, the root holds six files and dot-folders."""
    done = subprocess.run(["git", "ls-files"], cwd=ROOT, capture_output=True, text=True, check=False, timeout=600)
    if done.returncode != 0:
        pytest.skip("not a git checkout, so what is tracked can't be told")
    allowed = {*PACKAGES, "tests", "datasets", "pyproject.toml", "Makefile", "README.md", "LICENSE", "CHANGELOG.md"}
    tracked = {line.split("/")[0] for line in done.stdout.splitlines()}
    assert {name for name in tracked if not name.startswith(".")} <= allowed
