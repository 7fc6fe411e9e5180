"""Every file of a store with tenants and registered models: of before, another's, cut, emptied, gone, a bit flipped."""

from __future__ import annotations

import itertools
import shutil
from typing import TYPE_CHECKING, Any

import numpy as np
import pytest

import vectorsearch as vs
from tests.vectorsearch.biased_models import BiasedBackend, write_model
from vectorsearch.collection.storage.disk import manifest
from vectorsearch.collection.storage.sqlite.schema import FILE_NAME
from vectorsearch.errors import VectorSearchError
from vectorsearch.models.model_files import ModelFiles

if TYPE_CHECKING:
    from collections.abc import Iterator
    from pathlib import Path

    from vectorsearch.collection.storage.registry import Registry

HARMS = ("older", "other", "cut", "emptied", "deleted", "flipped")
TENANTS = ("", "acme", "globex")
# What nobody reads when a database is opened: the lock's text, Tantivy's locks, and what SQLite makes for itself.
_UNREAD = ("writer.lock", ".lock", "-shm", "top.json", "top.watch")


def vector(number: int) -> np.ndarray:
    """Give a vector of its own for each number."""
    return np.random.default_rng(number).standard_normal(4).astype(np.float32)


def rows(numbers: range) -> list[dict[str, Any]]:
    """Give documents with a word and a vector of their own."""
    return [{"id": f"d{i}", "text": f"apple unique{i}", "vector": vector(i)} for i in numbers]


def open_store(folder: Path, **options: Any) -> vs.Database:
    """Open the store; its tenants have the same kind of index."""
    return vs.open(folder, embed=None, rerank=None, dense_index="Flat", **options)


def grow(folder: Path, backend: str, numbers: range, first: int) -> None:
    """Add documents, and a model for one tenant."""
    with open_store(folder, backend=backend) as db:
        for name in TENANTS:
            database = db.tenant(name, dense_index="Flat") if name else db
            database.add(rows(numbers))
            database.delete([f"d{numbers.start}"])
            database.refresh()
        model = write_model(folder.parent / f"model{first}", first)
        db.tenant("acme", quota_nbytes=(64 + first) << 20).register_model(
            f"own{first}", model, "cross-encode", compare=False
        )


def files(folder: Path) -> list[str]:
    """Return the files that are read, relative to a store's folder."""
    found = (path.relative_to(folder).as_posix() for path in folder.rglob("*") if path.is_file())
    return sorted(name for name in found if not name.endswith(_UNREAD))


