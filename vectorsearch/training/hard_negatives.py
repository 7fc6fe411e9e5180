"""Lists to train and measure a reranker with: a query's judged documents, and what the index finds beside them.

What a first stage ranks high and nobody has judged relevant is what a reranker will have to tell apart: hard negatives,
as in Gao, Dai and Callan, "Rethink Training of BERT Rerankers in Multi-Stage Retrieval Pipeline", ECIR 2021.
"""

from __future__ import annotations

import hashlib
import random
from dataclasses import dataclass
from typing import TYPE_CHECKING

from backends.errors import InvalidInput
from rerank.training.train_plan import ScoredList

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator, Mapping, Sequence

    from vectorsearch.database.database import Database
    from vectorsearch.evaluation.collecting.topics import Judged

LOGIT = 5.0  # of a relevant text, and below zero of another: their softmax is nearly all or nothing
_RELEVANT_TEXTS = 4  # lists of one query, so that one with many relevant documents doesn't outweigh the others
_RANKED = 100  # hits of a query that are measured


@dataclass(frozen=True, slots=True)
class MiningPlan:
    """How lists are made: `negatives` beside each relevant text, drawn from the best `depth` hits of a query.

    `held_out` is the share of the queries to decide by, `validation` the share to end the training by.

    Raises:
        InvalidInput: a value is out of its range.
    """

    negatives: int = 7
    depth: int = 30
    held_out: float = 0.2
    validation: float = 0.1

    def __post_init__(self) -> None:
        if not 1 <= self.negatives <= self.depth:
            raise InvalidInput(f"{self.negatives} negatives of {self.depth} hits: take one at least, and no more")
        if not (self.held_out > 0 and self.validation > 0 and self.held_out + self.validation < 1):
            raise InvalidInput(
                f"shares {self.held_out} to decide by and {self.validation} to end by leave nothing to learn from: "
                "both must be above 0, and below 1 together"
            )


@dataclass(frozen=True, slots=True)
class JudgedHits:
    """What the first stage finds for a query, best first, with the texts that a reranker reads, and the judgments."""

    query: str
    doc_ids: tuple[str, ...]
    texts: tuple[str, ...]
    grades: Mapping[str, int]


@dataclass(frozen=True, slots=True)
class Split:
    """Query ids by purpose: to learn from, to end the training by, and to decide by, seen by neither."""

    train: tuple[str, ...]
    validation: tuple[str, ...]
    held_out: tuple[str, ...]


def split(queries: Mapping[str, str], plan: MiningPlan, *, seed: int) -> Split:
    """Split queries at random by their texts: equal ones stay together, whatever their ids and the file's order."""
    texts = sorted({*queries.values()}, key=lambda text: hashlib.sha256(f"{seed}:{text}".encode()).digest())
    decides, ends = round(plan.held_out * len(texts)), round((plan.held_out + plan.validation) * len(texts))
    place = {text: 0 if at < decides else 1 if at < ends else 2 for at, text in enumerate(texts)}
    parts: tuple[list[str], list[str], list[str]] = ([], [], [])
    for query_id, text in queries.items():
        parts[place[text]].append(query_id)
    return Split(train=tuple(parts[2]), validation=tuple(parts[1]), held_out=tuple(parts[0]))


def find_hits(db: Database, judged: Judged, query_ids: Iterable[str]) -> Iterator[tuple[str, JudgedHits]]:
    """Yield each query's id and what the database finds for it, without a reranker."""
    for query_id in query_ids:
        query = judged.queries[query_id]
        hits = db.search(query, k=_RANKED, mode="auto", rerank=False).hits
        yield (
            query_id,
            JudgedHits(query, tuple(h.id for h in hits), tuple(h.full_text for h in hits), judged.qrels[query_id]),
        )


def training_lists(db: Database, found: Iterable[JudgedHits], plan: MiningPlan, *, seed: int) -> list[ScoredList]:
    """Return lists of one relevant text and some hard negatives.

    What was judged not relevant is taken first. Of a query's relevant documents, found or not, at most four are taken.
    """
    lists = []
    for each in found:
        rng = random.Random(f"{seed}:{each.query}")  # noqa: S311 -- no secret
        pool = _not_relevant(each, plan.depth)
        relevant = _relevant_texts(db, each)
        for text in rng.sample(relevant, min(_RELEVANT_TEXTS, len(relevant))):
            others = _draw(pool, plan.negatives, rng)
            if others:
                lists.append(ScoredList(each.query, (text, *others), (LOGIT, *[-LOGIT] * len(others))))
    return lists


def validation_lists(db: Database, found: Iterable[JudgedHits], plan: MiningPlan) -> list[ScoredList]:
    """Return lists of all relevant texts and the best hits that aren't."""
    lists = []
    for each in found:
        relevant = _relevant_texts(db, each)
        others = [text for text, _ in _not_relevant(each, plan.depth)]
        if relevant and others:
            targets = (*[LOGIT] * len(relevant), *[-LOGIT] * len(others))
            lists.append(ScoredList(each.query, (*relevant, *others), targets))
    return lists


def _not_relevant(each: JudgedHits, depth: int) -> list[tuple[str, bool]]:
    """Return the best hits that aren't relevant, and whether somebody has judged that."""
    head = zip(each.doc_ids[:depth], each.texts[:depth], strict=True)
    return [(text, doc_id in each.grades) for doc_id, text in head if each.grades.get(doc_id, 0) <= 0]


def _relevant_texts(db: Database, each: JudgedHits) -> list[str]:
    known = dict(zip(each.doc_ids, each.texts, strict=True))
    found = []
    for doc_id, grade in each.grades.items():
        if grade > 0:
            document = None if doc_id in known else db.get(doc_id)
            text = known.get(doc_id) or (document.full_text if document else "")
            found += [text] if text else []
    return found


def _draw(pool: Sequence[tuple[str, bool]], wanted: int, rng: random.Random) -> list[str]:
    judged = [text for text, is_judged in pool if is_judged]
    others = [text for text, is_judged in pool if not is_judged]
    drawn = rng.sample(judged, min(wanted, len(judged)))
    return drawn + rng.sample(others, min(wanted - len(drawn), len(others)))
