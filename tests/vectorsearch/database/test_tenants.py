"""Tenants of one store: what is theirs, what they share, and what they can't reach of each other."""

from __future__ import annotations

import sqlite3
from contextlib import closing
from typing import TYPE_CHECKING

import pytest

import vectorsearch as vs
from backends.engines.fake_backend import fake_spec
from backends.errors import InvalidInput, UnknownModel, VectorSearchError
from vectorsearch.config import DEFAULT_EMBEDDER, DEFAULT_RERANKER
from vectorsearch.database.tenants import UnknownTenant
from vectorsearch.errors import ReadOnlyDatabase, StoreError

from ..conftest import EMBEDDER, OpenDatabase, fake_backend

if TYPE_CHECKING:
    from pathlib import Path


def test_documents_are_a_tenants_own_when_ids_are_the_same(open_database: OpenDatabase, tmp_path: Path) -> None:
    """Nothing of one is found, counted, listed or deleted through another, or through the root."""
    db = open_database(tmp_path / "db")
    acme, globex = db.tenant("acme"), db.tenant("globex")
    for who, database in (("root", db), ("acme", acme), ("globex", globex)):
        database.add([{"id": "a", "text": f"apple of {who}", "metadata": {"owner": who}}])
    for who, database in (("root", db), ("acme", acme), ("globex", globex)):
        assert [document.text for document in database.iter()] == [f"apple of {who}"]
        for mode in ("lexical", "dense", "hybrid"):
            assert [hit.text for hit in database.search("apple", mode=mode)] == [f"apple of {who}"]
        assert len(database.search("apple", filter={"owner": {"$in": ["root", "acme", "globex"]}})) == 1
    assert acme.delete("a") == 1
    assert (db.count(), acme.count(), globex.count()) == (1, 0, 1)


def test_everything_is_there_when_the_store_is_opened_again(tmp_path: Path) -> None:
    """Tenants, their documents, their embedders and their sizes last; a tenant is opened when it is asked for."""
    other = fake_spec("other-embedder", dim=32)
    backend = fake_backend()
    with vs.open(tmp_path / "db", embed=EMBEDDER, backend=backend.name) as db:
        db.tenant("acme", quota_nbytes=5_000_000, guaranteed_nbytes=1_000_000).add([{"id": "a", "text": "apple"}])
        db.tenant("globex", embed=other).add([{"id": "g", "text": "grape"}])
        with pytest.raises(InvalidInput, match="open already: give embed"):
            db.tenant("globex", embed=EMBEDDER)
    with vs.open(tmp_path / "db", embed=EMBEDDER, backend=backend.name) as db:
        assert [(t.name, t.quota_nbytes, t.guaranteed_nbytes) for t in db.tenants()] == [
            ("acme", 5_000_000, 1_000_000),
            ("globex", None, 0),
        ]
        assert db.tenant("acme").search("apple", mode="dense")[0].id == "a"
        globex = db.tenant("globex", embed=other)
        assert globex.search("grape", mode="dense")[0].id == "g"
        assert globex.get("g").vector.shape == (32,)  # type: ignore[union-attr]  # it is there
        assert db.tenant("globex") is globex
        globex.close()
        assert db.tenant("globex", embed=other).count() == 1


@pytest.mark.parametrize("name", ["", "Acme", "../acme", "a/b", ".hidden", "a" * 65, "ü", None])
def test_a_tenants_name_is_refused_when_it_is_no_name(store: vs.Database, name: str) -> None:
    """Names are folder names everywhere; nothing is made for one that can't be."""
    with pytest.raises(InvalidInput, match="lower-case letters"):
        store.tenant(name)
    assert store.tenants() == ()


def test_a_tenant_has_no_tenants_when_it_is_asked(store: vs.Database) -> None:
    """A tenant can't reach others, or its own store."""
    acme = store.tenant("acme")
    for call in (lambda: acme.tenant("globex"), acme.tenants, lambda: acme.remove_tenant("acme")):
        with pytest.raises(InvalidInput, match="'acme' is a tenant itself"):
            call()
    with pytest.raises(UnknownTenant):
        store.remove_tenant("globex")


def test_sizes_are_refused_when_they_cannot_be(store: vs.Database) -> None:
    """A guarantee above the quota makes no tenant."""
    with pytest.raises(InvalidInput):
        store.tenant("acme", quota_nbytes=1, guaranteed_nbytes=2)
    assert store.tenants() == ()


