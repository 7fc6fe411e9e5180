"""Learn from judged queries how a database is best searched: fusion, weights, BM25, rerank depth and blend."""

from __future__ import annotations

from dataclasses import asdict, dataclass, replace
from datetime import UTC, datetime
from functools import partial
from itertools import product
from typing import TYPE_CHECKING, Any

import numpy as np

from backends.errors import InvalidInput
from vectorsearch.evaluation.comparing.comparison import tested
from vectorsearch.evaluation.comparing.metrics import canonical_names, deepest_cutoff, measure_queries
from vectorsearch.evaluation.comparing.significance import SEED, require_scipy_stats
from vectorsearch.evaluation.systems import current_defaults
from vectorsearch.evaluation.tuning.cross_validation import cross_validate
from vectorsearch.evaluation.tuning.evidence import fused, fusion_of, reranked
from vectorsearch.evaluation.tuning.gathering import gather
from vectorsearch.query.planning.defaults import Origin, SearchDefaults, built_in
from vectorsearch.query.planning.plan import DEFAULT_RERANK_DEPTH, FUSION_DEPTH

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping, Sequence

    from numpy.typing import NDArray

    from vectorsearch.database.database import Database
    from vectorsearch.evaluation.collecting.topics import Judged
    from vectorsearch.evaluation.comparing.comparison import Difference
    from vectorsearch.evaluation.tuning.evidence import Evidence
    from vectorsearch.query.execution.fusion import Fusion

FOLDS = 5
CUTS = 10  # of one, chance has a say; what ten cost is a hundredth of a second
MEASURE = "nDCG@10"

_DENSE_WEIGHTS = (0.3, 0.4, 0.5, 0.6, 0.7)
_FUSIONS: tuple[tuple[Fusion, float], ...] = (("rrf", 60.0), ("rrf", 10.0), ("minmax", 60.0), ("zscore", 60.0))
_K1, _B = (0.6, 0.9, 1.2, 1.8), (0.3, 0.5, 0.75, 0.9)
_DEPTHS = (10, 20)  # below the deepest
_BLENDS = (0.2, 0.35, 0.5, 0.65, 0.8, None)


@dataclass(frozen=True, slots=True, kw_only=True)
class TuneResult:
    """What tuning found, and whether it was stored.

    `present` is how the database searched before, `chosen` what all queries choose; `before` and `held_out` are their
    means of `measure`, the latter as choosing on other queries gives it, and `gain` their difference with its tests.
    The queries are cut into `folds` several times: `by_cut` are the means of each cut, and `held_out` is theirs.
    `agreed` is the share of all folds that chose the same as all queries do. `in_sample` is what the chosen setting
    reaches on the queries that chose it, which new queries won't.
    """

    measure: str
    queries: int
    folds: int
    settings: int
    present: SearchDefaults
    chosen: SearchDefaults
    before: float
    held_out: float
    in_sample: float
    gain: Difference
    by_cut: tuple[float, ...]
    agreed: float
    stored: bool = False

    @property
    def better(self) -> bool:
        """Return whether choosing in this way is significantly better than the present defaults."""
        return self.gain.significant and self.gain.mean > 0

    def to_dict(self) -> dict[str, Any]:
        """Return plain values, fit for JSON."""
        return asdict(self) | {"better": self.better}


def tune(
    db: Database,
    judged: Judged,
    *,
    rerank: str | None = None,
    depth: int = DEFAULT_RERANK_DEPTH,
    measure: str = MEASURE,
    folds: int = FOLDS,
    seed: int = SEED,
    dry_run: bool = False,
    cache: bool = True,
    progress: Callable[[str, int, int], None] = lambda _step, _done, _total: None,
) -> TuneResult:
    """Choose how to search by judged queries; make it the default if it is significantly better on held-out ones.

    Each query is asked once of every retriever, and the reranker reads each text once, whatever the number of
    settings; the answers are remembered as those of an `Experiment` are.

    Args:
        db: what is searched, and whose `defaults` are set.
        judged: queries and judgments, such as a `TestCollection` or `Topics`.
        rerank: the name of a reranker that may be used; None tunes the fusion alone.
        depth: how many hits it may read at most.
        measure: a name that ir-measures knows.
        folds: in how many parts the queries are cut, ten times; each part is held out once.
        seed: of the cutting.
        dry_run: store nothing.
        cache: whether answers are remembered, and those of an earlier run taken.
        progress: called with the step (`searching`, `reranking`, `measuring`), and how much of how much of it is done.

    Raises:
        MissingExtra: ir-measures or scipy is not installed.
        InvalidInput: an argument can't be used.
        UnknownModel: there is no such reranker.
        ReadOnlyDatabase: the result can't be stored.
        VectorSearchError: a stage failed, or was left out.
    """
    (measure,) = canonical_names([measure])
    require_scipy_stats()
    if not 2 <= folds <= len(judged.queries):  # noqa: PLR2004 -- as in cross_validate, but before the work
        raise InvalidInput(f"{folds} folds of {len(judged.queries)} queries: give at least 2, and at most one a query")
    if rerank is not None:
        db.find_reranker(rerank)
    if not dry_run:
        db.check_writable()  # now, and not after minutes
    _refuse_foreign(db, judged)
    present = _present(db)
    settings = _settings(db, present, rerank or present.rerank, depth)
    queries = {query_id: judged.queries[query_id] for query_id in judged.qrels}
    evidence = gather(db, queries, settings, cache=cache, progress=progress)
    values = measure_settings(evidence, judged.qrels, settings, measure, progress=partial(progress, "measuring"))
    costs = np.array([0 if setting.rerank is None else setting.rerank_depth for setting in settings], dtype=np.float64)
    found = cross_validate(values, costs, folds=folds, cuts=CUTS, seed=seed)
    result = TuneResult(
        measure=measure,
        queries=len(queries),
        folds=folds,
        settings=len(settings),
        present=present,
        chosen=settings[found.chosen],
        before=float(values[0].mean()),
        held_out=float(found.held_out.mean()),
        in_sample=float(values[found.chosen].mean()),
        gain=tested({"chosen": found.held_out - values[0]})["chosen"],
        by_cut=tuple(found.by_cut.mean(axis=1).tolist()),
        agreed=found.by_fold.count(found.chosen) / len(found.by_fold),
    )
    if dry_run or not result.better or found.chosen == 0:
        return result
    db.defaults = _with_origin(db, result)
    return replace(result, stored=True)


