"""Stores that have lost files or folders: they say so, and no empty one takes the place of what is gone."""

from __future__ import annotations

import shutil
import signal
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

import vectorsearch as vs
from vectorsearch.errors import DamagedDatabase, StoreError

from ..biased_models import TEXTS, BiasedBackend, write_model

ROWS = [{"id": doc_id, "text": text} for doc_id, text in TEXTS.items()]


@pytest.fixture
def backend() -> str:
    """Give the name of a backend for models that are files."""
    return BiasedBackend().name


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    """Give the folder of a closed store without vectors, with two tenants."""
    with vs.open(tmp_path / "db", embed=None, rerank=None, backend=BiasedBackend().name) as db:
        for database in (db, db.tenant("acme"), db.tenant("globex")):
            database.add(ROWS)
    return tmp_path / "db"


ROOT = Path(__file__).parents[3]
KILLED = """
import os, signal, sys
import vectorsearch as vs
from vectorsearch.collection.storage.disk import failpoints
left = int(sys.argv[3])
def reached():
    global left
    left -= 1
    if not left:
        os.kill(os.getpid(), signal.SIGKILL)
with vs.open(sys.argv[1], embed=None, rerank=None) as db:
    failpoints.arm(sys.argv[2], reached)
    db.tenant("acme")
"""


def reopened(folder: Path, **options: Any) -> vs.Database:
    """Return the store, opened again."""
    return vs.open(folder, embed=None, rerank=None, **options)


def test_an_empty_file_is_damage_when_others_lie_beside_it(folder: Path, tmp_path: Path) -> None:
    """It is neither made anew nor changed; alone with the lock, it is a database whose making was cut off."""
    path = folder / "documents.sqlite"
    path.write_bytes(b"")
    for read_only in (False, True):
        with pytest.raises(DamagedDatabase, match=r"is empty, and 'lexical' lies beside it: .* restore it"):
            vs.open(folder, embed=None, rerank=None, read_only=read_only)
    assert path.stat().st_size == 0
    (tmp_path / "new").mkdir()
    for name in ("writer.lock", "documents.sqlite", "documents.sqlite-wal"):
        (tmp_path / "new" / name).touch()
    with reopened(tmp_path / "new") as db:
        assert db.count() == 0


@pytest.mark.parametrize("lost", ["", "documents.sqlite"])
def test_a_tenant_is_not_made_anew_when_its_documents_are_gone(folder: Path, tmp_path: Path, lost: str) -> None:
    """Whoever looks after the store, or uses the tenant, learns it; the others are served, and it can be removed."""
    gone = folder / "tenants" / "acme" / lost
    if lost:
        gone.unlink()
    else:
        shutil.rmtree(gone)
    with reopened(folder) as db:
        (fault,) = db.verify().faults
        assert fault.part == "tenant acme, file"
        assert "documents.sqlite' is missing: restore or remove the tenant" in fault.message
        assert not db.repair().ok
        for use in (db.compact, lambda: db.snapshot(tmp_path / "copy")):
            with pytest.raises(StoreError, match=r"but without tenant acme: .* is missing"):
                use()
        for find in (lambda: db.tenant("acme", quota_nbytes=9), lambda: db.search("apple", tenant="acme")):
            with pytest.raises(DamagedDatabase, match="'acme' is damaged"):
                find()
        assert (gone.exists(), db.tenants()[0].quota_nbytes, db.tenant("globex").count()) == (False, None, len(ROWS))
        db.remove_tenant("acme")
        assert db.verify().ok
        assert db.tenant("acme").count() == 0


def test_a_removal_is_finished_when_it_was_cut_off(folder: Path) -> None:
    """A tenant whose folder was put out of the way already is removed by the next opening to write."""
    acme = folder / "tenants" / "acme"
    acme.rename(acme.with_name(".removed-acme"))
    with reopened(folder) as db:
        assert [tenant.name for tenant in db.tenants()] == ["globex"]
        assert db.verify().ok
    assert [path.name for path in acme.parent.iterdir()] == ["globex"]


def empty(path: Path) -> None:
    """Leave an empty file."""
    path.write_bytes(b"")


def cut(path: Path) -> None:
    """Leave half a file."""
    path.write_bytes(path.read_bytes()[:5000])


def flip(path: Path) -> None:
    """Change one bit of what is registered."""
    content = bytearray(path.read_bytes())
    content[content.index(b"quota_nbytes")] ^= 1
    path.write_bytes(content)


HARMS = {"missing": Path.unlink, "empty": empty, "damaged": cut, "not what was written": flip}


