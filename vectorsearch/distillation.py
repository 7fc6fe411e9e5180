"""Distil a first-stage reranker from a database's own documents, and register it if it keeps its teacher's best."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

import numpy as np

from backends import catalogue
from backends.errors import InvalidInput
from rerank.distil import DEFAULT_RECIPE, distil
from rerank.distil_queries import Pool, PseudoQuery, draw_queries, without_query
from vectorsearch import config

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator, Sequence
    from pathlib import Path

    from rerank.distil import Distilled, Recipe
    from vectorsearch.database import Database

DEPTH = 100  # hits that the student is to order
THRESHOLD = 0.6


@dataclass(frozen=True, slots=True)
class Distillation:
    """A distilled reranker; `registered` is the name that it has in the database, None if it wasn't registered.

    `threshold` is the share of the teacher's best ten that it had to keep; `verdict` says in words what came of it.
    """

    distilled: Distilled
    threshold: float
    registered: str | None
    verdict: str


def distil_reranker(
    db: Database,
    folder: Path,
    *,
    teacher: str | Path = config.DEFAULT_RERANKER,
    queries: Sequence[str] = (),
    recipe: Recipe = DEFAULT_RECIPE,
    threshold: float = THRESHOLD,
    register: str | None = None,
    progress: Callable[[str, int, int], None] = lambda _step, _done, _total: None,
) -> Distillation:
    """Distil a small reranker from a large one into `folder`, on a database's own documents, without judgments.

    For `search(rerank=Rerank(cascade=[Rerank(student, depth=100), Rerank(teacher, depth=15)]))`.

    Args:
        db: what it finds for a query is what the student learns to order; no document of it is changed.
        folder: must not be there yet; a model in Hugging Face layout, with an ONNX graph beside the safetensors.
        teacher: a cross-encoder, by name or folder; also one that is registered here.
        queries: the users' own, which need no judgments. Where they are too few, titles and sentences are drawn from
            the documents.
        recipe: how long, how many layers, how many pairs.
        threshold: the share of the teacher's best ten that the student's best `recipe.keep` must hold, on queries that
            were held out, for the student to be registered. It must also hold more of them than the first stage's do.
        register: the name to register it under, if it keeps that.
        progress: called with the step (`searching`, `scoring`, `training`), and how much of how much of it is done.

    Raises:
        InvalidInput: the folder is there, there are too few documents, or an argument can't be used.
        UnknownModel, InvalidModel: there is no such teacher, or it can't be distilled.
        MissingExtra: PyTorch is not installed.
    """
    if not 0.0 <= threshold <= 1.0:
        raise InvalidInput(f"threshold is {threshold!r}: it is a share, from 0 to 1")
    if (documents := db.count()) <= recipe.keep:
        raise InvalidInput(
            f"{documents} documents, and the best {recipe.keep} of each query count: a first stage needs more of them"
        )
    spec = catalogue.ensure(db.find_reranker(teacher))
    asked = _queries(db, queries, recipe)
    distilled = distil(spec, _pools(db, asked), folder, recipe, progress=progress)
    kept, blended = distilled.held_out.kept, distilled.blended.kept
    how = "with blend=0.5 " if blended > kept else ""
    found = f"{how}its best {recipe.keep} hold {max(kept, blended):.1%} of the teacher's best ten"
    without = f"the first stage's best hold {distilled.first_stage.kept:.1%}"
    if max(kept, blended) < threshold or max(kept, blended) <= distilled.first_stage.kept:
        return Distillation(distilled, threshold, None, f"not good enough: {found}; {without}, wanted {threshold:.1%}")
    if register is None:
        return Distillation(distilled, threshold, None, f"good enough to register: {found}; {without}")
    db.register_model(register, folder, "cross-encoder")
    return Distillation(distilled, threshold, register, f"registered as {register!r}: {found}; {without}")


def _queries(db: Database, own: Sequence[str], recipe: Recipe) -> list[PseudoQuery]:
    """Return as many queries as the recipe needs, in random order: the caller's own, then some of the corpus."""
    rng = np.random.default_rng(recipe.seed)
    different = list(dict.fromkeys(query for query in own if query.strip()))
    chosen = [PseudoQuery(different[at]) for at in rng.permutation(len(different))[: recipe.queries]]
    if missing := recipe.queries - len(chosen):
        documents = ((document.id, document.title, document.text) for document in db.iter())
        chosen += draw_queries(documents, missing, seed=recipe.seed)
    return [chosen[at] for at in rng.permutation(len(chosen))]


def _pools(db: Database, queries: Sequence[PseudoQuery]) -> Iterator[Pool]:
    """Search for one query after the other, and give what is found; a query's source is read without its words."""
    for query in queries:
        hits = db.search(query.text, k=DEPTH, rerank=False).hits
        source = next((at for at, hit in enumerate(hits) if hit.id == query.source), None)
        texts = [f"{hit.title} {hit.text}" if hit.title else hit.text for hit in hits]
        if source is not None:
            texts[source] = without_query(query.text, hits[source].title, hits[source].text)
        if len(texts) > 1:  # one text alone has no order
            yield Pool(query.text, tuple(texts), np.array([hit.score for hit in hits], np.float32), source)
