"""Distil a first-stage reranker from a database's own documents, and register it if it keeps its teacher's best."""

from __future__ import annotations

import time
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING

import numpy as np

from backends.catalogue import catalogue
from backends.errors import InvalidInput
from rerank.distilling.distil import DEFAULT_RECIPE, distil
from rerank.distilling.distil_queries import Pool, PseudoQuery, draw_queries, without_query
from rerank.training.time_limit import TimeLimit
from vectorsearch import config
from vectorsearch.evaluation.comparing.comparison import tested
from vectorsearch.evaluation.comparing.significance import require_scipy_stats
from vectorsearch.evaluation.figures import format_p

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator, Sequence
    from pathlib import Path

    from rerank.distilling.distil import Distilled, Recipe
    from vectorsearch.database.database import Database
    from vectorsearch.evaluation.comparing.comparison import Difference

DEPTH = 100  # hits that the student is to order


@dataclass(frozen=True, slots=True)
class Distillation:
    """A distilled reranker, and how it compares on the queries held out.

    `gain` is by how much more of the teacher's best ten the student keeps, blended with the order that it is given,
    than that order does. `registered` is the name that it has in the database, None if it wasn't registered.
    """

    distilled: Distilled
    gain: Difference
    registered: str | None

    @property
    def is_better(self) -> bool:
        """Return whether more of them are kept than without it, by more than chance."""
        return self.gain.mean > 0 and self.gain.significant

    @property
    def verdict(self) -> str:
        """Return in words whether it was registered, and why."""
        made = self.distilled
        told = (
            f"with blend={made.blend} its best {made.keep} hold {made.blended.kept:.1%} of the teacher's best ten, the "
            f"first stage's own {made.first_stage.kept:.1%}, p {format_p(self.gain.p)}"
        )
        if not self.is_better:
            return f"not registered: {told}"
        return f"registered as {self.registered!r}: {told}" if self.registered else f"better than none: {told}"


def distil_reranker(
    db: Database,
    folder: Path,
    *,
    teacher: str | Path = config.DEFAULT_RERANKER,
    queries: Sequence[str] = (),
    recipe: Recipe = DEFAULT_RECIPE,
    register: str | None = None,
    progress: Callable[[str, int, int], None] = lambda _step, _done, _total: None,
    clock: Callable[[], float] = time.monotonic,
) -> Distillation:
    """Distil a small reranker from a large one into `folder`, on a database's own documents, without judgments.

    For `search(rerank=Rerank(cascade=[Rerank(student, depth=100, blend=…), Rerank(teacher, depth=15)]))`, with the
    blend that the result names.

    Args:
        db: what it finds for a query is what the student learns to order; no document of it is changed.
        folder: must not be there yet; a model in Hugging Face layout, with an ONNX graph beside the safetensors.
        teacher: a cross-encoder, by name or folder; also one that is registered here.
        queries: the users' own, which need no judgments. Where they are too few, titles and sentences are drawn from
            the documents.
        recipe: how long, how many layers, how many pairs.
        register: the name to register it under if it helps: of the teacher's best ten, the best `recipe.keep` that it
            gives, blended with the order that it is given, hold more than those of that order do, on queries that were
            held out, and p < 0.05.
        progress: called with the step (`searching`, `scoring`, `training`), and how much of how much of it is done.
        clock: what all of them tell the time by, in seconds.

    Raises:
        InvalidInput: the folder is there, there are too few documents, an argument can't be used, or the time was up
            before there was a student that could be compared.
        UnknownModel, InvalidModel: there is no such teacher, it can't be distilled, or the training has ruined the
            student; the folder isn't written.
        ReadOnlyDatabase: it is to be registered, and the database is open to read.
        MissingExtra: PyTorch or scipy is not installed.
    """
    require_scipy_stats()
    limit = TimeLimit.starting(recipe.minutes, clock=clock)
    if register is not None:
        db.check_writable()  # now, and not after minutes
    if (documents := db.count()) <= recipe.keep:
        raise InvalidInput(
            f"{documents} documents, and the best {recipe.keep} of each query count: a first stage needs more of them"
        )
    spec = catalogue.ensure(db.find_reranker(teacher))
    asked = _queries(db, queries, recipe)
    distilled = distil(spec, _pools(db, asked), folder, recipe, limit=limit, progress=progress)
    made = Distillation(distilled, tested({"blended": np.array(distilled.gains)})["blended"], None)
    if register is None or not made.is_better:
        return made
    db.register_model(register, folder, "cross-encoder")
    return replace(made, registered=register)


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
        texts = [hit.full_text for hit in hits]
        if source is not None:
            texts[source] = without_query(query.text, hits[source].title, hits[source].text)
        if len(texts) > 1:  # one text alone has no order
            yield Pool(query.text, tuple(texts), np.array([hit.score for hit in hits], np.float32), source)
