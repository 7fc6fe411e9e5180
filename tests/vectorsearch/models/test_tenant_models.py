"""The models that tenants register: whose they are, what they share, and what refuses them."""

from __future__ import annotations

import os
import shutil
from pathlib import Path

import pytest

import vectorsearch as vs
from backends.catalogue import catalogue
from backends.errors import CannotServe, InvalidInput, UnknownModel, VectorSearchError
from vectorsearch.config import DEFAULT_EMBEDDER, DEFAULT_RERANKER
from vectorsearch.database.tenants import UnknownTenant
from vectorsearch.errors import ReadOnlyDatabase

from ..biased_models import resident


def digests(folder: Path) -> list[str]:
    """Return the names of the copied models' folders."""
    return sorted(path.name for path in (folder / "models").glob("*"))


@pytest.mark.models
def test_one_instance_serves_when_tenants_register_the_same_weights(store: vs.Database, tmp_path: Path) -> None:
    """It is loaded and copied once, charged in equal parts, seen by each as its own, and freed with the last."""
    acme, globex = store.tenant("acme"), store.tenant("globex")
    for database in (acme, globex):
        database.add([{"id": "a", "text": "refund policy"}, {"id": "b", "text": "shipping takes a week"}])
        database.register_model("own", DEFAULT_RERANKER, "cross-encoder", ttl_s=300)
        assert database.search("refund", rerank="own", on_rerank_error="raise")[0].id == "a"
    (model,) = store.models().models
    assert [str(ref) for ref in model.refs] == ["acme/own", "globex/own"]
    assert (model.loads, len(digests(tmp_path / "db"))) == (1, 1)
    seen = acme.models()
    assert [str(ref) for ref in seen.models[0].refs] == ["acme/own"]
    assert seen.charged_nbytes == seen.models[0].charged_nbytes
    assert abs(2 * seen.charged_nbytes - model.charged_nbytes) <= 1
    acme.unregister_model("own")
    with pytest.raises(UnknownModel):
        acme.search("refund", rerank="own")
    assert globex.search("refund", rerank="own", on_rerank_error="raise")[0].id == "a"
    assert len(digests(tmp_path / "db")) == 1
    store.remove_tenant("globex")
    assert (resident(store), digests(tmp_path / "db")) == ([], [])
    assert [tenant.name for tenant in store.tenants()] == ["acme"]
    assert not (tmp_path / "db" / "tenants" / "globex").exists()


@pytest.mark.models
def test_a_name_is_refused_when_it_already_means_another_model_here(tmp_path: Path) -> None:
    """A database whose embedder's name meant another model could not be opened again, nor one that ranks rerank."""
    changed = tmp_path / "changed"
    shutil.copytree(catalogue.pull(DEFAULT_EMBEDDER).folder, changed)
    (changed / "sentence_bert_config.json").write_text('{"max_seq_length": 64}')
    with vs.open(tmp_path / "db", backend="onnx") as db:
        for name, source, task, said in (
            (DEFAULT_EMBEDDER, changed, "embed", "embeds the documents here"),
            (DEFAULT_EMBEDDER, DEFAULT_RERANKER, "cross-encoder", "a public model for 'embed'"),
            (DEFAULT_RERANKER, DEFAULT_EMBEDDER, "embed", "a public model for 'cross-encode'"),
            ("default", DEFAULT_RERANKER, "cross-encoder", "a meaning of its own"),
            ("none", DEFAULT_RERANKER, "cross-encoder", "a meaning of its own"),
        ):
            with pytest.raises(InvalidInput, match=said):
                db.register_model(name, source, task)
        assert digests(tmp_path / "db") == []
        db.register_model("other", changed, "embed")
    with vs.open(tmp_path / "db", backend="onnx") as db:
        assert [model.name for model in db.registered_models()] == ["other"]


