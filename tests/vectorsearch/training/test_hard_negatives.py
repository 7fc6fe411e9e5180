"""Lists for training: what a query's judgments and a database's hits become."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import pytest

import vectorsearch as vs
from backends.errors import InvalidInput
from vectorsearch.evaluation.collecting.topics import Topics
from vectorsearch.training.hard_negatives import LOGIT, MiningPlan, find_hits, split, training_lists, validation_lists

if TYPE_CHECKING:
    from collections.abc import Iterator

QUERIES = {"q": "csv reader"}
QRELS = {"q": {"wanted": 1, "far": 2, "gone": 1, "rejected": 0}}


@pytest.fixture
def db() -> Iterator[vs.Database]:
    with vs.open(embed=None) as database:
        database.add([{"id": "wanted", "text": "a csv reader"}, {"id": "far", "title": "Far", "text": "no such words"}])
        database.add([{"id": "rejected", "text": "csv reader, judged not relevant"}])
        database.add([{"id": f"near{i}", "text": f"csv reader number {i}"} for i in range(6)])
        yield database


def lists(db: vs.Database, **options: Any) -> list[Any]:
    found = [hits for _, hits in find_hits(db, Topics(QUERIES, QRELS), ["q"])]
    return training_lists(db, found, MiningPlan(**options), seed=0)


def test_relevant_texts_come_with_hits_that_nobody_judged_relevant(db: vs.Database) -> None:
    """Each relevant document that is stored, found or not, gets a list; no list holds a relevant one as a negative."""
    made = lists(db, negatives=3)
    assert {each.texts[0] for each in made} == {"a csv reader", "Far no such words"}
    for each in made:
        assert each.query == "csv reader"
        assert each.targets == (LOGIT, -LOGIT, -LOGIT, -LOGIT)
        assert not {"a csv reader", "Far no such words"} & set(each.texts[1:])
        assert len(set(each.texts)) == 4


def test_judged_negatives_come_first_when_there_are_some(db: vs.Database) -> None:
    """A hit that somebody judged not relevant is in every list, before others are drawn."""
    assert [each.texts[1] for each in lists(db, negatives=1)] == ["csv reader, judged not relevant"] * 2


def test_negatives_come_from_the_best_hits_alone(db: vs.Database) -> None:
    """Below `depth` nothing is drawn."""
    best = [hit.text for hit in db.search("csv reader", k=3).hits]
    assert {text for each in lists(db, negatives=3, depth=3) for text in each.texts[1:]} <= set(best)


def test_draws_are_the_same_when_the_seed_is(db: vs.Database) -> None:
    """The same seed draws the same negatives."""
    assert lists(db, negatives=2) == lists(db, negatives=2)


def test_validation_lists_hold_all_relevant_texts_and_all_other_hits(db: vs.Database) -> None:
    """What ends a training ranks the whole head of a query's hits."""
    found = [hits for _, hits in find_hits(db, Topics(QUERIES, QRELS), ["q"])]
    (made,) = validation_lists(db, found, MiningPlan())
    assert made.targets == (LOGIT,) * 2 + (-LOGIT,) * 7
    assert set(made.texts[:2]) == {"a csv reader", "Far no such words"}


def test_equal_queries_stay_together_when_they_are_split() -> None:
    """A text that is asked under several ids is never both learned from and held out, and each id comes once."""
    queries = {f"{copy}{i}": f"text {i}" for copy in "ab" for i in range(50)}
    parts = split(queries, MiningPlan(held_out=0.2, validation=0.1), seed=0)
    texts = [{queries[each] for each in part} for part in (parts.train, parts.validation, parts.held_out)]
    assert [len(each) for each in texts] == [35, 5, 10]
    assert sorted([*parts.train, *parts.validation, *parts.held_out]) == sorted(queries)
    assert not texts[0] & texts[1] | texts[1] & texts[2] | texts[0] & texts[2]
    assert split(dict(reversed(queries.items())), MiningPlan(), seed=0).held_out != ()
    assert set(split(dict(reversed(queries.items())), MiningPlan(), seed=0).held_out) == set(parts.held_out)
    assert set(split(queries, MiningPlan(), seed=1).held_out) != set(parts.held_out)


@pytest.mark.parametrize("options", [{"negatives": 0}, {"negatives": 5, "depth": 4}, {"held_out": 0.95}])
def test_plans_that_leave_nothing_are_refused(options: dict[str, Any]) -> None:
    """A plan says at once what can't be done."""
    with pytest.raises(InvalidInput):
        MiningPlan(**options)
