"""What a tenant can't reach of another, tried: by names that collide, filters, copies, caches, messages and metrics."""

from __future__ import annotations

from typing import TYPE_CHECKING

import pytest

import vectorsearch as vs
from backends.errors import InvalidInput, UnknownModel, VectorSearchError
from lifecycle import ModelManager
from lifecycle.metrics import MetricsCollector
from vectorsearch.config import DEFAULT_RERANKER
from vectorsearch.errors import DuplicateId

from ..biased_models import TEXTS, BiasedBackend, bias_of, resident, write_model
from ..conftest import MODEL_NBYTES

if TYPE_CHECKING:
    from collections.abc import Iterator
    from pathlib import Path

SECRETS = ("globex", "hush", "zanzibar")  # the other tenant's name, its model's, and a word of its documents


@pytest.fixture
def manager() -> Iterator[ModelManager]:
    """Give a manager with room for two models."""
    with ModelManager(2 * MODEL_NBYTES) as made:
        yield made


@pytest.fixture
def store(tmp_path: Path, manager: ModelManager) -> Iterator[vs.Database]:
    """Give a store that remembers rerank scores, with two tenants that have the same ids."""
    with vs.open(
        tmp_path / "db",
        embed=None,
        rerank=None,
        backend=BiasedBackend().name,
        manager=manager,
        rerank_cache_nbytes=1_000_000,
    ) as db:
        for tenant, more in ((db.tenant("acme"), {}), (db.tenant("globex"), {"of": "zanzibar", "year": 1999})):
            tenant.add({"id": doc_id, "text": text, "metadata": more} for doc_id, text in TEXTS.items())
        yield db


@pytest.fixture
def acme(store: vs.Database) -> vs.Database:
    """Give the tenant that tries."""
    return store.tenant("acme")


@pytest.fixture
def globex(store: vs.Database) -> vs.Database:
    """Give the tenant that is to be let alone."""
    return store.tenant("globex")


def own(database: vs.Database, name: str = "own") -> int:
    """Search with a registered model, and return which one it was."""
    return bias_of(database.search("apple", rerank=name, on_rerank_error="raise"))


def test_each_has_its_own_model_when_names_are_the_same(
    store: vs.Database, acme: vs.Database, globex: vs.Database, tmp_path: Path
) -> None:
    """Also the store itself has one of that name, and one of the catalogue's name is the catalogue's elsewhere."""
    for bias, database in enumerate((store, acme, globex)):
        database.upsert({"id": doc_id, "text": text} for doc_id, text in TEXTS.items())
        database.register_model("own", write_model(tmp_path / f"model{bias}", bias), "cross-encoder")
    assert [own(database) for database in (store, acme, globex, acme, store)] == [0, 1, 2, 1, 0]
    acme.register_model(DEFAULT_RERANKER, write_model(tmp_path / "other", 9), "cross-encoder")
    assert own(acme, DEFAULT_RERANKER) == 9
    plan = globex.explain("apple", rerank=DEFAULT_RERANKER).to_dict()
    assert str(plan).count("globex/" + DEFAULT_RERANKER) > 0
    assert globex._models.resolve(DEFAULT_RERANKER, "cross-encode").digest != acme.registered_models()[0].digest


def test_remembered_scores_are_a_models_own_when_queries_and_texts_are_the_same(
    acme: vs.Database, globex: vs.Database, tmp_path: Path
) -> None:
    """Neither another tenant's scores are taken, nor, of a name that was exchanged, those of the model before."""
    acme.register_model("own", write_model(tmp_path / "model1", 1), "cross-encoder")
    globex.register_model("own", write_model(tmp_path / "model2", 2), "cross-encoder")
    assert [own(acme), own(globex), own(acme)] == [1, 2, 1]
    assert acme.search("apple", rerank="own").stats[-1].cached == len(TEXTS)
    acme.register_model("own", write_model(tmp_path / "model3", 3), "cross-encoder")
    assert own(acme) == 3
    globex.register_model("own", tmp_path / "model3", "cross-encoder")
    assert globex.search("apple", rerank="own").stats[-1].cached == 0


def test_a_filter_finds_nothing_when_only_another_has_the_field(acme: vs.Database, globex: vs.Database) -> None:
    """The field is unknown there, and nothing can be deleted or changed through it."""
    wanted = {"year": {"$exists": True}}
    assert (len(globex.search("apple", filter=wanted)), len(acme.search("apple", filter=wanted))) == (len(TEXTS), 0)
    assert "year" in str(acme.explain("apple", filter=wanted, analyze=True))
    assert acme._collection.unknown_fields(wanted) == ["year"]
    assert (acme.delete(filter=wanted), acme.update_metadata({"a": {"year": 1}})) == (0, 1)
    assert globex.get("a").metadata["year"] == 1999  # type: ignore[union-attr]  # it is there


def test_a_copy_holds_one_tenant_when_a_tenant_is_copied(
    acme: vs.Database, globex: vs.Database, tmp_path: Path
) -> None:
    """No file of it has a byte of another's documents, names or models."""
    globex.register_model("hush", write_model(tmp_path / "hush", 1), "cross-encoder")
    acme.snapshot(tmp_path / "copy")
    for path in (tmp_path / "copy").rglob("*"):
        assert not any(secret.encode() in path.read_bytes() for secret in SECRETS if path.is_file()), path
    with vs.open(tmp_path / "copy", embed=None) as copy:
        assert (copy.count(), copy.tenants(), copy.registered_models()) == (len(TEXTS), (), ())


