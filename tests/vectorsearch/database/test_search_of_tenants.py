"""`tenant=` names whose database a search is of, and several queries are checked before any is searched for."""

from __future__ import annotations

import asyncio
from typing import TYPE_CHECKING, Any

import pytest

from vectorsearch.errors import EmptyQuery, InvalidInput, UnknownTenant

from ..conftest import EMBEDDER, fake_backend

if TYPE_CHECKING:
    from pathlib import Path

    from ..conftest import OpenDatabase


def test_search_is_of_the_tenant_that_is_named(open_database: OpenDatabase, tmp_path: Path) -> None:
    """Each way to search finds a tenant's documents, and only those; without a name it is the root's own."""
    db = open_database(tmp_path / "db")
    db.add([{"id": "root", "text": "alpha"}])
    db.tenant("acme").add([{"id": "theirs", "text": "alpha"}])
    for tenant, doc_id in (("acme", "theirs"), (None, "root")):
        found = [
            db.search("alpha", tenant=tenant),
            asyncio.run(db.asearch("alpha", tenant=tenant)),
            *db.search_many(["alpha"], tenant=tenant),
            db.explain("alpha", tenant=tenant, analyze=True).ran,
        ]
        assert [[hit.id for hit in result] for result in found] == [[doc_id]] * 4
        assert db.explain("alpha", tenant=tenant).plan.documents == 1


def test_tenant_is_found_when_the_store_was_opened_again(open_database: OpenDatabase, tmp_path: Path) -> None:
    """D13: a tenant that isn't open yet is opened; one that isn't there is an error, which names no other."""
    with open_database(tmp_path / "db") as db:
        db.tenant("acme").add([{"id": "theirs", "text": "alpha"}])
    db = open_database(tmp_path / "db")
    assert db.search("alpha", tenant="acme")[0].id == "theirs"
    for name in ("nobody", "", "../acme"):
        with pytest.raises(UnknownTenant, match="there is no tenant") as told:
            db.search("alpha", tenant=name)
        assert "acme" not in str(told.value).replace(name, "")
    assert [info.name for info in db.tenants()] == ["acme"]
    with pytest.raises(InvalidInput, match="'acme' is a tenant itself"):
        db.tenant("acme").search("alpha", tenant="acme")


@pytest.mark.parametrize(
    ("queries", "error", "message"),
    [
        ("alpha", InvalidInput, "queries is 'alpha': give a list"),
        (None, InvalidInput, "queries is None"),
        (["alpha", None], EmptyQuery, "the query is empty"),
        (["alpha", " "], EmptyQuery, "the query is empty"),
        (["alpha", 3], InvalidInput, "the query is a int, not text"),
    ],
)
def test_queries_are_refused_before_any_is_searched_for(
    open_database: OpenDatabase, queries: Any, error: type[Exception], message: str
) -> None:
    """One query among many that can't be used is told at once: nothing is encoded for the others."""
    fake = fake_backend()
    db = open_database(fake=fake, embed=EMBEDDER)
    with pytest.raises(error, match=message):
        db.search_many(queries)
    assert fake.loaded == 0


def test_many_queries_may_come_from_a_generator(open_database: OpenDatabase) -> None:
    """Queries are listed, whatever they come from, and none gives no results."""
    db = open_database()
    db.add([{"id": "a", "text": "alpha"}, {"id": "b", "text": "beta"}])
    assert [result[0].id for result in db.search_many(word for word in ("beta", "alpha"))] == ["b", "a"]
    assert db.search_many(()) == []