@pytest.fixture(scope="module")
def states(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Give a folder with a store now (`db`), before (`older`), and another one (`other`), all closed."""
    at, backend = tmp_path_factory.mktemp("states"), BiasedBackend().name
    grow(at / "db", backend, range(10), 1)
    shutil.copytree(at / "db", at / "older")
    for kind in ("dense", "lexical"):  # whose base would be of the change before
        shutil.rmtree(at / "db" / kind)
    grow(at / "db", backend, range(10, 20), 2)
    grow(at / "other", backend, range(50, 60), 3)
    return at


def harm(states: Path, folder: Path, name: str, how: str) -> bool:
    """Do it to one file, and tell whether that has changed anything."""
    path, before = folder / name, (folder / name).read_bytes() if (folder / name).exists() else None
    if how in ("older", "other"):
        source = states / how / name
        if not source.exists():  # files of an index are named by change: those of the same kind and end
            alike = sorted((states / how / name).parent.glob(f"*{path.suffix}")) if source.parent.exists() else []
            if not alike:
                return False
            source = alike[0]
        shutil.copy(source, path)
    elif how == "cut":
        path.write_bytes((before or b"")[: len(before or b"") // 2])
    elif how == "emptied":
        path.write_bytes(b"")
    elif how == "flipped":
        middle = len(before or b"") // 2
        path.write_bytes(bytes(byte ^ (at == middle) for at, byte in enumerate(before or b"")))
    else:
        path.unlink()
    return before != (path.read_bytes() if path.exists() else None)


def check(folder: Path, harms: list[tuple[str, str]]) -> None:
    """Whatever is answered is what the documents that are there say; all else is refused; verifying finds it.

    A bit that was flipped in a document changes what is stored: then it is enough that verifying finds it. And no
    model's file goes because another file isn't what it was.
    """
    harmed, faults, absent = f"{harms}", list[str](), tuple[str, ...]()
    models = {path for path in (folder / "models").rglob("*") if path.is_file()}
    try:
        with open_store(folder, read_only=True) as db:
            found = db.verify()
            faults, absent = [str(fault) for fault in found.faults], found.absent
    except VectorSearchError as exc:
        faults = [str(exc)]
    if any(how == "deleted" and name.split("/")[-2:-1] in (["lexical"], ["dense"]) for name, how in harms):
        assert faults or absent, harmed
    in_place = any(how == "flipped" and name.endswith(FILE_NAME) for name, how in harms)
    refused = False
    try:
        with open_store(folder) as db:
            for name in TENANTS:
                try:
                    database = db.tenant(name) if name else db
                    ask(database)
                    database.add(rows(range(100, 110)))  # what was of later changes has their numbers now
                    ask(database)
                except VectorSearchError:
                    refused = True
                except AssertionError:
                    assert in_place, harmed
                    assert faults, harmed
    except VectorSearchError:
        refused = True
    assert faults or not refused, harmed
    assert models <= {path for path in (folder / "models").rglob("*") if path.is_file()}, harmed


def ask(db: vs.Database) -> None:
    """Each document that is stored is found by its own word and vector, and nothing else is."""
    stored = {document.id: document for document in db.iter()}
    assert {hit.id for hit in db.search("apple", k=100)} == stored.keys()
    for document in stored.values():
        word = document.text.split()[1]
        assert [hit.id for hit in db.search(word, mode="lexical")] == [document.id]
        assert db.search(vector=document.vector, k=1)[0].id == document.id
    db.registered_models()


def cases(states: Path) -> Iterator[tuple[str, str]]:
    """Yield each file with each harm."""
    return itertools.product(files(states / "db"), HARMS)


def test_answers_are_right_or_refused_when_one_file_is_not_what_it_was(states: Path, tmp_path: Path) -> None:
    """D1, D2: one file of each kind, each harm, as `make test-deep` does with every file."""
    seen: set[tuple[str, str]] = set()
    for name, how in cases(states):
        kind = name if name.endswith(FILE_NAME) else name.rpartition("/")[2].rpartition(".")[2]
        told = ("older", "deleted", "flipped") if name.endswith((".sqlite", "manifest")) else ("deleted",)
        if how in told and (kind, how) not in seen and not name.startswith("tenants/globex"):
            seen.add((kind, how))
            _try(states, tmp_path / "tried", [(name, how)])


def test_the_check_notices_when_nothing_asks_of_which_history_a_file_is(
    states: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A positive control: without the comparison of histories, documents of before beside a newer index are wrong."""
    monkeypatch.setattr(manifest, "_stray", lambda *_: "")
    with pytest.raises(AssertionError):
        _try(states, tmp_path / "tried", [(FILE_NAME, "older")])


def test_the_check_notices_when_a_files_digest_is_not_compared(
    states: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A positive control: without the comparison of digests, another database's vectors are found in place of ours."""
    monkeypatch.setattr(manifest, "_difference", lambda *_: None)
    names = [name for name in files(states / "db") if name.startswith("dense/") and not name.endswith("manifest")]
    with pytest.raises(AssertionError):
        _try(states, tmp_path / "tried", [(name, "other") for name in names])


def test_nothing_is_deleted_when_documents_and_registry_are_both_of_before(states: Path, tmp_path: Path) -> None:
    """D2: the two fit together, and know nothing of a model that was registered since: it stays, and is told."""
    _try(states, tmp_path / "tried", [(FILE_NAME, "older"), ("registry.sqlite", "older")])
    shutil.copytree(states / "db", tmp_path / "db")
    for name in (FILE_NAME, "registry.sqlite"):
        shutil.copy(states / "older" / name, tmp_path / "db" / name)
    with open_store(tmp_path / "db") as db:
        (told,) = [fault.message for fault in db.verify().faults if fault.part == "models"]
    assert "is no registered model's: register it from there, or remove the folder" in told


def test_the_check_notices_when_models_without_rows_are_removed(
    states: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A positive control of pairs: each of the two alone is refused, both together open, and a model would be gone."""

    def remove_unowned(self: ModelFiles, registry: Registry) -> None:
        for name in self.unowned(registry.models()):
            shutil.rmtree(self.path_of(name))

    monkeypatch.setattr(ModelFiles, "sweep", remove_unowned)
    pair = [(FILE_NAME, "older"), ("registry.sqlite", "older")]
    for one in pair:
        _try(states, tmp_path / "tried", [one])
    with pytest.raises(AssertionError):
        _try(states, tmp_path / "tried", pair)


@pytest.mark.deep
def test_answers_are_right_or_refused_when_any_file_is_not_what_it_was(states: Path, tmp_path: Path) -> None:
    """D1, D2: every file of a store, each harm."""
    for case in cases(states):
        _try(states, tmp_path / "tried", [case])


@pytest.mark.deep
@pytest.mark.timeout(7200)
def test_answers_are_right_or_refused_when_two_files_are_of_other_moments(states: Path, tmp_path: Path) -> None:
    """D1, D2: every pair of files, of before or of another store."""
    for pair in itertools.combinations(files(states / "db"), 2):
        for how in itertools.product(("older", "other"), repeat=2):
            _try(states, tmp_path / "tried", list(zip(pair, how, strict=True)))


def _try(states: Path, folder: Path, harms: list[tuple[str, str]]) -> None:
    shutil.copytree(states / "db", folder)
    try:
        changed = [harm(states, folder, name, how) for name, how in harms]
        if any(changed):
            check(folder, harms)
    finally:
        shutil.rmtree(folder)
