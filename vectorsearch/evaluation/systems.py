"""Systems under test: named sets of search options, from Python, a line of text, or a TOML file."""

from __future__ import annotations

import shlex
import tomllib
from collections import Counter
from dataclasses import asdict, dataclass, field, fields
from pathlib import Path
from typing import TYPE_CHECKING, Any, get_args

from backends.errors import InvalidInput, VectorSearchError
from vectorsearch import config
from vectorsearch.query.planning.plan import DEFAULT_RERANK_DEPTH
from vectorsearch.query.planning.rerankers import Rerank
from vectorsearch.types import Mode

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Mapping, Sequence

    from vectorsearch.database.database import Database
    from vectorsearch.query.planning.defaults import SearchDefaults
    from vectorsearch.query.results import SearchResult

RANKING_DEPTH = 100

_SHORT = {"depth": "rerank_depth"}
_OPEN: tuple[object, ...] = (None, (), {})  # what says nothing


class EvaluationFailed(VectorSearchError):
    """A stage of the system under test was left out, so a figure would be of another system; the message says which."""


@dataclass(frozen=True, slots=True, kw_only=True)
class System:
    """One way to search, with `Database.search`'s own options; `k` hits of each query are measured.

    `name` is what tables and runs call it; made of mode and reranker if empty: "hybrid + rerank". `rerank_depth` is
    for a reranker by name; a `Rerank` has its own. What is None or empty is as a search has it
    that doesn't say; with mode `auto` and nothing else, that is by the database's own `defaults`.

    Raises:
        InvalidInput: the mode is unknown.
    """

    name: str = ""
    mode: Mode = "hybrid"
    rerank: str | Rerank | None = None
    rerank_depth: int = DEFAULT_RERANK_DEPTH
    k: int = RANKING_DEPTH
    fusion: str | None = None
    rrf_k: float | None = None
    weights: Mapping[str, float] = field(default_factory=dict)
    k1: float | None = None
    b: float | None = None

    def __post_init__(self) -> None:
        if self.mode not in get_args(Mode):
            raise InvalidInput(f"mode {self.mode!r} is unknown: use one of {', '.join(get_args(Mode))}")
        if not self.name:
            object.__setattr__(self, "name", f"{self.mode} + rerank" if self.rerank else self.mode)

    @property
    def stages(self) -> tuple[Rerank, ...]:
        """Return the rerank stages, in order."""
        if self.rerank is None:
            return ()
        if isinstance(self.rerank, str):
            return (Rerank(self.rerank, depth=self.rerank_depth),)
        cascade = tuple(each if isinstance(each, Rerank) else Rerank(each) for each in self.rerank.cascade)
        return cascade or (self.rerank,)

    @property
    def rerankers(self) -> tuple[object, ...]:
        """Return the models that rerank, each as it is given: a name, or an object of the caller's own."""
        models = (stage.model for stage in self.stages)
        return tuple(one for model in models for one in (model if isinstance(model, (list, tuple)) else [model]))

    @property
    def reranker_names(self) -> tuple[str, ...]:
        """Return the rerankers that are known by a name or folder."""
        return tuple(each for each in self.rerankers if isinstance(each, str))

    @property
    def options(self) -> dict[str, Any]:
        """Return everything that the hits depend on, as plain values: all but the name, and what is left open."""
        values = asdict(self)
        del values["name"]
        if not isinstance(self.rerank, str):
            del values["rerank_depth"]
        return {key: _given(value) for key, value in values.items() if value not in _OPEN}

    def search_options(self) -> dict[str, Any]:
        """Return the options of `Database.search`."""
        values = {each.name: getattr(self, each.name) for each in fields(self) if each.name != "name"}
        if not isinstance(self.rerank, str):
            values["rerank_depth"] = None
        return values | {"weights": self.weights or None}

    def search(self, db: Database, query: str) -> SearchResult:
        """Search as `Database.search` does, but raise where it would leave a stage out.

        Raises:
            EvaluationFailed: a stage was left out.
            VectorSearchError: a stage failed.
        """
        result = db.search(query, **self.search_options(), on_rerank_error="raise")
        if lost := [each for each in result.degraded if each != "defaults:outdated"]:
            errors = "; ".join(stage.error for stage in result.stats if stage.error)
            raise EvaluationFailed(
                f"system {self.name!r} went without {', '.join(lost)} at {query!r}"
                + (f": {errors}" if errors else ": give its models more memory (budget_nbytes)")
            )
        return result


def parse_system(text: str) -> System:
    """Return the system of a line such as "best: mode=hybrid rerank=default depth=20"; the name may be left out.

    Keys are the fields of `System`, `depth` for `rerank_depth`, and `blend`, `max_length`, `batch`, `passages` and
    `field` of `Rerank`; `weights=lexical:1,dense:2`. As reranker, `default` is the default model and `none` is none,
    and `small>large` is a cascade, with `depth=100>15` and, if they differ, `max_length=128>512`. Values with spaces
    are quoted as in a shell.

    Raises:
        InvalidInput: it is malformed; the message shows the part that is.
    """
    name, colon, rest = text.partition(":")
    if not colon or "=" in name:
        name, rest = "", text
    try:
        words = shlex.split(rest)
    except ValueError as exc:
        raise InvalidInput(f"system {text!r}: {exc}") from exc
    options: dict[str, Any] = {}
    for word in words:
        key, equals, value = word.partition("=")
        if not equals:
            raise InvalidInput(f"system {text!r}: {word!r} is not KEY=VALUE")
        if key in options:
            raise InvalidInput(f"system {text!r}: {key!r} is given twice")
        options[key] = _parse_weights(value, text) if key == "weights" else value
    return _system({"name": name.strip(), **options}, repr(text))


