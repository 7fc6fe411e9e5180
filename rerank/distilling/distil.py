"""Distil a small first stage for cascades from a cross-encoder, on text that nobody has judged.

The student, a few of the teacher's layers, learns what the teacher says of the first tokens of what a search finds for
queries, beyond what the search's own scores say already: the two are to be blended. The blend is then measured by what
it keeps of the best that the teacher, who reads all, finds for queries that were held out.
"""

from __future__ import annotations

import tempfile
from dataclasses import dataclass, replace
from functools import partial
from itertools import islice
from pathlib import Path
from typing import TYPE_CHECKING

import numpy as np

from backends.catalogue.export import export
from backends.errors import InvalidInput, MissingExtra
from backends.folders.folder import read_folder
from rerank.cascade import blend, standardize
from rerank.cross_encoder import CrossEncoder
from rerank.distilling.distil_agreement import Agreement, agreement, fitting_weight, kept_by_query, slope
from rerank.distilling.distil_queries import Pool
from rerank.distilling.distil_student import write_student
from rerank.training.soundness import check_scores
from rerank.training.time_limit import TimeLimit
from rerank.training.train import with_floats

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Sequence

    from numpy.typing import NDArray

    from backends.base import ModelSpec
    from rerank.distilling.distil_training import Student, Training

    Progress = Callable[[str, int, int], None]

GATHERING, TELLING = 0.25, 0.35  # of the time that is left: to search, and for the teacher to read what is held out
FEWEST_HELD_OUT = 6  # with fewer no difference can be significant: 2 of 2 ** 5 sign patterns are more than 5 %
HEAD = 30  # ranks from which half of the texts to learn from come; the rest come from those below


