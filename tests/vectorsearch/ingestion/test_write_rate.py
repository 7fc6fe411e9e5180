"""Which backend embeds what is written: a document now and then never loads the bulk runtime, and a corpus does."""

from __future__ import annotations

import itertools

import pytest

from vectorsearch.ingestion.write_rate import BULK_TOKENS, CHARACTERS_PER_TOKEN, LEAK_TOKENS_PER_S, WriteRate

ALL = BULK_TOKENS * CHARACTERS_PER_TOKEN


class Clock:
    """Stands still until it is told."""

    now = 100.0

    def __call__(self) -> float:
        """Return the time."""
        return self.now


def test_a_document_is_no_bulk_work_when_it_comes_alone() -> None:
    """S7: one of a page, every minute for a day, with the query model in memory."""
    clock = Clock()
    rate = WriteRate(clock)
    for _ in range(1440):
        clock.now += 60
        assert rate.workload(3_000, query_is_resident=True, bulk_is_resident=False) == "query"


def test_small_writes_become_bulk_work_when_they_follow_each_other() -> None:
    """An ingest in batches of a few documents fills the bucket; after a pause it has leaked empty."""
    clock = Clock()
    rate = WriteRate(clock)
    work = [rate.workload(10_000, query_is_resident=True, bulk_is_resident=False) for _ in range(10)]
    assert [kind for kind, _ in itertools.groupby(work)] == ["query", "bulk"]
    clock.now += 2 * ALL / CHARACTERS_PER_TOKEN / LEAK_TOKENS_PER_S
    assert rate.workload(10_000, query_is_resident=True, bulk_is_resident=False) == "query"


def test_a_corpus_is_bulk_work_at_once() -> None:
    """One write that is large enough by itself."""
    assert WriteRate(Clock()).workload(ALL + 4, query_is_resident=True, bulk_is_resident=False) == "bulk"


@pytest.mark.parametrize(
    ("query", "bulk", "expected"),
    [(True, True, "query"), (True, False, "query"), (False, True, "bulk"), (False, False, "query")],
)
def test_a_small_write_takes_the_backend_that_is_loaded(*, query: bool, bulk: bool, expected: str) -> None:
    """Nothing is loaded for it that needn't be, and where nothing is there, the one that loads quickly."""
    assert WriteRate(Clock()).workload(10, query_is_resident=query, bulk_is_resident=bulk) == expected
