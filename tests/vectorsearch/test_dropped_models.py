"""What a killed process leaves of models that were being dropped or made is removed, and what it didn't drop stays."""

from __future__ import annotations

from typing import TYPE_CHECKING

import pytest

import vectorsearch as vs
from vectorsearch.storage.registry import FILE_NAME, Registry

from .biased_models import BiasedBackend, write_model

if TYPE_CHECKING:
    from pathlib import Path


@pytest.mark.parametrize("has_row", [True, False])
def test_a_marked_copy_goes_with_its_row_and_stays_with_it(tmp_path: Path, *, has_row: bool) -> None:
    """A mark is made before a row goes: killed before that the model stays, killed after it the copy is removed."""
    backend = BiasedBackend().name
    with vs.open(tmp_path / "db", embed=None, rerank=None, backend=backend) as db:
        db.register_model("own", write_model(tmp_path / "model", 1), "cross-encode", compare=False)
        other = db.register_model("other", write_model(tmp_path / "second", 2), "cross-encode", compare=False)
        db.unregister_model("other")
    (copy,) = (tmp_path / "db" / "models").iterdir()
    assert not other.digest.startswith(copy.name)
    mark = copy.with_name(f"{copy.name}.unused")
    mark.touch()
    (copy.with_name(f"{copy.name}.0123.unfinished")).mkdir()
    if not has_row:  # as a killed process leaves it: the row's removal is committed, the documents know both tokens
        with vs.open(tmp_path / "db", embed=None, rerank=None, backend=backend) as db:
            mark.touch()
            db._registration._registry.remove_model("", "own")
        assert not Registry(tmp_path / "db").models()
    with vs.open(tmp_path / "db", embed=None, rerank=None, backend=backend) as db:
        assert [model.name for model in db.registered_models()] == (["own"] if has_row else [])
        assert db.verify().ok
    assert list((tmp_path / "db" / "models").iterdir()) == ([copy] if has_row else [])
    assert (tmp_path / "db" / FILE_NAME).exists()
