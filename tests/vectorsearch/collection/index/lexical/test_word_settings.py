"""How a database's words are cut and scored: chosen, changed, kept, refused."""

from __future__ import annotations

import json
import logging
import math
from typing import TYPE_CHECKING, Any

import numpy as np
import pytest

import vectorsearch as vs
from backends.errors import InvalidInput
from vectorsearch.collection.storage.errors import NewerFormat, SettingsMismatch
from vectorsearch.collection.storage.sqlite.store import Store

if TYPE_CHECKING:
    from pathlib import Path

DOCS = [
    {"id": "house", "text": "Die Häuser am See"},
    {"id": "houses", "text": "ein Haus, ein Haus, ein Haus und noch viel mehr Wörter in einem längeren Text am See"},
    {"id": "coffee", "text": "le café de la gare"},
]


def made(path: Path, **options: Any) -> vs.Database:
    """Give a database of three documents."""
    db = vs.open(path, embed=None, **options)
    if db.count() == 0:
        db.add(DOCS)
    return db


def found(db: vs.Database, query: str, **options: Any) -> list[str]:
    """Return the ids found, best first."""
    return [hit.id for hit in db.search(query, **options)]


def words_of(db: vs.Database) -> dict[str, Any]:
    """Return what `info` says of words."""
    return {name: db.info()[name] for name in ("language", "stop_words", "fold_accents", "k1", "b")}


CHANGES: list[tuple[dict[str, Any], str, list[str]]] = [
    ({"language": "German"}, "haus", ["houses", "house"]),
    ({"fold_accents": True}, "cafe", ["coffee"]),
    ({"stop_words": ["café"]}, "café", []),
    ({"language": None}, "texts", []),
]


@pytest.mark.parametrize("engine", ["tantivy", "rank-bm25"])
@pytest.mark.parametrize("change", CHANGES, ids=str)
def test_words_are_cut_as_wanted_when_a_database_is_opened_otherwise(
    tmp_path: Path, caplog: pytest.LogCaptureFixture, engine: str, change: tuple[dict[str, Any], str, list[str]]
) -> None:
    """F7, F8: other words are taken over, the index is built again and a warning says so; the next opening has them."""
    options, query, ids = change
    with made(tmp_path / "db", lexical=engine) as db:
        before = found(db, query)
    with caplog.at_level(logging.WARNING, "vectorsearch"), made(tmp_path / "db", **options) as db:
        assert found(db, query) == ids != before
        told = words_of(db)
    assert all(f"{name}=" in caplog.text for name in options)
    assert engine != "tantivy" or "is built again" in caplog.text
    caplog.clear()
    with caplog.at_level(logging.WARNING, "vectorsearch"), made(tmp_path / "db") as db:
        assert found(db, query) == ids
        assert words_of(db) == told
        assert engine != "tantivy" or str(db.info()["lexical"]["origin"]).startswith("loaded")
    assert not caplog.text


def test_stop_words_are_the_languages_again_when_they_are_asked_for(tmp_path: Path) -> None:
    """F8: a list of one's own is given up by name."""
    with made(tmp_path / "db", stop_words=["The", "see", "the"]) as db:
        assert words_of(db)["stop_words"] == ["see", "the"]
        assert found(db, "see") == []
    with made(tmp_path / "db", stop_words="own") as db:
        assert words_of(db)["stop_words"] == "own"
        assert len(found(db, "see")) == 2


@pytest.mark.parametrize("engine", ["tantivy", "rank-bm25"])
def test_scores_follow_the_constants_when_they_are_chosen(tmp_path: Path, engine: str) -> None:
    """F9: k1 and b are a database's, and a search's that names them; nothing is built again for them."""
    with made(tmp_path / "db", lexical=engine, language="de") as db:
        usual = [hit.score for hit in db.search("haus see")]
        once = [hit.score for hit in db.search("haus see", k1=0)]
        assert once == pytest.approx([sum(once) / 2] * 2)  # both have both words, and that is all that counts
        assert "k1=0, b=0.75" in str(db.explain("haus see", k1=0))
        assert "k1=" not in str(db.explain("haus see"))
        assert found(db, "haus", k1=1.5, b=1) == ["house", "houses"]
        assert found(db, "haus", k1=1.5, b=0) == ["houses", "house"]
    with made(tmp_path / "db", k1=0, b=0.5) as db:
        assert words_of(db)["k1"] == 0.0
        assert engine != "tantivy" or str(db.info()["lexical"].get("origin", "loaded")).startswith("loaded")
        assert [hit.score for hit in db.search("haus see")] == pytest.approx(once)
        assert [hit.score for hit in db.search("haus see", k1=1.2, b=0.75)] == pytest.approx(usual)
    with made(tmp_path / "db") as db:
        assert (words_of(db)["k1"], words_of(db)["b"]) == (0.0, 0.5)