@pytest.mark.models
def test_a_registered_model_is_no_others_when_names_are_tried(store: vs.Database) -> None:
    """A name means what this tenant registered, else what the catalogue has; another tenant's is unknown."""
    acme, globex = store.tenant("acme"), store.tenant("globex")
    acme.register_model("secret-rerank", DEFAULT_RERANKER, "cross-encoder")
    globex.add([{"id": "a", "text": "apple"}])
    for database in (globex, store):
        with pytest.raises(UnknownModel) as error:
            database.search("apple", rerank="secret-rerank")
        assert "acme" not in str(error.value)
        assert database.registered_models() == ()
    assert globex.models().models == ()


@pytest.mark.models
def test_registered_models_are_there_when_the_store_is_opened_again(tmp_path: Path) -> None:
    """Their files lie in the store, and an embedder is found by its name wherever the store has gone."""
    with vs.open(tmp_path / "db", embed=None, rerank=None, backend="onnx") as db:
        acme = db.tenant("acme")
        acme.register_model("words", DEFAULT_EMBEDDER, "embedder", load_policy="eager")
        acme.close()
        acme = db.tenant("acme")
        with pytest.raises(InvalidInput, match="'cross-encode'"):
            acme.register_model("words", DEFAULT_RERANKER, "embedder")
        db.tenant("globex")
        db.snapshot(tmp_path / "copy")
    with vs.open(tmp_path / "copy", backend="onnx") as copy:
        acme = copy.tenant("acme")
        (model,) = acme.registered_models()
        assert (model.name, model.task, model.source, str(model.config.load_policy)) == (
            "words",
            "embed",
            DEFAULT_EMBEDDER,
            "eager",
        )
        assert [tenant.name for tenant in copy.tenants()] == ["acme", "globex"]


@pytest.mark.parametrize(
    ("name", "source", "task", "error"),
    [
        ("", DEFAULT_RERANKER, "cross-encoder", InvalidInput),
        ("../x", DEFAULT_RERANKER, "cross-encoder", InvalidInput),
        ("x", DEFAULT_RERANKER, "classify", InvalidInput),
        ("x", "no-such-model", "cross-encoder", UnknownModel),
    ],
)
def test_nothing_is_registered_when_the_request_is_wrong(
    store: vs.Database, name: str, source: str, task: str, error: type[VectorSearchError]
) -> None:
    """The message names what is wrong, and neither files nor rows are left."""
    with pytest.raises(error):
        store.register_model(name, source, task)
    with pytest.raises(InvalidInput, match="load_policy 'soon'"):
        store.register_model("x", DEFAULT_RERANKER, "cross-encoder", load_policy="soon")
    assert store.registered_models() == ()
    assert digests(Path(str(store.info()["path"]))) == []


@pytest.mark.models
def test_nothing_is_registered_when_a_model_is_too_large(store: vs.Database, tmp_path: Path) -> None:
    """The message says what it needs and what the quota is."""
    acme = store.tenant("acme", quota_nbytes=1_000_000)
    with pytest.raises(InvalidInput, match=r"needs \d+ MiB, and the quota is 1 MiB: raise the quota"):
        acme.register_model("own", DEFAULT_RERANKER, "cross-encoder")
    assert digests(tmp_path / "db") == []
    assert store.tenant("acme", quota_nbytes=500_000_000) is acme
    assert acme.register_model("own", DEFAULT_RERANKER, "cross-encoder").tenant == "acme"


@pytest.mark.models
def test_a_model_that_changed_is_refused_when_it_is_loaded(store: vs.Database, tmp_path: Path) -> None:
    """The store's copy is checked at each load, and the message says what to do."""
    store.add([{"id": "a", "text": "apple"}])
    store.register_model("own", DEFAULT_RERANKER, "cross-encoder", ttl_s=0)
    tokenizer = tmp_path / "db" / "models" / digests(tmp_path / "db")[0] / "tokenizer.json"
    tokenizer.write_text(tokenizer.read_text().replace("apple", "appel"))
    with pytest.raises((VectorSearchError, CannotServe), match="changed since"):
        store.search("apple", rerank="own", on_rerank_error="raise")


