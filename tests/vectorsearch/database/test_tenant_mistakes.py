"""Tenants and registered models, asked for wrongly: too late, or with what is no name, number or folder."""

from __future__ import annotations

import math
from typing import TYPE_CHECKING, Any

import numpy as np
import pytest

import vectorsearch as vs
from backends.errors import InvalidInput, UnknownModel
from lifecycle import ModelManager
from vectorsearch.collection.storage.registry import FILE_NAME, Registry
from vectorsearch.database.tenants import UnknownTenant
from vectorsearch.errors import DatabaseClosed

from ..biased_models import TEXTS, BiasedBackend, bias_of, write_model

if TYPE_CHECKING:
    from collections.abc import Iterator
    from pathlib import Path


@pytest.fixture
def store(tmp_path: Path) -> Iterator[vs.Database]:
    """Give a store without vectors that has a tenant."""
    with vs.open(tmp_path / "db", embed=None, rerank=None, backend=BiasedBackend().name) as db:
        db.tenant("acme").add({"id": doc_id, "text": text} for doc_id, text in TEXTS.items())
        yield db


def test_nothing_is_made_or_removed_when_the_store_is_closed(tmp_path: Path) -> None:
    """Another process may have it by then: no tenant is opened, made, found or removed, with a shared manager too."""
    with ModelManager(1_000_000) as manager:
        db = vs.open(tmp_path / "db", embed=None, rerank=None, manager=manager)
        db.tenant("acme")
        db.close()
        for call in (
            lambda: db.tenant("acme"),
            lambda: db.tenant("globex"),
            lambda: db.remove_tenant("acme"),
            lambda: db.search("apple", tenant="acme"),
        ):
            with pytest.raises(DatabaseClosed):
                call()
    assert [path.name for path in (tmp_path / "db" / "tenants").iterdir()] == ["acme"]
    assert [row.name for row in Registry(tmp_path / "db").tenants()] == ["acme"]


def test_a_model_stays_registered_when_it_is_forgotten_too_late(store: vs.Database, tmp_path: Path) -> None:
    """A database that is closed changes nothing of the store."""
    acme = store.tenant("acme")
    acme.register_model("own", write_model(tmp_path / "model", 1), "cross-encoder")
    acme.close()
    for call in (
        lambda: acme.unregister_model("own"),
        lambda: acme.register_model("other", tmp_path / "model", "cross-encoder"),
    ):
        with pytest.raises(DatabaseClosed):
            call()
    assert [model.name for model in store.tenant("acme").registered_models()] == ["own"]
    assert bias_of(store.search("apple", rerank="own", on_rerank_error="raise", tenant="acme")) == 1


@pytest.mark.parametrize(
    ("options", "says"),
    [
        ({"source": None}, "source of model 'own' is None"),
        ({"source": b"folder"}, "source of model 'own' is b'folder'"),
        ({"task": ["cross-encoder"]}, "task .* is unknown"),
        ({"load_policy": ["lazy"]}, "load_policy"),
        ({"pinned": "yes"}, "pinned is 'yes': give True or False"),
        ({"warm_up": 1}, "warm_up is 1: give True or False"),
        ({"eviction_rank": 1.5}, "eviction_rank is 1.5"),
        ({"ttl_s": math.nan}, "ttl_s is nan"),
    ],
)
def test_an_argument_is_named_when_it_is_of_another_kind(
    store: vs.Database, tmp_path: Path, options: dict[str, Any], says: str
) -> None:
    """Nothing is registered."""
    given = {"source": tmp_path, "task": "cross-encoder"} | options
    with pytest.raises(InvalidInput, match=says):
        store.register_model("own", given.pop("source"), given.pop("task"), **given)
    assert store.registered_models() == ()


@pytest.mark.parametrize("name", [["acme"], {}, 3, None, b"acme", ""])
def test_a_name_is_unknown_when_it_is_no_name(store: vs.Database, name: Any) -> None:
    """Whoever searches, removes or forgets by it is told so."""
    if name is not None:  # a search of no tenant is one of the store itself
        with pytest.raises(UnknownTenant):
            store.search("apple", tenant=name)
    with pytest.raises(UnknownTenant):
        store.remove_tenant(name)
    with pytest.raises(UnknownModel):
        store.unregister_model(name)


def test_numbers_are_stored_when_they_are_of_numpy(store: vs.Database, tmp_path: Path) -> None:
    """Sizes and options are numbers of JSON in the store; an endless life is none that ends."""
    store.tenant("acme", quota_nbytes=np.int64(50_000_000), guaranteed_nbytes=np.int32(3))  # type: ignore[arg-type]  # a number all the same
    options: dict[str, Any] = {"eviction_rank": np.int64(2), "min_residency_s": np.float32(0.5), "ttl_s": math.inf}
    store.register_model("own", write_model(tmp_path / "model", 1), "cross-encoder", **options)
    registry = Registry(tmp_path / "db")
    numbers = {"quota_nbytes": 50_000_000, "guaranteed_nbytes": 3}
    assert {name: registry.tenants()[0].settings[name] for name in numbers} == numbers
    config = registry.models()[0].settings["config"]
    assert (config["priority"], config["min_residency_s"], config["ttl_s"]) == (2, 0.5, None)
    assert store.registered_models()[0].config.ttl_s is None
    assert b"Infinity" not in (tmp_path / "db" / FILE_NAME).read_bytes()


def test_a_quota_is_what_the_store_has_when_it_is_asked_for(store: vs.Database) -> None:
    """It can't be set on a tenant's database, where it would neither last nor bound anything."""
    acme = store.tenant("acme", quota_nbytes=5)
    with pytest.raises(AttributeError):
        acme.quota_nbytes = 9  # type: ignore[misc]  # what is tried
    assert (acme.quota_nbytes, store.quota_nbytes) == (5, None)
