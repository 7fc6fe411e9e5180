"""Databases whose embedder can't be had any more: what needs no vectors works, and there is a way out."""

from __future__ import annotations

from typing import TYPE_CHECKING

import pytest

import vectorsearch as vs
from backends.choosing import registry
from vectorsearch.errors import InvalidInput, ModelUnavailable, SettingsMismatch
from vectorsearch.query.planning.defaults import SearchDefaults
from vectorsearch.training.features import fit_features

from ..biased_models import BiasedBackend, write_model
from ..conftest import DOCS, EMBEDDER, RERANKER, fake_backend

if TYPE_CHECKING:
    from pathlib import Path

NEW = {"id": "new", "text": "a fifth document"}


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    """Give a database's folder whose embedder was a folder that is not there any more; another one is."""
    with vs.open(tmp_path / "plain", embed=None) as plain:
        plain.add(DOCS)
        fit_features(plain, tmp_path / "feat", dim=3)
        fit_features(plain, tmp_path / "other", dim=2)
    with vs.open(tmp_path / "db", embed=tmp_path / "feat") as db:
        db.add(DOCS)
    (tmp_path / "feat").rename(tmp_path / "gone")
    return tmp_path / "db"


def damage(model: Path) -> None:
    """Flip a byte of a feature model's weights."""
    path = model / "features.npz"
    changed = bytearray(path.read_bytes())
    changed[len(changed) // 2] ^= 0xFF
    path.write_bytes(bytes(changed))


@pytest.mark.parametrize("read_only", [False, True])
def test_words_are_searched_when_the_embedder_is_gone(folder: Path, *, read_only: bool) -> None:
    """Auto and hybrid searches go without vectors and say so; lexical ones are whole; a dense one names the way out."""
    with vs.open(folder, read_only=read_only) as db:
        assert db.search("pattern", mode="lexical").degraded == ()
        for mode in ("auto", "hybrid"):
            result = db.search("pattern", mode=mode)
            assert (len(result), result.degraded) == (2, ("dense:unavailable",))
        with pytest.raises(ModelUnavailable) as error:
            db.search("pattern", mode="dense")
        for part in (str(folder), str(folder.parent / "feat"), "it isn't there", "vectorsearch reindex"):
            assert part in str(error.value)
        assert [len(result) for result in db.search_many(["pattern", "file"])] == [2, 2]
        assert len(db.search(vector=db.get("csv").vector, mode="dense")) == len(DOCS)


def test_info_says_why_when_the_embedder_is_gone(folder: Path) -> None:
    """The reason is that of the error; a database whose embedder is there has no such entry."""
    with vs.open(folder) as db:
        assert "it isn't there" in db.info()["embedder_fault"]
        db.register_model("feat", folder.parent / "gone", "embedder")
        assert "embedder_fault" not in db.info()
    with vs.open(folder.parent / "plain", embed=None) as plain:
        assert "embedder_fault" not in plain.info()


def test_only_documents_with_vectors_are_stored_when_the_embedder_is_gone(folder: Path) -> None:
    """What would have to be embedded is refused, and what brings its vector is stored."""
    with vs.open(folder) as db:
        with pytest.raises(ModelUnavailable, match="vectorsearch reindex"):
            db.add([NEW])
        assert db.add([NEW], vectors=[[1.0, 0.0, 0.0]]) == 1
        assert db.delete(["new"]) == 1


def test_a_database_is_looked_after_when_the_embedder_is_gone(folder: Path, tmp_path: Path) -> None:
    """Verify, repair, compact, snapshot and tenants need no embedder; only a tenant to be embedded with it does."""
    with vs.open(folder) as db:
        assert db.verify().ok
        assert db.repair().ok
        db.compact()
        db.snapshot(tmp_path / "copy")
        with pytest.raises(ModelUnavailable):
            db.tenant("acme")
        assert db.tenant("globex", embed=None).add([NEW]) == 1
    with vs.open(tmp_path / "copy") as copy:
        assert copy.count() == len(DOCS)


def test_documents_are_embedded_again_when_the_embedder_is_gone(folder: Path, tmp_path: Path) -> None:
    """Opening with another model says how, and that works: the database is then whole."""
    with pytest.raises(SettingsMismatch, match="vectorsearch reindex"):
        vs.open(folder, embed=tmp_path / "other")
    with vs.open(folder) as db:
        assert db.reindex(embed=tmp_path / "other") == len(DOCS)
        assert db.search("pattern", mode="dense").degraded == ()
    with vs.open(folder) as db:
        assert db.embedder is not None
        assert db.embedder.dim == 2


def test_the_same_vectors_count_when_the_embedder_is_back(folder: Path, tmp_path: Path) -> None:
    """Nothing of the time without it is left, neither in the settings nor in the database's own search defaults."""
    with vs.open(folder) as db:
        db.add([NEW], vectors=[[1.0, 0.0, 0.0]])
        before = db.info()["embed"]
        assert db.register_model("feat", tmp_path / "gone", "embedder").name == "feat"
        with pytest.raises(InvalidInput, match="has embedded the documents of this database"):
            db.register_model("feat", tmp_path / "other", "embedder")
    with vs.open(folder, embed=tmp_path / "gone") as db:
        assert db.search("pattern").degraded == ()
    (tmp_path / "gone").rename(tmp_path / "feat")
    with vs.open(folder) as db:
        assert db.info()["embed"] == before
        assert db.search("pattern").degraded == ()
        assert db.embedder is not None
        db.defaults = SearchDefaults(weights={"dense": 0.5}, embed=db.embedder.digest)
    (tmp_path / "feat").rename(tmp_path / "gone")
    with vs.open(folder) as db:
        assert db.search("pattern").degraded == ("dense:unavailable",)


def test_every_database_opens_when_the_files_of_their_registered_embedder_are_damaged(folder: Path) -> None:
    """The store that registered it, and a tenant that uses the store's copy, have their documents and know why."""
    with vs.open(folder) as db:
        db.register_model("own", folder.parent / "other", "embedder", load_policy="eager")
        db.reindex(embed="own")
        db.tenant("acme").add(DOCS)
    damage(next((folder / "models").iterdir()))
    with vs.open(folder) as db:
        for each in (db, db.tenant("acme")):
            assert each.search("pattern").degraded == ("dense:unavailable",)
            with pytest.raises(ModelUnavailable, match=r"ha(s|ve) changed"):
                each.search("pattern", mode="dense")
        assert [fault.part for fault in db.verify().faults] == ["models"]
        db.reindex(embed=folder.parent / "other")
        assert db.search("pattern").degraded == ()


def test_an_embedder_that_is_registered_again_serves_at_once(folder: Path) -> None:
    """Searches and writes of the store and of a tenant that uses its copy find the mended files, as after reopening."""
    with vs.open(folder) as db:
        db.register_model("own", folder.parent / "other", "embedder")
        db.reindex(embed="own")
        db.tenant("acme").add(DOCS)
    damage(next((folder / "models").iterdir()))
    with vs.open(folder) as db:
        acme = db.tenant("acme")
        with pytest.raises(InvalidInput, match="has embedded the documents"):
            db.register_model("own", folder.parent / "gone", "embedder")
        with pytest.raises(ModelUnavailable):
            db.upsert([NEW])
        db.register_model("own", folder.parent / "other", "embedder")
        for each in (db, acme):
            assert each.search("pattern", mode="dense").degraded == ()
            assert each.upsert([NEW]) == 1
        names = [each.embedder.name if each.embedder else "" for each in (db, acme)]
        with pytest.raises(InvalidInput, match="has embedded the documents"):
            db.unregister_model("own")
    with vs.open(folder) as db:
        acme = db.tenant("acme")
        assert [each.embedder.name if each.embedder else "" for each in (db, acme)] == names


def test_a_tenants_embedder_that_is_registered_again_serves_at_once(folder: Path) -> None:
    """A tenant's own model, lost with its files, embeds again when the tenant registers the same one."""
    with vs.open(folder) as db:
        acme = db.tenant("acme", embed=None)
        acme.register_model("own", folder.parent / "other", "embedder")
        acme.reindex(embed="own")
        acme.add(DOCS)
    damage(next((folder / "models").iterdir()))
    with vs.open(folder) as db:
        acme = db.tenant("acme")
        acme.register_model("own", folder.parent / "other", "embedder")
        assert acme.upsert([NEW]) == 1
        assert acme.search("pattern").degraded == ()
        assert db.search("pattern").degraded == ("dense:unavailable",)


def test_a_database_opens_when_a_name_is_of_no_model_any_more(tmp_path: Path) -> None:
    """A model that was given as a spec, or that a later catalogue doesn't have, is found by no name."""
    backend = fake_backend()
    with vs.open(tmp_path / "db", embed=EMBEDDER, rerank=RERANKER, backend=backend.name) as db:
        db.add(DOCS)
    with vs.open(tmp_path / "db", rerank=RERANKER, backend=backend.name) as db:
        assert db.search("pattern").degraded == ("dense:unavailable",)
        assert db.reindex(embed=EMBEDDER) == len(DOCS)


def test_the_built_in_way_is_taken_when_the_reranker_of_the_defaults_is_damaged(
    tmp_path: Path,
) -> None:
    """A search that names nothing says that the defaults don't count, as it does of a model that was forgotten."""
    backend = BiasedBackend()
    registry.register(backend)
    with vs.open(tmp_path / "db", embed=None, rerank=None, backend=backend.name) as db:
        db.add(DOCS)
        digest = db.register_model("own", write_model(tmp_path / "model", 3), "cross-encoder").digest
        db.defaults = SearchDefaults(rerank="own", rerank_digest=digest)
    for path in next((tmp_path / "db" / "models").iterdir()).iterdir():
        path.unlink()
    with vs.open(tmp_path / "db", rerank=None, backend=backend.name) as db:
        assert db.search("pattern").degraded == ("defaults:outdated",)