def test_messages_name_nobody_else_when_a_tenant_fails(
    store: vs.Database, acme: vs.Database, globex: vs.Database, tmp_path: Path
) -> None:
    """Neither errors nor what a search tells of its stages and models have another tenant's names, sizes or ids."""
    store.tenant("globex", guaranteed_nbytes=2 * MODEL_NBYTES)
    for bias, name in enumerate(("hush", "hush-too")):
        globex.register_model(name, write_model(tmp_path / name, bias), "cross-encoder", pinned=True)
    model = write_model(tmp_path / "model", 10)
    told: list[str] = []
    for call in (
        lambda: acme.register_model("own", model, "cross-encoder"),
        lambda: acme.search("apple", rerank="hus"),
        lambda: acme.unregister_model("hus"),
        lambda: acme.add([{"id": "a", "text": "apple"}]),
        lambda: acme.tenant("globe"),
        lambda: acme.search("apple", rerank=model, on_rerank_error="raise"),
        lambda: acme.reindex(embed="hus"),
    ):
        with pytest.raises((VectorSearchError, UnknownModel, DuplicateId, InvalidInput)) as error:
            call()
        told += [str(error.value), *getattr(error.value, "__notes__", [])]
    result = acme.search("apple", rerank=model)
    assert result.degraded == ("rerank:budget",)
    told += [str(result.to_dict()), str(acme.explain("apple", rerank=model, analyze=True)), str(acme.info())]
    told += [str(acme.models().models), str(acme.models().to_dict()), str(acme.models().by_backend)]
    mine = str(tmp_path)
    for text in told:
        assert not any(secret in text.replace(mine, "") for secret in SECRETS), text
    assert acme.models().models[0].refs[0].tenant == "acme"


def test_metrics_are_by_tenant_when_models_have_one_name(
    manager: ModelManager, store: vs.Database, acme: vs.Database, globex: vs.Database, tmp_path: Path
) -> None:
    """What one tenant does is never counted as another's, and what they share is charged to each in part."""
    client = pytest.importorskip("prometheus_client")
    registry = client.CollectorRegistry()
    registry.register(MetricsCollector(manager))
    acme.register_model("own", write_model(tmp_path / "model1", 1), "cross-encoder")
    globex.register_model("own", write_model(tmp_path / "model2", 2), "cross-encoder")

    def hits(tenant: str) -> float:
        labels = {"tenant": tenant, "model": "own", "backend": manager.snapshot().models[0].backend}
        value = registry.get_sample_value("lifecycle_model_hits_total", labels)
        assert value is not None
        return float(value)

    before = hits("acme"), hits("globex")
    for text in ("apple", "pie", "cream"):
        globex.search(text, rerank="own", on_rerank_error="raise")
    assert hits("acme") == before[0]
    assert hits("globex") == before[1] + 3
    charged = {t: registry.get_sample_value("lifecycle_tenant_bytes", {"tenant": t}) for t in ("acme", "globex")}
    assert charged == {"acme": MODEL_NBYTES, "globex": MODEL_NBYTES}
    globex.register_model("own", tmp_path / "model1", "cross-encoder")
    assert len(resident(store)) == 1
    assert registry.get_sample_value("lifecycle_tenant_bytes", {"tenant": "globex"}) == MODEL_NBYTES / 2


def test_a_tenant_sees_its_own_models_when_it_asks_what_is_loaded(
    store: vs.Database, acme: vs.Database, globex: vs.Database, tmp_path: Path
) -> None:
    """The store sees all of them."""
    acme.register_model("own", write_model(tmp_path / "model1", 1), "cross-encoder")
    globex.register_model("own", write_model(tmp_path / "model2", 2), "cross-encoder")
    for tenant in (acme, globex):
        seen = tenant.models()
        assert [ref.tenant for model in seen.models for ref in model.refs] == [tenant.tenant_name]
        assert (seen.to_dict()["tenant"], seen.models[0].leases) == (tenant.tenant_name, 0)
        assert (seen.charged_nbytes, sum(seen.by_backend.values())) == (MODEL_NBYTES, MODEL_NBYTES)
    assert store.models().charged_nbytes == 2 * MODEL_NBYTES


def test_nothing_is_told_of_others_when_a_model_is_shared(
    store: vs.Database, acme: vs.Database, globex: vs.Database, tmp_path: Path
) -> None:
    """What a tenant sees stays as it is, byte for byte, while another uses the instance that both share."""
    for tenant in (acme, globex):
        tenant.register_model("own", write_model(tmp_path / tenant.tenant_name, 1), "cross-encoder")
    before = acme.models().to_dict()
    for text in ("apple", "pie", "cream"):
        globex.search(text, rerank="own", on_rerank_error="raise")
    assert acme.models().to_dict() == before
    (model,) = acme.models().models
    (whole,) = store.models().models
    assert (model.hits, model.hit_ratio, model.charged_nbytes) == (None, None, MODEL_NBYTES // 2)
    assert whole.hits is not None
    assert whole.hits >= 3