@pytest.mark.parametrize("harm", HARMS)
def test_nothing_is_deleted_when_the_registry_is_lost(folder: Path, backend: str, harm: str) -> None:
    """D2: absent isn't empty: what needs it is refused with the way out; the documents are searched all the same."""
    with reopened(folder, backend=backend) as db:
        db.tenant("acme").register_model("own", write_model(folder.parent / "model", 5), "cross-encode", compare=False)
        db.tenant("globex", quota_nbytes=1 << 30)
    before = {path for path in folder.rglob("*") if "lexical" not in path.parts}
    HARMS[harm](folder / "registry.sqlite")
    for read_only in (True, False, False):
        with reopened(folder, backend=backend, read_only=read_only) as db:
            assert len(db.search("apple")) == len(ROWS)
            (fault,) = db.verify().faults
            assert (fault.part, fault.mendable) == ("registry", True)
            refused = (
                db.tenants,
                lambda: db.tenant("acme"),
                lambda: db.search("apple", tenant="acme"),
                lambda: db.search("apple", rerank="own"),
                lambda: db.registered_models(all_tenants=True),
                lambda: db.snapshot(folder.parent / "copy"),
            )
            for call in refused:
                with pytest.raises(DamagedDatabase, match=rf"registry.sqlite is {harm}.*Put back .* or run `vec"):
                    call()
    assert before - {folder / "registry.sqlite"} <= set(folder.rglob("*"))
    with reopened(folder, backend=backend) as db:
        found = [fault.message for fault in db.repair().faults]
        assert any("tenant 'acme' is back without its quota" in message for message in found)
        assert any("is no registered model's: register it from there" in message for message in found)
        assert [tenant.name for tenant in db.tenants()] == ["acme", "globex"]
        assert db.tenant("acme").count() == len(ROWS)
    with reopened(folder, backend=backend) as db:
        (fault,) = db.verify().faults
        (kept,) = (folder / "models").iterdir()
        assert str(kept) in fault.message
        db.tenant("acme").register_model("own", kept, "cross-encode", compare=False)
        assert db.verify().ok
    assert before <= {*folder.rglob("*"), folder / "registry.sqlite"}


@pytest.mark.parametrize("older", ["registry.sqlite", "documents.sqlite"])
def test_an_older_registry_is_refused_until_it_is_taken(folder: Path, backend: str, older: str) -> None:
    """D2: of documents and registry one was put back from before a model was registered: no model goes for it."""
    shutil.copy(folder / older, folder.parent / "older")
    with reopened(folder, backend=backend) as db:
        model = write_model(folder.parent / "model", 5)
        db.tenant("acme").register_model("own", model, "cross-encode", compare=False)
    shutil.copy(folder.parent / "older", folder / older)
    for _ in range(2):
        with reopened(folder, backend=backend) as db, pytest.raises(DamagedDatabase, match="of another moment than"):
            db.tenant("acme")
    assert len(list((folder / "models").iterdir())) == 1
    with reopened(folder, backend=backend) as db:
        db.repair()
        own = [model.name for model in db.tenant("acme").registered_models()]
        assert own == ([] if older == "registry.sqlite" else ["own"])
    with reopened(folder, backend=backend) as db:
        assert db.verify().ok == bool(own)
    assert len(list((folder / "models").iterdir())) == 1


def test_another_stores_registry_is_refused(folder: Path, tmp_path: Path) -> None:
    """D2: its tenants and models would be strangers', and what is registered here would be deleted as unknown."""
    with vs.open(tmp_path / "other", embed=None, rerank=None) as other:
        other.tenant("stranger")
    shutil.copy(tmp_path / "other" / "registry.sqlite", folder)
    with reopened(folder) as db:
        with pytest.raises(DamagedDatabase, match="is another database's"):
            db.tenants()
        db.repair()
        assert [tenant.name for tenant in db.tenants()] == ["acme", "globex"]


def test_a_tenant_gets_no_others_documents(folder: Path, tmp_path: Path) -> None:
    """D1: its documents' file must be its own; the other tenants are served, and it can be removed."""
    with vs.open(tmp_path / "other", embed=None, rerank=None) as other:
        other.add([{"id": "secret", "text": "apple secret"}])
    acme = folder / "tenants" / "acme" / "documents.sqlite"
    for stranger in (tmp_path / "other" / "documents.sqlite", folder / "tenants" / "globex" / "documents.sqlite"):
        shutil.copy(stranger, acme)
        for read_only in (True, False):
            with reopened(folder, read_only=read_only) as db:
                with pytest.raises(DamagedDatabase, match=r"acme' is damaged, .* is another database's: put"):
                    db.search("apple", tenant="acme")
                assert db.tenant("globex").count() == len(ROWS)
                (fault,) = db.verify().faults
                assert fault.part == "tenant acme, file"
    with reopened(folder) as db:
        db.remove_tenant("acme")
        assert db.verify().ok


@pytest.mark.parametrize("failpoint", ["tenants.before_row", "registry.before_commit", "registry.after_commit"])
@pytest.mark.parametrize("count", [1, 2])
def test_there_is_no_fault_when_the_making_of_a_tenant_was_cut_off(tmp_path: Path, failpoint: str, count: int) -> None:
    """D6: killed at any step, verifying finds nothing wrong at once, and the next opening finishes or removes it."""
    command = [sys.executable, "-c", KILLED, str(tmp_path / "db"), failpoint, str(count)]
    ended = subprocess.run(command, check=False, cwd=ROOT, env={"PYTHONPATH": str(ROOT)}).returncode
    assert ended == (0 if (failpoint, count) == ("tenants.before_row", 2) else -signal.SIGKILL)
    for read_only in (True, False):
        with reopened(tmp_path / "db", read_only=read_only) as db:
            assert db.verify().faults == ()
            made = {tenant.name for tenant in db.tenants()}
            assert made <= {"acme"}
    assert {path.name for path in (tmp_path / "db" / "tenants").glob("*")} == made
    with reopened(tmp_path / "db") as db:
        assert db.tenant("acme").count() == 0
