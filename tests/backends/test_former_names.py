"""Modules that READMEs named are found by their old names for one release."""

from __future__ import annotations

import importlib
import sys

import pytest

from backends.former_names import MOVED


@pytest.mark.parametrize("old", MOVED)
def test_old_name_is_the_module_itself_and_says_the_new_one(old: str, monkeypatch: pytest.MonkeyPatch) -> None:
    """What is patched or raised there is the same thing; the new module's own facts stay as they are."""
    new = importlib.import_module(MOVED[old])
    spec = new.__spec__
    monkeypatch.delitem(sys.modules, old, raising=False)
    with pytest.warns(DeprecationWarning, match=f"{old} is now {MOVED[old]}"):
        assert importlib.import_module(old) is new
    assert new.__spec__ is spec
    monkeypatch.delitem(sys.modules, old, raising=False)


def test_other_names_are_not_found() -> None:
    """A name that never was is an ordinary error."""
    with pytest.raises(ModuleNotFoundError):
        importlib.import_module("backends.nothing_of_the_kind")
