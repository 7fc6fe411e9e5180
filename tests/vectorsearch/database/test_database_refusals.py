"""What a database refuses to open, take or do, and what its errors say."""

from __future__ import annotations

import sys
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest

import vectorsearch as vs
from backends.engines.fake_backend import fake_spec
from backends.errors import InvalidInput, MissingExtra
from lifecycle import ModelManager
from vectorsearch.errors import (
    DatabaseClosed,
    NotADatabase,
    ReadOnlyDatabase,
    SettingsMismatch,
    StoreError,
    UnknownModel,
    VectorSearchError,
)

if TYPE_CHECKING:
    from ..conftest import OpenDatabase

DOCS = [{"id": word, "text": f"{word} text"} for word in ("alpha", "beta")]


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"embed": fake_spec("another", dim=64)}, "embed="),
        ({"embed": None}, "embed="),
        ({"lexical": "rank-bm25"}, "lexical="),
    ],
)
def test_opening_is_refused_when_the_settings_differ(
    open_database: OpenDatabase, tmp_path: Path, options: dict[str, Any], message: str
) -> None:
    """S48: another model or engine is an error that names both, and changes nothing."""
    with open_database(tmp_path / "db") as db:
        db.add(DOCS)
    with pytest.raises(SettingsMismatch, match=message):
        open_database(tmp_path / "db", **options)
    assert open_database(tmp_path / "db").count() == len(DOCS)


def test_folder_is_left_alone_when_it_is_no_database(tmp_path: Path) -> None:
    """A folder of something else is refused, and nothing is created in it."""
    (tmp_path / "notes.txt").write_text("mine")
    with pytest.raises(NotADatabase, match=str(tmp_path)):
        vs.open(tmp_path)
    assert [path.name for path in tmp_path.iterdir()] == ["notes.txt"]


def test_model_is_unknown_when_nothing_has_its_name(tmp_path: Path) -> None:
    """An unknown embedder is an error at open, and no folder is made for it."""
    with pytest.raises(UnknownModel, match="no-such-model"):
        vs.open(tmp_path / "db", embed="no-such-model")
    assert not (tmp_path / "db").exists()


def test_pandas_is_named_when_it_is_missing(open_database: OpenDatabase, monkeypatch: pytest.MonkeyPatch) -> None:
    """to_pandas without pandas names the pip command."""
    monkeypatch.setitem(sys.modules, "pandas", None)
    db = open_database(embed=None)
    with pytest.raises(MissingExtra, match="pip install pandas"):
        db.search("a").to_pandas()


@pytest.mark.parametrize("budget", [-1, float("nan"), float("inf"), "1GB", True])
def test_budget_is_refused_when_it_is_no_number_of_bytes(budget: Any) -> None:
    """A budget that can't be compared would let a lease wait for ever, so `open` refuses it."""
    with pytest.raises(InvalidInput, match="budget_nbytes"):
        vs.open(embed=None, budget_nbytes=budget)


def test_budget_is_refused_when_a_manager_brings_its_own(open_database: OpenDatabase) -> None:
    """A ceiling that would be ignored is refused."""
    with (
        ModelManager(10_000_000) as manager,
        pytest.raises(InvalidInput, match="manager"),
    ):
        open_database(manager=manager, budget_nbytes=1)


@pytest.mark.parametrize("path", ["file/below", "x\0y", "a" * 300, "\ud800", "", 5])
def test_path_is_refused_when_no_folder_can_be_there(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, path: Any
) -> None:
    """A path that can't be a folder is one of this project's errors, and the path is in the message."""
    monkeypatch.chdir(tmp_path)
    Path("file").touch()
    with pytest.raises(VectorSearchError, match="path"):
        vs.open(path, embed=None)


@pytest.mark.parametrize("key", [None, ["a"], b"5", 1.5, True])
def test_id_is_refused_when_it_is_neither_text_nor_number(open_database: OpenDatabase, key: Any) -> None:
    """What can't be an id is an `InvalidInput` in every call, not an answer that there is no such document."""
    db = open_database(embed=None)
    calls = (
        lambda: db.get(key),
        lambda: key in db,
        lambda: db.delete([key]),
        lambda: db.add([{"id": key, "text": ""}]),
    )
    for call in calls:
        with pytest.raises(InvalidInput):
            call()


