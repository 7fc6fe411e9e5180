"""Measures of rankings, by ir-measures.

MacAvaney, Macdonald and Ounis, "Streamlining Evaluation with ir-measures", ECIR 2022.
"""

from __future__ import annotations

import ast
import importlib
from collections import defaultdict
from typing import TYPE_CHECKING, Any

import numpy as np

from backends.errors import InvalidInput, MissingExtra

if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping, Sequence

    from numpy.typing import NDArray

MEASURES = ("nDCG@10", "RR@10", "R@100", "AP")


def require_ir_measures() -> Any:  # noqa: ANN401 -- the module; it has no type information
    """Return the ir_measures module, so that a long run can fail before it starts.

    Raises:
        MissingExtra: it is not installed.
    """
    try:
        return importlib.import_module("ir_measures")
    except ImportError as exc:
        raise MissingExtra("evaluation needs ir-measures: pip install 'vectorsearch[eval]'") from exc


def measure(
    rankings: Mapping[str, Sequence[str]],
    qrels: Mapping[str, Mapping[str, int]],
    *,
    names: Sequence[str] = MEASURES,
) -> dict[str, float]:
    """Return each measure's mean over the queries of `qrels`; otherwise as `measure_queries`."""
    values = measure_queries(rankings, qrels, names=names)
    return {name: float(each.mean()) if len(each) else 0.0 for name, each in values.items()}


def measure_queries(
    rankings: Mapping[str, Sequence[str]],
    qrels: Mapping[str, Mapping[str, int]],
    *,
    names: Sequence[str] = MEASURES,
) -> dict[str, NDArray[np.float64]]:
    """Return each measure's value of each judged query: name to float64[len(qrels)], in the order of `qrels`.

    A query without results, or missing from `rankings`, counts as 0. Only the order of a ranking counts: its scores
    are made to fall strictly, since tools break ties in different ways.

    Args:
        rankings: query id to document ids, best first.
        qrels: query id to {document id: grade}; grades above 0 are relevant.
        names: as `parse_measure` takes them; they are the keys of what is returned.

    Raises:
        MissingExtra: ir-measures is not installed.
        InvalidInput: a name is of no measure, or of one that can't be computed.
    """
    ir_measures = require_ir_measures()
    parsed = {name: parse_measure(name) for name in names}
    # Evaluators write files and call C and Perl: they get numbers for ids, whatever the ids are made of.
    numbers = {query: str(i) for i, query in enumerate(qrels, 1)}
    documents: defaultdict[str, str] = defaultdict(lambda: f"d{len(documents)}")
    judged = {numbers[query]: {documents[d]: grade for d, grade in grades.items()} for query, grades in qrels.items()}
    run = {
        numbers[query]: {documents[d]: float(len(ranking) - i) for i, d in enumerate(ranking)}
        for query, ranking in rankings.items()
        if query in numbers and ranking  # some evaluators divide by the number of results
    }
    values = {each: np.zeros(len(numbers)) for each in parsed.values()}
    try:
        for metric in ir_measures.iter_calc(list(values), judged, run):
            values[metric.measure][int(metric.query_id) - 1] = metric.value
    except Exception as exc:  # the evaluators under the library raise any kind, of parameters that they can't take
        raise InvalidInput(f"{', '.join(names)} can't be computed ({exc!r}): check the measures' parameters") from exc
    return {name: values[each] for name, each in parsed.items()}


def canonical_names(names: Iterable[str]) -> tuple[str, ...]:
    """Return the names as ir-measures writes them, each once: "NDCG@10" is "nDCG@10".

    Each is tried on one query, so that what can't be computed is found out before a long run and not after it.

    Raises:
        MissingExtra: ir-measures is not installed.
        InvalidInput: a name is of no measure, or of one that can't be computed.
    """
    canonical = tuple(dict.fromkeys(str(parse_measure(name)) for name in names))
    for name in canonical:
        measure_queries({"q": ["d"]}, {"q": {"d": 1}}, names=[name])
    return canonical


def deepest_cutoff(names: Iterable[str]) -> int:
    """Return how many results of a query the measures look at; 0 if all of them look at the whole ranking."""
    return max((int(parse_measure(name).params.get("cutoff", 0)) for name in names), default=0)


def parse_measure(name: str) -> Any:  # noqa: ANN401 -- ir-measures has no type information
    """Return the measure of a name such as "nDCG@10", "AP(rel=2)" or "IPrec@0.5".

    It does what the library's own parser does, which needs what Python 3.14 has removed; and it refuses cutoffs
    below 1, at which the library under it ends the process.

    Raises:
        MissingExtra: ir-measures is not installed.
        InvalidInput: it is no measure, or one that needs what is not installed here.
    """
    ir_measures = require_ir_measures()
    try:
        kind, parameters = _parse_name(name)
    except InvalidInput:
        raise
    except (SyntaxError, ValueError, TypeError, RecursionError, MemoryError) as exc:  # Python's words for its own code
        raise InvalidInput(f"measure {name!r} can't be read: write nDCG@10, RR@10, R@100, AP, or AP(rel=2)") from exc
    try:
        known = ir_measures.measures.registry[kind]
        if "@" in parameters:
            parameters[known.AT_PARAM] = parameters.pop("@")
        parsed = known(**parameters)
        parsed.validate_params()
        supported = ir_measures.DefaultPipeline.supports(parsed)
    except KeyError as exc:
        raise InvalidInput(f"measure {name!r} is unknown to ir-measures: nDCG@10, RR@10, R@100, AP are usual") from exc
    except (ValueError, TypeError, AssertionError) as exc:
        raise InvalidInput(f"measure {name!r} can't be used: {str(exc) or type(exc).__name__}") from exc
    if not supported:
        raise InvalidInput(f"measure {name!r} needs a package of ir-measures that is not installed here")
    return parsed


def _parse_name(name: str) -> tuple[str, dict[str, Any]]:
    """Return the measure's bare name and its parameters, with what follows the @ as "@"."""
    expression = ast.parse(name.strip(), mode="eval").body
    parameters: dict[str, Any] = {}
    if isinstance(expression, ast.BinOp) and isinstance(expression.op, ast.MatMult):
        parameters["@"] = ast.literal_eval(expression.right)
        expression = expression.left
    if isinstance(expression, ast.Call):
        if expression.args:
            raise InvalidInput(f"measure {name!r}: its parameters must be named, as in AP(rel=2)")
        parameters |= {str(keyword.arg): ast.literal_eval(keyword.value) for keyword in expression.keywords}
        expression = expression.func
    if not isinstance(expression, ast.Name):
        raise InvalidInput(f"measure {name!r}: a name, parameters in parentheses and @cutoff are understood")
    if any(isinstance(value, int) and value < 1 for value in parameters.values()):
        raise InvalidInput(f"measure {name!r}: cutoffs and grades start at 1")
    return expression.id, parameters