@pytest.mark.models
def test_a_changed_file_is_refused_when_its_size_and_time_are_as_before(store: vs.Database, tmp_path: Path) -> None:
    """The whole file is compared at each load, not what a folder says of it."""
    store.add([{"id": "a", "text": "apple"}])
    store.register_model("own", DEFAULT_RERANKER, "cross-encoder", ttl_s=0)
    weights = tmp_path / "db" / "models" / digests(tmp_path / "db")[0] / "model.onnx"
    stat = weights.stat()
    with weights.open("r+b") as file:
        file.seek(stat.st_size // 2)
        file.write(b"\0" * 64)
    os.utime(weights, ns=(stat.st_atime_ns, stat.st_mtime_ns))
    with pytest.raises(VectorSearchError, match="changed since"):
        store.search("apple", rerank="own", on_rerank_error="raise")


@pytest.mark.models
def test_one_config_is_in_force_when_two_names_mean_one_model(
    store: vs.Database, monkeypatch: pytest.MonkeyPatch
) -> None:
    """It is what protects most of what the names ask for; a name that goes, or fails, takes its part along."""
    store.register_model("one", DEFAULT_RERANKER, "cross-encoder", pinned=True)
    store.register_model("two", DEFAULT_RERANKER, "cross-encoder", eviction_rank=5)
    manager = store._models.manager

    def in_force() -> tuple[str, bool, int]:
        (ref,) = manager.registered()
        config = manager._names.configs[ref]
        return ref.name, config.pinned, config.eviction_rank

    assert in_force()[1:] == (True, 0)
    store.unregister_model("two")
    assert in_force() == ("one", True, 0)
    monkeypatch.setattr(
        "vectorsearch.models.registration.Registration._try", lambda *_: (_ for _ in ()).throw(OSError("x"))
    )
    with pytest.raises(OSError, match="x"):
        store.register_model("one", DEFAULT_RERANKER, "cross-encoder", eviction_rank=7)
    assert in_force() == ("one", True, 0)
    assert store.registered_models()[0].config.pinned


def test_nothing_is_registered_when_a_store_is_open_to_read(tmp_path: Path) -> None:
    """A reader has tenants to search, and changes nothing of another process's store."""
    with vs.open(tmp_path / "db", embed=None, rerank=None) as db:
        db.tenant("acme").add([{"id": "a", "text": "apple"}])
        with vs.open(tmp_path / "db", read_only=True) as reader:
            acme = reader.tenant("acme")
            assert acme.search("apple")[0].id == "a"
            for call in (
                lambda: acme.register_model("own", DEFAULT_RERANKER, "cross-encoder"),
                lambda: acme.unregister_model("own"),
                lambda: reader.remove_tenant("acme"),
            ):
                with pytest.raises(ReadOnlyDatabase):
                    call()
            with pytest.raises(UnknownTenant):
                reader.tenant("globex")
    assert digests(tmp_path / "db") == []


@pytest.mark.models
def test_all_models_are_listed_when_the_store_is_asked_for_them(store: vs.Database) -> None:
    """The store names every tenant's models beside its own; a tenant can't ask."""
    acme = store.tenant("acme")
    store.register_model("own", DEFAULT_RERANKER, "cross-encoder")
    acme.register_model("own", DEFAULT_RERANKER, "cross-encoder")
    assert [(m.tenant, m.name) for m in store.registered_models(all_tenants=True)] == [("", "own"), ("acme", "own")]
    assert [m.tenant for m in store.registered_models()] == [""]
    with pytest.raises(InvalidInput, match="is a tenant itself"):
        acme.registered_models(all_tenants=True)


@pytest.mark.models
def test_a_models_fault_is_told_when_the_store_is_verified(store: vs.Database, tmp_path: Path) -> None:
    """Registered models' files are read whole: a changed byte is a fault that can't be mended."""
    store.tenant("acme").register_model("own", DEFAULT_RERANKER, "cross-encoder")
    assert store.verify().ok
    tokenizer = tmp_path / "db" / "models" / digests(tmp_path / "db")[0] / "tokenizer.json"
    tokenizer.write_text(tokenizer.read_text().replace("apple", "appel"))
    (fault,) = store.verify().faults
    assert (fault.part, fault.mendable, "'own'" in fault.message) == ("models", False, True)
