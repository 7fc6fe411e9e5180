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
from vectorsearch.query.fusion import RRF_K
from vectorsearch.query.plan import DEFAULT_RERANK_DEPTH
from vectorsearch.types import Mode

if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping, Sequence

    from vectorsearch.database import Database
    from vectorsearch.results import SearchResult

RANKING_DEPTH = 100

_SHORT = {"depth": "rerank_depth"}


class EvaluationFailed(VectorSearchError):
    """A stage of the system under test was left out, so a figure would be of another system; the message says which."""


@dataclass(frozen=True, slots=True, kw_only=True)
class System:
    """One way to search, with `Database.search`'s own options; `k` hits of each query are measured.

    `name` is what tables and runs call it; made of mode and reranker if empty: "hybrid + rerank".

    Raises:
        InvalidInput: the mode is unknown.
    """

    name: str = ""
    mode: Mode = "hybrid"
    rerank: str | None = None
    rerank_depth: int = DEFAULT_RERANK_DEPTH
    k: int = RANKING_DEPTH
    fusion: str = "rrf"
    rrf_k: float = RRF_K
    weights: Mapping[str, float] = field(default_factory=dict)

    def __post_init__(self) -> None:
        if self.mode not in get_args(Mode):
            raise InvalidInput(f"mode {self.mode!r} is unknown: use one of {', '.join(get_args(Mode))}")
        if not self.name:
            object.__setattr__(self, "name", f"{self.mode} + rerank" if self.rerank else self.mode)

    @property
    def options(self) -> dict[str, Any]:
        """Return everything that the hits depend on, as plain values: all but the name."""
        values = asdict(self)
        del values["name"]
        if self.rerank is None:
            del values["rerank_depth"]
        return values

    def search(self, db: Database, query: str) -> SearchResult:
        """Search as `Database.search` does, but raise where it would leave a stage out.

        Raises:
            EvaluationFailed: a stage was left out.
            VectorSearchError: a stage failed.
        """
        result = db.search(query, **self.options, on_rerank_error="raise")
        if result.degraded:
            errors = "; ".join(stage.error for stage in result.stats if stage.error)
            raise EvaluationFailed(
                f"system {self.name!r} went without {', '.join(result.degraded)} at {query!r}"
                + (f": {errors}" if errors else ": give its models more memory (budget_nbytes)")
            )
        return result


def parse_system(text: str) -> System:
    """Return the system of a line such as "best: mode=hybrid rerank=default depth=20"; the name may be left out.

    Keys are the fields of `System`, and `depth` for `rerank_depth`; `weights=lexical:1,dense:2`. As reranker,
    `default` is the default model and `none` is none. Values with spaces are quoted as in a shell.

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
    except (OSError, ValueError) as exc:
        raise InvalidInput(f"{path}: can't be read as TOML: {exc}") from exc
    if not isinstance(tables, list) or not tables:
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
    values: dict[str, Any] = {}
    known = [each.name for each in fields(System)]
    for key, value in options.items():
        name = _SHORT.get(key, key)
        if name not in known:
            raise InvalidInput(f"system {label}: {key!r} is no option: use {', '.join([*known, *_SHORT])}")
        values[name] = value
    values["rerank"] = _reranker(values.get("rerank"))
    for name, kind in (("rerank_depth", int), ("k", int), ("rrf_k", float)):
        if name in values:
            values[name] = _number(values[name], kind, f"system {label}: {name}")
    return System(**values)


def _reranker(name: str | None) -> str | None:
    return {None: None, "none": None, "default": config.DEFAULT_RERANKER}.get(name, name)


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


def _parse_weights(value: str, label: str) -> dict[str, float]:
    pairs = (pair.partition(":") for pair in value.split(","))
    return {key: _number(number, float, f"system {label!r}: the weight of {key!r}") for key, _, number in pairs}