def _refuse_foreign(db: Database, judged: Judged) -> None:
    """Raise if no document that is judged relevant is here, and any way to search would be as bad as another."""
    relevant = {doc_id for grades in judged.qrels.values() for doc_id, grade in grades.items() if grade > 0}
    if not any(db.get(doc_id) for doc_id in relevant):
        raise InvalidInput(
            f"none of the {len(relevant)} documents that are judged relevant is in the database: "
            "give judgments of its own documents"
        )


def _settings(db: Database, present: SearchDefaults, rerank: str | None, depth: int) -> list[SearchDefaults]:
    """Return what is compared, the present defaults first."""
    if present.rerank not in {None, rerank}:
        raise InvalidInput(
            f"the present defaults rerank with {present.rerank!r}, and {rerank!r} is to be tuned: reset them before"
        )
    if not 1 <= depth <= FUSION_DEPTH:
        raise InvalidInput(f"depth is {depth}: a reranker can read from 1 to {FUSION_DEPTH} hits here")
    return [present, *(each for each in candidates(db, rerank, depth, present) if each != present)]


def candidates(
    db: Database, rerank: str | None, depth: int, present: SearchDefaults | None = None
) -> list[SearchDefaults]:
    """Return the ways to search that are tried.

    These are each fusion, alone and with the reranker at each depth and blend; and, as it is searched at present, other
    constants of BM25. Not all of one with all of the other: a second run learns the other from what the first found.
    """
    present = present or built_in(db.embedder)
    own = db.bm25
    now = (own.k1 if present.k1 is None else present.k1, own.b if present.b is None else present.b)
    words = [replace(present, k1=k1, b=b) for k1, b in product(_K1, _B) if (k1, b) != now]
    return [replace(each, k1=present.k1, b=present.b) for each in _fusions(db, rerank, depth)] + words


def _fusions(db: Database, rerank: str | None, depth: int) -> list[SearchDefaults]:
    plain = [built_in(db.embedder)]
    if db.embedder is not None:
        weights = [{} if dense == 0.5 else {"lexical": round(1 - dense, 2), "dense": dense} for dense in _DENSE_WEIGHTS]  # noqa: PLR2004 -- equal weights are the built-in ones
        fusions = [SearchDefaults(fusion=f, rrf_k=k, weights=w) for (f, k), w in product(_FUSIONS, weights)]
        plain += [each for each in fusions if each not in plain]
    if rerank is None:
        return plain
    depths = [*(each for each in _DEPTHS if each < depth), depth]
    return plain + [
        replace(each, rerank=rerank, rerank_depth=reads, blend=blend)
        for each, reads, blend in product(plain, depths, _BLENDS)
    ]


def measure_settings(
    evidence: Mapping[str, Evidence],
    qrels: Mapping[str, Mapping[str, int]],
    settings: Sequence[SearchDefaults],
    measure: str,
    *,
    progress: Callable[[int, int], None] = lambda _done, _total: None,
) -> NDArray[np.float64]:
    """Return each query's value of the measure under each setting: float64[settings, queries of `qrels`].

    `progress(done, total)` counts fusions.
    """
    cutoff = deepest_cutoff([measure]) or None
    values = np.empty((len(settings), len(qrels)))
    alike: dict[tuple[object, ...], list[int]] = {}
    for number, setting in enumerate(settings):
        alike.setdefault(fusion_of(setting), []).append(number)
    for done, numbers in enumerate(alike.values(), 1):
        merged = {query: fused(each, settings[numbers[0]]) for query, each in evidence.items()}
        # Most settings put the same few first: what is measured are the different rankings, all at once.
        rankings: dict[tuple[str, tuple[int, ...]], int] = {}
        places = np.empty((len(numbers), len(qrels)), dtype=np.int64)
        for line, number in zip(places, numbers, strict=True):
            for place, query in enumerate(qrels):
                rows = reranked(evidence[query], merged[query], settings[number])[:cutoff]
                line[place] = rankings.setdefault((query, tuple(rows.tolist())), len(rankings))
        run = {str(n): [evidence[query].doc_ids[row] for row in rows] for (query, rows), n in rankings.items()}
        judged = {str(n): qrels[query] for (query, _), n in rankings.items()}
        values[numbers] = measure_queries(run, judged, names=[measure])[measure][places]
        progress(done, len(alike))
    return values


def _present(db: Database) -> SearchDefaults:
    """Return how the database searches now, without what it was learned with."""
    kept = current_defaults(db)
    return replace(kept, embed=None, rerank_digest=None, origin=None) if kept else built_in(db.embedder)


def _with_origin(db: Database, result: TuneResult) -> SearchDefaults:
    chosen = result.chosen
    return replace(
        chosen,
        embed=db.embedder.digest if db.embedder is not None else None,
        rerank_digest=db.find_reranker(chosen.rerank).digest if chosen.rerank is not None else None,
        origin=Origin(
            measure=result.measure,
            queries=result.queries,
            before=result.before,
            after=result.held_out,
            p=result.gain.p,
            date=datetime.now(UTC).date().isoformat(),
        ),
    )
