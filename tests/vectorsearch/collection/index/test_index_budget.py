"""The memory that the indexes of a store's databases take together: who is closed, and that nobody's search suffers."""

from __future__ import annotations

from concurrent.futures import ThreadPoolExecutor
from typing import TYPE_CHECKING, Any

import numpy as np
import pytest

import vectorsearch as vs
from backends.errors import InvalidInput
from vectorsearch.collection.index.index_budget import IndexBudget

if TYPE_CHECKING:
    from collections.abc import Iterator
    from pathlib import Path

DIM = 16
ROWS = 300
DENSE_NBYTES = ROWS * (4 * DIM + 8 + 1)


class Member:
    """An index that is nothing but a size; `busy` can't be closed."""

    def __init__(self, budget: IndexBudget, nbytes: int, *, busy: bool = False) -> None:
        self.nbytes, self.busy = nbytes, busy
        self.last_use = budget.next_use()
        budget.join(self)

    def release(self) -> bool:
        """Close it."""
        self.nbytes = self.nbytes if self.busy else 0
        return not self.busy


def vectors(seed: int) -> Any:
    """Return float32[ROWS, DIM]."""
    return np.random.default_rng(seed).normal(size=(ROWS, DIM)).astype(np.float32)


def is_open(tenant: vs.Database, kind: str) -> bool:
    """Tell whether an index is open."""
    return "kind" in tenant.info()[kind]


@pytest.fixture
def folder(tmp_path: Path) -> Iterator[Path]:
    """Give a store with three tenants, each with the same ids and other vectors."""
    with vs.open(tmp_path / "db", embed=None) as db:
        for number in range(3):
            given = vectors(number)
            db.tenant(f"t{number}").add(
                {"id": str(row), "text": f"word{number} apple {row}", "vector": given[row]} for row in range(ROWS)
            )
    return tmp_path / "db"


def test_the_least_recently_used_are_closed_first_when_all_are_too_large() -> None:
    """No more than is needed, never the one that asks, nor one that is busy."""
    budget = IndexBudget(10)
    oldest, busy, older, newest = (Member(budget, 4, busy=busy) for busy in (False, True, False, False))
    budget.settle(newest)
    assert [m.nbytes for m in (oldest, busy, older, newest)] == [0, 4, 0, 4]
    oldest.nbytes, oldest.last_use = 2, budget.next_use()
    budget.settle(oldest)
    assert [m.nbytes for m in (oldest, busy, older, newest)] == [2, 4, 0, 4]
    budget.leave(busy)
    large = Member(budget, 100)
    budget.settle(large)
    assert [m.nbytes for m in (oldest, busy, newest, large)] == [0, 4, 0, 100]


def test_nothing_is_closed_when_there_is_no_limit() -> None:
    """None is no limit."""
    budget = IndexBudget()
    first, second = Member(budget, 1 << 40), Member(budget, 1 << 40)
    budget.settle(second)
    assert (first.nbytes, second.nbytes) == (1 << 40, 1 << 40)


def test_idle_tenants_indexes_are_closed_when_they_take_too_much(folder: Path) -> None:
    """With room for two of three dense indexes the one used least recently is closed, and opens when it is used."""
    queries = [vectors(number)[7] for number in range(3)]
    with vs.open(folder, embed=None, index_budget_nbytes=2 * DENSE_NBYTES + 100) as db:
        tenants = [db.tenant(f"t{number}") for number in range(3)]

        def found(number: int) -> str:
            return tenants[number].search(vector=queries[number], mode="dense", k=1)[0].id

        assert [found(number) for number in (0, 1)] == ["7", "7"]
        assert [is_open(tenant, "dense") for tenant in tenants] == [True, True, False]
        assert tenants[1].info()["dense"]["memory_nbytes"] == DENSE_NBYTES
        assert [found(number) for number in (0, 2)] == ["7", "7"]
        assert [is_open(tenant, "dense") for tenant in tenants] == [True, False, True]
        assert tenants[1].info()["dense"] == {"state": "closed while idle"}
        tenants[1].upsert([{"id": "new", "text": "new", "vector": -queries[1]}])
        assert tenants[1].search(vector=-queries[1], mode="dense", k=1)[0].id == "new"
        assert found(1) == "7"


@pytest.mark.parametrize("read_only", [False, True])
def test_no_search_suffers_when_indexes_are_closed_under_it(folder: Path, *, read_only: bool) -> None:
    """With room for nothing, eight threads over three tenants get whole answers, each its own, beside writes."""
    with vs.open(folder, embed=None, index_budget_nbytes=0, read_only=read_only) as db:
        tenants = [db.tenant(f"t{number}") for number in range(3)]
        given = [vectors(number) for number in range(3)]

        def ask(step: int) -> None:
            number, row = step % 3, step % ROWS
            if step % 25 == 0 and not read_only:
                tenants[number].upsert([{"id": "more", "text": "nothing", "vector": -given[number][0]}])
            hits = tenants[number].search("apple", vector=given[number][row], mode="hybrid", k=ROWS)
            assert len(hits) == ROWS
            assert tenants[number].search(vector=given[number][row], mode="dense", k=1)[0].id == str(row)
            assert len(tenants[number].search(f"word{number}", mode="lexical", k=5)) == 5
            assert len(tenants[number].search(f"word{(number + 1) % 3}", mode="lexical", k=5)) == 0

        with ThreadPoolExecutor(8) as pool:
            list(pool.map(ask, range(120)))
        assert sum(is_open(tenant, kind) for tenant in tenants for kind in ("dense", "lexical")) <= 2


def test_a_search_finds_all_when_the_index_is_built_anew_under_it(folder: Path) -> None:
    """An index that a search has in hands is let go of, not emptied: by repair, and by closing the database."""
    with vs.open(folder, embed=None) as db:
        tenant = db.tenant("t0")
        tenant.search("apple", vector=vectors(0)[0], mode="hybrid")
        keepers = (tenant._collection._lexical, tenant._collection._dense)
        lexical, dense = (keeper.current() for keeper in keepers)
        tenant.repair()
        assert keepers[0].current() is not lexical
        later = keepers[0].current()
        tenant.close()
        assert len(lexical.search("apple", ROWS).rows) == ROWS
        assert len(later.search("apple", ROWS).rows) == ROWS
        assert len(dense.search(vectors(0)[0], ROWS).rows) == ROWS


@pytest.mark.parametrize("limit", [-1, True, 0.5, "1 GB"])
def test_a_limit_is_refused_when_it_is_no_number_of_bytes(tmp_path: Path, limit: Any) -> None:
    """The message says what is wanted."""
    with pytest.raises(InvalidInput, match="index_budget_nbytes is"):
        vs.open(tmp_path / "db", embed=None, index_budget_nbytes=limit)