def test_ids_are_refused_when_they_are_no_list_of_ids(open_database: OpenDatabase) -> None:
    """Bytes are numbers to Python, and would be taken for ids that somebody else's documents have."""
    db = open_database(embed=None)
    db.add([{"id": 97, "text": "x"}])
    for ids in (b"a", bytearray(b"a"), 97):
        with pytest.raises(InvalidInput, match="give a list of ids"):
            db.delete(ids)  # type: ignore[arg-type]  # what is refused
    assert "97" in db


@pytest.mark.parametrize("rows", [[], DOCS])
def test_nothing_is_embedded_when_no_write_can_succeed(open_database: OpenDatabase, rows: Any, tmp_path: Path) -> None:
    """A closed or read-only database refuses rows before a model is loaded for them."""
    with ModelManager(10_000_000) as manager:
        db = open_database(tmp_path / "db", manager=manager)
        reader = open_database(tmp_path / "db", read_only=True, manager=manager)
        db.close()
        with pytest.raises(DatabaseClosed):
            db.add(rows)
        with pytest.raises(ReadOnlyDatabase):
            reader.add(rows)
        assert manager.snapshot().charged_nbytes == 0


def test_argument_is_refused_when_opening_can_not_use_it(open_database: OpenDatabase) -> None:
    """What is wrong is told when the database is opened, not by the first search that needs it."""
    with pytest.raises(UnknownModel, match="no-such-model"):
        open_database(rerank="no-such-model")
    with pytest.raises(InvalidInput, match="no backend 'foo'"):
        vs.open(backend="foo")
    for options in ({"rerank": 5}, {"manager": 5}, {"read_only": "yes"}):
        with pytest.raises(InvalidInput, match=str(*options.values())):
            vs.open(**options)  # type: ignore[arg-type]  # what is refused


def test_snapshot_is_refused_when_its_folder_can_not_be(open_database: OpenDatabase, tmp_path: Path) -> None:
    """A copy within a database would pass for a tenant of it; what the file system refuses is told as what it is."""
    db = open_database(tmp_path / "db", embed=None)
    (tmp_path / "file").touch()
    (tmp_path / "elsewhere").symlink_to(tmp_path / "db" / "tenants", target_is_directory=True)
    for path, error in (
        (tmp_path / "elsewhere" / "ghost", InvalidInput),
        (tmp_path / "db" / "tenants" / "ghost", InvalidInput),
        (tmp_path / "db" / "copy", InvalidInput),
        (tmp_path / "file" / "copy", StoreError),
        (tmp_path / "a\0b", StoreError),
        ("", InvalidInput),
        (None, InvalidInput),
    ):
        with pytest.raises(error, match=r"snapshot|outside|written"):
            db.snapshot(path)  # type: ignore[arg-type]  # what is refused
    assert db.tenant("ghost").count() == 0


def test_metadata_is_refused_when_it_is_no_unicode(open_database: OpenDatabase) -> None:
    """A lone surrogate is named by id, and what to do about it is said; nothing changes."""
    db = open_database(embed=None)
    db.add([{"id": "a", "text": "b", "metadata": {"x": 1}}])
    with pytest.raises(InvalidInput, match=r"id 'a': metadata is not valid Unicode .* errors='replace'"):
        db.update_metadata({"a": {"x": "\ud800"}})
    assert db.get("a").metadata == {"x": 1}  # type: ignore[union-attr]  # it is there


def test_model_is_refused_when_it_is_no_name(open_database: OpenDatabase) -> None:
    """A model of another type is an `InvalidInput`; an empty name is no folder, and unknown."""
    with pytest.raises(InvalidInput, match="model 5"):
        open_database(embed=5)
    with pytest.raises(UnknownModel):
        open_database(embed="")
