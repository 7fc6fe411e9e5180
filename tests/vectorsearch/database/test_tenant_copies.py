"""Copies of stores with tenants and of tenants: whole, found again wherever they lie, and of nobody who has gone."""

from __future__ import annotations

import errno
from typing import TYPE_CHECKING

import pytest

import vectorsearch as vs
from backends.errors import VectorSearchError
from vectorsearch.collection.index.keeper import Keeper
from vectorsearch.collection.storage.registry import ModelRow, Registry
from vectorsearch.config import DEFAULT_EMBEDDER
from vectorsearch.errors import StorageFull, StoreError

from ..biased_models import TEXTS, BiasedBackend, bias_of, write_model

if TYPE_CHECKING:
    from collections.abc import Iterator
    from pathlib import Path

ROWS = [{"id": doc_id, "text": text} for doc_id, text in TEXTS.items()]


@pytest.fixture
def backend() -> str:
    """Give the name of a backend that serves any folder."""
    return BiasedBackend().name


@pytest.fixture
def store(tmp_path: Path, backend: str) -> Iterator[vs.Database]:
    """Give a store without vectors and with two tenants, each of which has its own model."""
    with vs.open(tmp_path / "db", embed=None, rerank=None, backend=backend) as db:
        for bias, name in enumerate(("acme", "globex"), 1):
            db.tenant(name).add(ROWS)
            db.tenant(name).register_model("own", write_model(tmp_path / name, bias), "cross-encoder")
        yield db


def test_a_tenants_models_go_with_it_when_it_is_copied(store: vs.Database, tmp_path: Path, backend: str) -> None:
    """The copy is a store of its own, which has them as its own, and nobody else's."""
    store.tenant("acme").snapshot(tmp_path / "copy")
    store.remove_tenant("acme")
    with vs.open(tmp_path / "copy", rerank=None, backend=backend) as copy:
        assert [(model.tenant, model.name) for model in copy.registered_models(all_tenants=True)] == [("", "own")]
        assert (copy.tenants(), len(list((tmp_path / "copy" / "models").iterdir()))) == ((), 1)
        assert bias_of(copy.search("apple", rerank="own", on_rerank_error="raise")) == 1
        assert copy.verify().ok


