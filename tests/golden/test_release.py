"""Databases of release 0.1.0 live on: with tenants, registered models, a log that was not folded in."""

from __future__ import annotations

import importlib.util
import json
import zipfile
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest

if TYPE_CHECKING:
    from types import ModuleType

RELEASE = Path(__file__).parent / "release_0_1_0"
NAMES = ("store", "compacted", "killed")


def maker() -> ModuleType:
    """Return the script that made them, which asks them too."""
    spec = importlib.util.spec_from_file_location("make_release", RELEASE / "make_release.py")
    assert spec is not None
    assert spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


def unpacked(name: str, folder: Path) -> Path:
    """Unpack one of the databases below `folder` and return where it is."""
    with zipfile.ZipFile(RELEASE / "databases.zip") as packed:
        packed.extractall(folder, [entry for entry in packed.namelist() if entry.startswith(f"{name}/")])
    return folder / name


def same(found: Any, wanted: Any) -> bool:
    """Tell whether answers are the same; scores may differ in their last digits."""
    if isinstance(wanted, dict):
        return (
            isinstance(found, dict) and found.keys() == wanted.keys() and all(same(found[k], wanted[k]) for k in wanted)
        )
    if isinstance(wanted, list):
        return len(found) == len(wanted) and all(map(same, found, wanted))
    return bool(found == pytest.approx(wanted, abs=2e-4) if isinstance(wanted, float) else found == wanted)


@pytest.mark.parametrize("name", NAMES)
def test_a_database_answers_as_before_when_release_0_1_0_made_it(tmp_path: Path, name: str) -> None:
    """Documents, tenants, their sizes and models, and every kind of search are what that release had; and again."""
    folder, wanted = unpacked(name, tmp_path), json.loads((RELEASE / "answers.json").read_text(encoding="utf-8"))[name]
    for _ in range(2):
        found = maker().store_answers(folder)
        assert found.keys() == wanted.keys()
        for tenant, told in wanted.items():
            for what, answer in told.items():
                assert same(found[tenant][what], answer), (tenant, what, found[tenant][what], answer)