BAD: list[tuple[dict[str, Any], str]] = [
    ({"language": "germna"}, "language 'germna'"),
    ({"language": "none"}, "language 'none'"),
    ({"language": True}, "language True"),
    ({"stop_words": "the"}, "stop_words is 'the'"),
    ({"stop_words": ["a b"]}, "'a b'"),
    ({"stop_words": 3}, "stop_words is 3"),
    ({"fold_accents": "yes"}, "fold_accents is 'yes'"),
    ({"fold_accents": None}, "fold_accents is None"),
    ({"k1": -0.1}, "k1 is -0.1"),
    ({"k1": math.inf}, "k1 is inf"),
    ({"k1": True}, "k1 is True"),
    ({"k1": "1.2"}, "k1 is '1.2'"),
    ({"k1": None}, "k1 is None"),
    ({"b": 1.01}, "b is 1.01"),
    ({"b": math.nan}, "b is nan"),
    ({"b": np.float32("nan")}, "b is"),
]


@pytest.mark.parametrize(("options", "message"), BAD, ids=str)
def test_a_setting_is_refused_by_name_and_value_when_it_makes_no_sense(
    tmp_path: Path, options: dict[str, Any], message: str
) -> None:
    """F7, F8, F9: nothing is made of what isn't understood, and nothing changes in a database that is there."""
    with pytest.raises(InvalidInput, match=message):
        vs.open(tmp_path / "new", embed=None, **options)
    assert not (tmp_path / "new").exists()
    made(tmp_path / "db").close()
    with pytest.raises(InvalidInput, match=message):
        vs.open(tmp_path / "db", **options)
    with made(tmp_path / "db") as db:
        assert words_of(db) == {"language": "en", "stop_words": "own", "fold_accents": False, "k1": 1.2, "b": 0.75}


@pytest.mark.parametrize("options", [{"k1": -1}, {"b": 2}, {"k1": math.nan}, {"b": True}, {"k1": "x"}], ids=str)
def test_a_search_is_refused_when_its_constants_make_no_sense(tmp_path: Path, options: dict[str, Any]) -> None:
    """F9: the message names the constant."""
    with made(tmp_path / "db") as db, pytest.raises(InvalidInput, match=f"{next(iter(options))} is "):
        db.search("haus", **options)


@pytest.mark.parametrize(
    "options", [{"language": "de"}, {"stop_words": []}, {"fold_accents": True}, {"b": 0.5}], ids=str
)
def test_a_reader_is_refused_when_it_wants_other_words(tmp_path: Path, options: dict[str, Any]) -> None:
    """F8, F9: what is open to read only can't change how words are cut; with the same words it opens."""
    made(tmp_path / "db").close()
    with pytest.raises(SettingsMismatch, match=f"{next(iter(options))}=.*only who may write"):
        vs.open(tmp_path / "db", read_only=True, **options)
    with vs.open(tmp_path / "db", read_only=True, language="english", k1=1.2) as db:
        assert found(db, "gare") == ["coffee"]


def test_a_reader_builds_its_own_index_when_the_files_are_of_an_earlier_analysis(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """F6: files of another analysis are never mixed with today's, and a reader leaves them as they are."""
    with monkeypatch.context() as earlier:
        earlier.setattr("backends.text.analyzer._VERSION", 1)
        made(tmp_path / "db").close()
    with vs.open(tmp_path / "db", read_only=True) as db:
        assert found(db, "gare") == ["coffee"]
        assert "another layout" in str(db.info()["lexical"]["origin"])
    with made(tmp_path / "db") as db:
        assert found(db, "gare") == ["coffee"]
        assert "another layout" in str(db.info()["lexical"]["origin"])
    with made(tmp_path / "db") as db:
        assert found(db, "gare") == ["coffee"]
        assert str(db.info()["lexical"]["origin"]).startswith("loaded")


def test_a_database_is_refused_when_a_later_release_has_settings_in_it(tmp_path: Path) -> None:
    """A setting that this release doesn't know is no reason to serve without it."""
    made(tmp_path / "db").close()
    store = Store(tmp_path / "db")
    store.set_meta({"settings": json.dumps({**json.loads(store.meta()["settings"]), "decompound": True})})
    store.close()
    with pytest.raises(NewerFormat, match="decompound"):
        vs.open(tmp_path / "db")


def test_a_tenants_words_are_its_own_when_they_are_given(tmp_path: Path) -> None:
    """F7, F8, F9: a tenant is made with words of its own, and keeps them."""
    with vs.open(tmp_path / "db", embed=None) as db:
        db.tenant("acme", language="french", fold_accents=True, k1=0.9, stop_words=["gare"]).add(DOCS)
    with vs.open(tmp_path / "db") as db:
        tenant = db.tenant("acme")
        assert words_of(tenant) == {
            "language": "fr",
            "stop_words": ["gare"],
            "fold_accents": True,
            "k1": 0.9,
            "b": 0.75,
        }
        assert found(tenant, "cafe gare") == ["coffee"]
        assert db.info()["language"] == "en"