@pytest.mark.models
@pytest.mark.parametrize("owner", ["acme", "the store"])
def test_a_copied_tenant_can_be_searched_when_its_embedder_is_registered(
    tmp_path: Path, owner: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Its own goes with it, and so does the store's that it uses; it can't be forgotten in the copy either."""
    monkeypatch.chdir(tmp_path)
    with vs.open("db", embed=None, rerank=None, backend="onnx") as db:
        user = db.tenant("acme") if owner == "acme" else db
        user.register_model("words", DEFAULT_EMBEDDER, "embedder")
        user.reindex(embed="words")
        acme = db.tenant("acme")
        acme.add([{"id": "a", "text": "refund policy"}, {"id": "b", "text": "shipping takes a week"}])
        acme.snapshot(tmp_path / "copy")
    (tmp_path / "db").rename(tmp_path / "gone")
    for _ in range(2):
        with vs.open(tmp_path / "copy", rerank=None, backend="onnx") as copy:
            assert copy.search("money back", mode="dense")[0].id == "a"
            (model,) = copy.registered_models()
            with pytest.raises(VectorSearchError, match="has embedded the documents"):
                copy.unregister_model(model.name)


@pytest.mark.models
def test_a_tenants_embedder_is_found_when_its_store_has_moved(tmp_path: Path) -> None:
    """Also if it was the store's, which has another by now: the copy in the store counts, wherever that lies."""
    with vs.open(tmp_path / "db", embed=None, rerank=None, backend="onnx") as db:
        db.register_model("words", DEFAULT_EMBEDDER, "embedder")
        db.reindex(embed="words")
        db.tenant("acme").add([{"id": "a", "text": "refund policy"}])
        db.reindex(embed="paraphrase-MiniLM-L3-v2")
    (tmp_path / "db").rename(tmp_path / "moved")
    with vs.open(tmp_path / "moved", rerank=None, backend="onnx") as moved:
        assert moved.tenant("acme").search("money back", mode="dense")[0].id == "a"
        with pytest.raises(VectorSearchError, match="has embedded the documents of tenant acme"):
            moved.unregister_model("words")


def test_nobody_is_in_a_copy_when_he_was_removed_meanwhile(
    store: vs.Database, tmp_path: Path, backend: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Neither documents nor a name are left of a tenant that goes while the store is copied; the others are whole."""
    copy_files = Keeper.copy_files

    def remove_first(keeper: Keeper[object], folder: Path) -> None:
        if folder.name.startswith("acme") and any(tenant.name == "globex" for tenant in store.tenants()):
            store.remove_tenant("globex")
        copy_files(keeper, folder)

    monkeypatch.setattr(Keeper, "copy_files", remove_first)
    store.snapshot(tmp_path / "copy")
    assert [row.name for row in Registry(tmp_path / "copy").tenants()] == ["acme"]
    with vs.open(tmp_path / "copy", rerank=None, backend=backend) as copy:
        assert [path.name for path in (tmp_path / "copy" / "tenants").iterdir()] == ["acme"]
        assert bias_of(copy.search("apple", rerank="own", on_rerank_error="raise", tenant="acme")) == 1
        assert copy.verify().ok


def test_a_copy_holds_what_is_registered_when_other_files_lie_beside(
    store: vs.Database, tmp_path: Path, backend: str
) -> None:
    """What another process has half copied isn't taken along; what is missing is told, and the rest is copied."""
    models = tmp_path / "db" / "models"
    (models / "0123.unfinished").mkdir()
    store.snapshot(tmp_path / "copy")
    assert len(list((tmp_path / "copy" / "models").iterdir())) == 2
    next(models.glob("*/tokenizer.json")).parent.rename(models / "elsewhere")
    with pytest.raises(StoreError, match=r"'.*other' is written, but without models: the files of .* are missing"):
        store.snapshot(tmp_path / "other")
    assert len(list((tmp_path / "other" / "models").iterdir())) == 1
    with vs.open(tmp_path / "other", rerank=None, backend=backend) as copy:
        assert [fault.part for fault in copy.verify().faults] == ["models"]


@pytest.mark.parametrize("name", ["", "acme"])
def test_a_snapshot_names_a_model_when_its_files_are_damaged(store: vs.Database, tmp_path: Path, name: str) -> None:
    """All is copied as it is, the store's and a tenant's, and who takes the snapshot learns what is wrong with it."""
    acme = store.tenant("acme")
    (acme.find_reranker("own").folder / "model.safetensors").write_text("9")
    with pytest.raises(StoreError, match=r"'.*copy' is written, but without models: the files of .* are damaged"):
        (acme if name else store).snapshot(tmp_path / "copy")
    assert len(list((tmp_path / "copy" / "models").iterdir())) == (1 if name else 2)


def test_no_copy_is_left_when_it_can_not_be_written(
    store: vs.Database, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A full disk is no fault of a tenant's: the copy would lack whatever comes after."""
    copy_files = Keeper.copy_files

    def run_out(keeper: Keeper[object], folder: Path) -> None:
        if folder.name.startswith("acme"):
            raise OSError(errno.ENOSPC, "No space left on device")
        copy_files(keeper, folder)

    monkeypatch.setattr(Keeper, "copy_files", run_out)
    with pytest.raises(StorageFull):
        store.snapshot(tmp_path / "copy")
    assert not list(tmp_path.glob("copy*"))


@pytest.mark.parametrize("name", ["acme", "globex"])
def test_a_damaged_copy_is_replaced_when_its_model_is_registered_again(
    store: vs.Database, tmp_path: Path, name: str
) -> None:
    """By whoever registers it: the model is then whole for everybody, and what is loaded goes on meanwhile."""
    acme, user = store.tenant("acme"), store.tenant(name)
    assert bias_of(acme.search("apple", rerank="own")) == 1
    copy = acme.find_reranker("own").folder
    (copy / "model.safetensors").write_text("9")
    (copy / "more").touch()
    assert [fault.part for fault in store.verify().faults] == ["models"]
    user.register_model("again", tmp_path / "acme", "cross-encoder")
    assert store.verify().ok
    assert not (copy / "more").exists()
    assert len(list(copy.parent.iterdir())) == 2
    assert bias_of(acme.search("apple", rerank="own")) == bias_of(user.search("apple", rerank="again")) == 1


def test_no_new_model_loses_its_files_when_others_are_swept(
    store: vs.Database, monkeypatch: pytest.MonkeyPatch
) -> None:
    """What is registered is read while nothing can be copied and registered: none is missing from what is kept."""
    models, lock, held = Registry.models, store._registration._files._lock, []

    def watched(registry: Registry, tenant: str | None = None) -> tuple[ModelRow, ...]:
        if tenant is None:
            held.append(lock.locked())
        return models(registry, tenant)

    monkeypatch.setattr(Registry, "models", watched)
    store.tenant("acme").unregister_model("own")
    store.remove_tenant("acme")
    assert held == [True, True]
