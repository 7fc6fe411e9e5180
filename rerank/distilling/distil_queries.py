"""What a distillation asks: the users' own queries, or pseudo-queries that a corpus itself offers.

Pseudo-queries are titles, and sentences drawn from texts, as in the inverse cloze task (Lee, Chang and Toutanova,
"Latent retrieval for weakly supervised open domain question answering", ACL 2019): the passage that a sentence was
taken from is then read without it, so that no model learns to look for copies.
"""

from __future__ import annotations

import re
from dataclasses import dataclass
from typing import TYPE_CHECKING

import numpy as np

if TYPE_CHECKING:
    from collections.abc import Iterable

    from numpy.typing import NDArray

SHORTEST, LONGEST = 20, 200  # characters of a pseudo-query: what people type, and what leaves room for a passage
_SENTENCE_END = re.compile(r"(?<=[.!?])\s+|(?<=[\u3002\uff01\uff1f])|\n+")


@dataclass(frozen=True, slots=True)
class PseudoQuery:
    """A query, and the id of the document that it was taken from; None if it is somebody's own."""

    text: str
    source: str | None = None


@dataclass(frozen=True, slots=True)
class Pool:
    """A query, the texts that a first stage found for it, best first, and the scores that it gave them, float32[n].

    `source` is the position of the text that the query was taken from.
    """

    query: str
    texts: tuple[str, ...]
    scores: NDArray[np.float32]
    source: int | None = None


def draw_queries(documents: Iterable[tuple[str, str, str]], n: int, *, seed: int) -> list[PseudoQuery]:
    """Draw up to n different queries from documents, given as (id, title, text), in random order.

    Each document gives one before any gives a second, a title or a sentence with equal chance. No more than n documents
    are held at a time; the same documents and seed give the same queries.
    """
    rng = np.random.default_rng(seed)
    offers = [_offers(*document, rng) for document in _sample(documents, n, rng)]
    drawn: dict[str, PseudoQuery] = {}
    while offers and len(drawn) < n:
        for offer in offers:
            query = offer.pop()
            if len(drawn) < n:
                drawn.setdefault(query.text, query)
        offers = [offer for offer in offers if offer]
    return list(drawn.values())


def without_query(query: str, title: str, text: str) -> str:
    """Return a document as it is read for a query that was taken from it: title and text, without the query's words."""
    parts = [" ".join(part.split()) for part in (title, text)]
    return " ".join(" ".join("" if part == query else part.replace(query, "") for part in parts).split())


def _sample(documents: Iterable[tuple[str, str, str]], n: int, rng: np.random.Generator) -> list[tuple[str, str, str]]:
    """Return n documents that offer a query, all equally likely, in random order (Vitter 1985, algorithm R)."""
    kept: list[tuple[str, str, str]] = []
    seen = 0
    for document in documents:
        if not _fitting(document[1], document[2]):
            continue
        seen += 1
        if len(kept) < n:
            kept.append(document)
        elif (at := int(rng.integers(seen))) < n:
            kept[at] = document
    return [kept[at] for at in rng.permutation(len(kept))]


def _offers(doc_id: str, title: str, text: str, rng: np.random.Generator) -> list[PseudoQuery]:
    """Return a document's queries, the first one last."""
    headings, sentences = _fitting(title, ""), _fitting("", text)
    shuffled = [sentences[at] for at in rng.permutation(len(sentences))]
    place = len(shuffled) - int(rng.integers(2)) if shuffled else 0
    return [PseudoQuery(query, doc_id) for query in (*shuffled[:place], *headings, *shuffled[place:])]


def _fitting(title: str, text: str) -> list[str]:
    choices = (" ".join(choice.split()) for choice in (title, *_SENTENCE_END.split(text)))
    return [choice for choice in choices if SHORTEST <= len(choice) <= LONGEST]