@dataclass(frozen=True, slots=True)
class Recipe:
    """How to distil.

    Args:
        layers: of the student, evenly spaced among the teacher's.
        max_length: tokens that the student reads, query included.
        pairs: of query and text to learn from.
        texts_a_query: how many of a query's texts are learned from.
        held_out: queries that are kept out, all of whose texts the teacher reads whole.
        keep: how many of the student's best a second stage is to read.
        minutes: for everything, kept to within a step; what is reached by then counts, where there is less to learn
            from or to measure by it is less of both.
        seed: of what is drawn; on one machine the same seed gives the same model, unless time ran out.

    Raises:
        InvalidInput: a value is out of its range.
    """

    layers: int = 3
    max_length: int = 128
    pairs: int = 24_000
    texts_a_query: int = 16
    held_out: int = 40
    keep: int = 15
    minutes: float = 15.0
    seed: int = 0

    def __post_init__(self) -> None:
        low = {"layers": 2, "max_length": 16, "pairs": 1, "texts_a_query": 2, "held_out": 1, "keep": 1, "seed": 0}
        for name, least in low.items():
            if getattr(self, name) < least:
                raise InvalidInput(f"{name} is {getattr(self, name)}: it is at least {least}")
        if not self.minutes > 0:
            raise InvalidInput(f"minutes is {self.minutes}: it must be above 0")

    @property
    def queries(self) -> int:
        """Return how many queries are wanted, those held out included."""
        return self.held_out + -(-self.pairs // self.texts_a_query)


DEFAULT_RECIPE = Recipe()


@dataclass(frozen=True, slots=True)
class Distilled:
    """A student that was written, in Hugging Face layout with a graph beside it, and how it compares.

    `held_out` is how far it agrees with the teacher on the held-out queries, `first_stage` how far the order that it is
    given does, and `blended` both, with the weight `blend` of the student. `gains` are by how much more of the
    teacher's best ten the blend keeps than that order, query by query. `parity` is how far graph and module are apart.
    """

    spec: ModelSpec
    teacher: str
    layers: tuple[int, ...]
    queries: int
    keep: int
    training: Training
    held_out: Agreement
    first_stage: Agreement
    blended: Agreement
    blend: float
    gains: tuple[float, ...]
    parity: float
    seconds: float


def distil(
    teacher: ModelSpec,
    pools: Iterable[Pool],
    folder: Path,
    recipe: Recipe = DEFAULT_RECIPE,
    *,
    limit: TimeLimit | None = None,
    progress: Progress = lambda _step, _done, _total: None,
) -> Distilled:
    """Distil a teacher into the folder, which must not be there yet; `pools` are read one by one, held-out ones first.

    `limit` is the recipe's minutes if it isn't given. `progress(step, done, total)` is called with `searching`,
    `scoring` and `training`. The folder is there only if a student was trained that tells texts apart.

    Raises:
        InvalidInput: the folder is there, the recipe can't be followed, there are too few queries, or the time was up
            before there was a student that could be compared.
        InvalidModel: the teacher's layers can't be told apart, the training has ruined the student, or the graph
            differs from the module.
        MissingExtra: PyTorch is not installed.
    """
    limit = limit or TimeLimit.starting(recipe.minutes)
    if folder.exists():
        raise InvalidInput(f"{folder} is already there: give another folder, or remove it")
    make = _load_student()
    with tempfile.TemporaryDirectory(prefix="distil-") as scratch:
        begun_s = limit.elapsed_s
        whole = with_floats(teacher, Path(scratch))
        made = Path(scratch) / "student"
        layers = write_student(whole, made, recipe.layers, max_length=recipe.max_length)
        writing_s = limit.elapsed_s - begun_s  # what writing the student will take, roughly
        held_out, learned = _gathered(pools, recipe, limit, progress)
        theirs = _told(whole, held_out, limit, progress)
        held_out = held_out[: len(theirs)]
        first = [pool.scores for pool in held_out]
        offset = slope(theirs, first)
        student = make(made, whole.folder, max_length=recipe.max_length)
        training = student.train(
            learned,
            offset=offset,
            pairs=recipe.pairs,
            seed=recipe.seed,
            limit=limit.keeping(writing_s + len(held_out) * _scoring_s(student, held_out[0], limit)),
            progress=partial(progress, "training"),
        )
        if not training.steps:
            raise limit.too_short("the student was trained")
        ours = _scored(student, held_out, limit)
        theirs, first = theirs[: len(ours)], first[: len(ours)]
        check_scores(ours)
        student.save()
        written = export(read_folder(made), folder, form="onnx")
    weight = fitting_weight(ours, offset)
    both = [blend(*each, weight=weight) for each in zip(ours, first, strict=True)]
    before, after = (kept_by_query(scores, theirs, keep=recipe.keep) for scores in (first, both))
    return Distilled(
        spec=written.spec,
        teacher=teacher.name,
        layers=layers,
        queries=len(learned),
        keep=recipe.keep,
        training=training,
        held_out=agreement(ours, theirs, keep=recipe.keep),
        first_stage=agreement(first, theirs, keep=recipe.keep),
        blended=agreement(both, theirs, keep=recipe.keep),
        blend=weight,
        gains=tuple((after - before).tolist()),
        parity=written.max_difference,
        seconds=limit.elapsed_s,
    )


def _load_student() -> type[Student]:
    try:
        from rerank.distilling.distil_training import Student  # noqa: PLC0415  (heavy: imports PyTorch)
    except ImportError as exc:
        raise MissingExtra("distilling needs PyTorch: pip install 'vectorsearch[train]'") from exc
    return Student


def _gathered(
    pools: Iterable[Pool], recipe: Recipe, limit: TimeLimit, progress: Progress
) -> tuple[list[Pool], list[Pool]]:
    """Return the pools that are held out, whole, and those to learn from, of which a few texts are drawn."""
    rng = np.random.default_rng(recipe.seed)
    part = limit.part(GATHERING)
    held_out: list[Pool] = []
    learned: list[Pool] = []
    for done, found in enumerate(islice(pools, recipe.queries), 1):
        if len(held_out) < recipe.held_out:
            held_out.append(found)
        else:
            of_all = standardize(found.scores).astype(np.float32)  # before texts are drawn, as a search's blend does
            learned.append(draw_texts(replace(found, scores=of_all), recipe.texts_a_query, rng))
        progress("searching", done, recipe.queries)
        if part.is_up() and (learned or limit.is_up()):
            break
    if not learned and limit.is_up():
        raise limit.too_short("there was anything to learn from")
    if not learned:
        raise InvalidInput(
            f"{len(held_out)} queries found anything to rank, and {recipe.held_out} are held out: give more queries "
            "or documents, or hold out fewer"
        )
    return held_out, learned


def _told(
    teacher: ModelSpec, held_out: Sequence[Pool], limit: TimeLimit, progress: Progress
) -> list[NDArray[np.float32]]:
    """Return the teacher's logits of all texts of these queries, read whole, by what serves it fastest.

    There may be fewer than queries, where the time for it is up, but never fewer than can decide anything.
    """
    told: list[NDArray[np.float32]] = []
    part, fewest = limit.part(TELLING), min(FEWEST_HELD_OUT, len(held_out))
    with CrossEncoder(teacher.folder, backend="torch") as model:
        for done, pool in enumerate(held_out, 1):
            if len(told) >= fewest and part.is_up():
                break
            if limit.is_up():
                raise limit.too_short(f"the teacher had read the texts of {fewest} queries")
            told.append(model.score(pool.query, pool.texts))
            progress("scoring", done, len(held_out))
    return told


def _scoring_s(student: Student, pool: Pool, limit: TimeLimit) -> float:
    """Return the seconds that a student takes for a query's texts."""
    begun_s = limit.elapsed_s
    student.score([pool])
    return limit.elapsed_s - begun_s


def _scored(student: Student, held_out: Sequence[Pool], limit: TimeLimit) -> list[NDArray[np.float32]]:
    """Return the student's logits of each query's texts; where the time is up, of no more than can decide anything.

    That much is read in any case: a student that was trained is not thrown away for seconds.
    """
    scored: list[NDArray[np.float32]] = []
    for pool in held_out:
        if len(scored) >= FEWEST_HELD_OUT and limit.is_up():
            break
        scored += student.score([pool])
    return scored


def draw_texts(pool: Pool, n: int, rng: np.random.Generator) -> Pool:
    """Return a pool of n of its texts, in their order: half of them from the head, and the query's source always."""
    size = len(pool.texts)
    if size <= n:
        return pool
    head = min(HEAD, size // 2)
    chosen = set(rng.choice(head, min(n // 2, head), replace=False).tolist())
    chosen |= {head + int(at) for at in rng.choice(size - head, n - len(chosen), replace=False)}
    if pool.source is not None:
        chosen.add(pool.source)
    drawn = sorted(chosen)
    return Pool(pool.query, tuple(pool.texts[at] for at in drawn), pool.scores[drawn])