def read_systems(path: str | Path) -> list[System]:
    """Return the systems of a TOML file: a `[[system]]` table each, with the keys of `parse_system`.

    Raises:
        InvalidInput: the file can't be read, or a table is malformed.
    """
    try:
        tables = tomllib.loads(Path(path).read_text(encoding="utf-8")).get("system")
    except (OSError, ValueError, RecursionError) as exc:
        raise InvalidInput(f"{path}: can't be read as TOML: {exc}") from exc
    if not isinstance(tables, list) or not tables or not all(isinstance(table, dict) for table in tables):
        raise InvalidInput(f"{path}: holds no [[system]] table")
    return [_system(table, f"{i} of {path}") for i, table in enumerate(tables, 1)]


def unique_systems(systems: Iterable[System]) -> list[System]:
    """Return the systems as a list.

    Raises:
        InvalidInput: there is none, or two have one name.
    """
    listed = list(systems)
    if not listed:
        raise InvalidInput("no system is given: name at least one")
    refuse_repeated_names([system.name for system in listed])
    return listed


def refuse_repeated_names(names: Sequence[str]) -> None:
    """Raise if a name comes twice.

    Raises:
        InvalidInput: the message names it.
    """
    repeated = [name for name, count in Counter(names).items() if count > 1]
    if repeated:
        raise InvalidInput(f"{len(names)} systems, and {repeated[0]!r} is the name of several: give each its own")


def _system(options: Mapping[str, Any], label: str) -> System:
    label = f"system {label}"
    known = [each.name for each in fields(System)]
    values = {_SHORT.get(key, key): value for key, value in options.items()}
    values["name"] = str(values.get("name", ""))  # a TOML file may have a number
    for key in values:
        if key not in known and key not in _SPEC:
            raise InvalidInput(f"{label}: {key!r} is no option: use {', '.join([*known, *_SHORT, *_SPEC])}")
    for key, kind in (("k", int), ("rrf_k", float), ("k1", float), ("b", float)):
        if key in values:
            values[key] = _number(values[key], kind, f"{label}: {key}")
    return System(**_reranked(values, label))


def _reranked(values: dict[str, Any], label: str) -> dict[str, Any]:
    """Return the values with one for `rerank` made of those that are its spec's."""
    names = [_reranker(name) for name in str(values.pop("rerank", "none")).split(">")]
    given = {key: str(values.pop(key)).split(">") for key in ("rerank_depth", *_SPEC) if key in values}
    if names == [None]:
        if given:
            raise InvalidInput(f"{label}: {next(iter(given))!r} is given, and nothing reranks: name a reranker")
        return values
    for key, parts in given.items():
        if len(parts) not in ({len(names)} if key == "rerank_depth" else {1, len(names)}):
            raise InvalidInput(f"{label}: {key!r} has {len(parts)} values for {len(names)} rerankers")
    if len(names) == 1 and given.keys() <= {"rerank_depth"}:
        depth = {key: _number(parts[0], int, f"{label}: {key}") for key, parts in given.items()}
        return {**values, "rerank": names[0], **depth}
    stages = []
    for i, name in enumerate(names):
        own = {key: parts[i] if len(parts) > 1 else parts[0] for key, parts in given.items()}
        read = {key: _SPEC[key](text, f"{label}: {key}") for key, text in own.items() if key in _SPEC}
        reads = int(_number(own.get("rerank_depth", DEFAULT_RERANK_DEPTH), int, f"{label}: depth"))
        stages.append(Rerank(name, depth=reads, **read))
    return {**values, "rerank": stages[0] if len(stages) == 1 else Rerank(cascade=tuple(stages))}


def _given(value: Any) -> Any:  # noqa: ANN401 -- plain values, nested
    """Return a plain value without the parts that say nothing."""
    if isinstance(value, dict):
        return {key: _given(each) for key, each in value.items() if each not in _OPEN}
    return [_given(each) for each in value] if isinstance(value, (list, tuple)) else value


def _reranker(name: str) -> str | None:
    return {"none": None, "default": config.DEFAULT_RERANKER}.get(name.strip(), name.strip())


def _whole(text: str, label: str) -> float:
    return _number(text, int, label)


def _fraction(text: str, label: str) -> float:
    return _number(text, float, label)


def _truth(text: str, label: str) -> bool:
    if text.lower() not in {"true", "false"}:
        raise InvalidInput(f"{label} is {text!r}: it is true or false")
    return text.lower() == "true"


def _text(text: str, _: str) -> str:
    return text


def _number(value: object, kind: type[int | float], label: str) -> float:
    if isinstance(value, bool) or not isinstance(value, (str, int, float)):
        raise InvalidInput(f"{label} is {value!r}: it is a number")
    try:
        number = float(value)
    except ValueError as exc:
        raise InvalidInput(f"{label} is {value!r}: it is a number") from exc
    if kind is int and not number.is_integer():
        raise InvalidInput(f"{label} is {value!r}: it is a whole number")
    return kind(number)


# What a line or a table may say of a `Rerank` beside its depth, and how it is read.
_SPEC: dict[str, Callable[[str, str], Any]] = {
    "blend": _fraction,
    "max_length": _whole,
    "batch": _whole,
    "passages": _truth,
    "field": _text,
}


def _parse_weights(value: str, label: str) -> dict[str, float]:
    pairs = (pair.partition(":") for pair in value.split(","))
    return {key: _number(number, float, f"system {label!r}: the weight of {key!r}") for key, _, number in pairs}


def current_defaults(db: Database) -> SearchDefaults | None:
    """Return the defaults of a database that count; None for the built-in ones, also if a model was exchanged."""
    outdated = "defaults:outdated" in db.explain("which defaults").plan.left_out
    return None if outdated else db.defaults