def test_a_tenant_is_removed_when_its_documents_are_damaged(tmp_path: Path) -> None:
    """It needn't be opened for that; and what a removal that was cut off has left is swept, never found again."""
    with vs.open(tmp_path / "db", embed=None, rerank=None) as db:
        db.tenant("acme").add([{"id": "a", "text": "old secret"}])
    folder = tmp_path / "db" / "tenants" / "acme"
    (folder / "documents.sqlite").write_bytes(b"rotten" * 500)
    with vs.open(tmp_path / "db", embed=None, rerank=None) as db:
        with pytest.raises(VectorSearchError):
            db.tenant("acme")
        db.remove_tenant("acme")
        assert (db.tenants(), folder.exists()) == ((), False)
        assert db.tenant("acme").count() == 0
        db.close()
    folder.rename(folder.with_name(".removed-acme"))
    with vs.open(tmp_path / "db", embed=None, rerank=None):
        assert list((tmp_path / "db" / "tenants").iterdir()) == []


@pytest.mark.models
def test_others_are_not_named_when_there_is_no_room(tmp_path: Path) -> None:
    """A tenant reads how much others hold, and neither their names nor their models'."""
    with vs.open(tmp_path / "db", embed=None, rerank=None, backend="onnx", budget_nbytes=130_000_000) as db:
        acme, globex = db.tenant("acme-secret"), db.tenant("globex")
        acme.register_model("hush", DEFAULT_EMBEDDER, "embedder", pinned=True)
        with pytest.raises(VectorSearchError) as error:
            globex.register_model("mine", DEFAULT_RERANKER, "cross-encoder")
        assert "others" in str(error.value)
        assert "acme" not in str(error.value)
        assert "hush" not in str(error.value)


def test_a_quota_is_lifted_when_none_is_given(store: vs.Database, tmp_path: Path) -> None:
    """None is no quota, and what isn't given stays; a reader changes no sizes, and a failed opening none either."""
    acme = store.tenant("acme", quota_nbytes=5, guaranteed_nbytes=3)
    assert store.tenant("acme", quota_nbytes=None).quota_nbytes is None
    assert [(t.quota_nbytes, t.guaranteed_nbytes) for t in store.tenants()] == [(None, 3)]
    acme.close()
    with pytest.raises(UnknownModel):
        store.tenant("acme", quota_nbytes=9, embed="no-such-model")
    assert store.tenant("acme").quota_nbytes is None
    with vs.open(tmp_path / "db", read_only=True) as reader, pytest.raises(ReadOnlyDatabase, match="keeps its sizes"):
        reader.tenant("acme", quota_nbytes=1)


def test_a_tenants_faults_are_told_when_the_store_is_verified(tmp_path: Path) -> None:
    """Each fault names its tenant, one that can't be opened is a fault, and the others are looked after."""
    path = tmp_path / "db"
    with vs.open(path, embed=None, rerank=None) as db:
        db.add([{"id": "r", "text": "root"}])
        for name, ids in (("acme", "abc"), ("globex", "de"), ("hooli", "f")):
            db.tenant(name).add([{"id": doc_id, "text": "apple"} for doc_id in ids])
        db.tenant("acme").delete(["a"])
        seen: list[tuple[int, int]] = []
        found = db.verify(lambda done, total: seen.append((done, total)))
        assert (found.ok, found.documents, db.tenant("acme").verify().documents) == (True, 6, 2)
        assert seen == sorted(seen)
        assert (db.compact().forgotten, db.compact().forgotten) == (1, 0)
    (path / "tenants" / "globex" / "documents.sqlite").write_bytes(b"rotten" * 500)
    with closing(sqlite3.connect(path / "tenants" / "acme" / "documents.sqlite")) as conn, conn:
        conn.execute("UPDATE state SET documents = 9")
    with vs.open(path, embed=None, rerank=None) as db:
        assert [fault.part for fault in db.verify().faults] == ["tenant acme, documents", "tenant globex, file"]
        assert [fault.part for fault in db.repair().faults] == ["tenant globex, file"]


def test_the_others_are_compacted_and_copied_when_a_tenant_is_damaged(tmp_path: Path) -> None:
    """The error names the one that was left out, which is no empty tenant in the copy either; all else is there."""
    path, copied = tmp_path / "db", tmp_path / "copy"
    with vs.open(path, embed=None, rerank=None) as db:
        for name in ("acme", "globex", "hooli"):
            db.tenant(name).add([{"id": doc_id, "text": "apple"} for doc_id in "ab"])
            db.tenant(name).delete(["a"])
    (path / "tenants" / "globex" / "documents.sqlite").write_bytes(b"rotten" * 500)
    with vs.open(path, embed=None, rerank=None) as db:
        with pytest.raises(StoreError, match=r"is compacted, but without tenant globex: .*globex"):
            db.compact()
        assert [db.tenant(name).compact().forgotten for name in ("acme", "hooli")] == [0, 0]
        with pytest.raises(StoreError, match=r"copy' is written, but without tenant globex: .*globex"):
            db.snapshot(copied)
    with vs.open(copied, rerank=None) as copy:
        assert [(tenant.name, copy.tenant(tenant.name).count()) for tenant in copy.tenants()] == [
            ("acme", 1),
            ("hooli", 1),
        ]
        assert copy.verify().ok
