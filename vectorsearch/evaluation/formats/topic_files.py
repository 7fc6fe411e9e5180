"""Read what is asked: topics of TREC's tracks in SGML or XML, TSV, `id:text`, JSON, SMART; or say what is missing."""

from __future__ import annotations

from collections import Counter
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

from backends.errors import InvalidInput
from vectorsearch.evaluation.formats.columns import QUERY_IDS, json_rows, row_id
from vectorsearch.evaluation.formats.smart import MARK, smart_records
from vectorsearch.evaluation.formats.text_files import Lines, numbered_lines, only_utf8, shown, told_encoding
from vectorsearch.evaluation.formats.topic_elements import read_elements
from vectorsearch.evaluation.formats.topic_fields import NAMES, TOGETHER, Topic
from vectorsearch.evaluation.formats.topic_lines import read_lines

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence

_OBVIOUS = {"text", "title", "query"}


@dataclass(frozen=True, slots=True)
class TopicFile:
    """Query id to text, in the order of the file, and what a reader of figures should know of it."""

    path: Path
    texts: dict[str, str]
    notes: tuple[str, ...] = ()


def read_topics(path: str | Path, *, field: str | None = None) -> TopicFile:
    """Return the queries of a file, of whichever of the field's formats it is.

    Of several texts the first is asked that any has of: text, title, query, question, summary, description, a
    patient's data (disease, gene, demographic …), narrative, url; and then every topic must have it.

    Args:
        path: the file, which may be compressed.
        field: which text is asked, by the file's name for it.

    Raises:
        InvalidInput: the file can't be read, holds no query, or a query is malformed or comes twice; the message names
            the line, and what was expected there.
    """
    path = Path(path)
    topics, notes = _read(path)
    if not topics:
        raise InvalidInput(f"{path}: holds no queries")
    chosen = _chosen(path, topics, field)
    texts: dict[str, str] = {}
    for topic in topics:
        if topic.id in texts:
            raise InvalidInput(f"{path}, line {topic.line}: query {topic.id!r} comes twice")
        texts[topic.id] = _text(path, topic, chosen)
    others = sorted({name for topic in topics for name in topic.fields} - {chosen, ""})
    if field is None and (chosen not in {*_OBVIOUS, ""} or _OBVIOUS & {*others}):
        notes = [*notes, f"{path.name}: what is asked is each topic's {_asked(chosen, others)}"]
    return TopicFile(path, texts, tuple(notes))


def _read(path: Path) -> tuple[list[Topic], list[str]]:
    other: list[int] = []
    lines = list(numbered_lines(path, lenient=other.append))  # once: it may be a pipe
    start = lines[0][1].lstrip() if lines else ""
    notes: list[str] = []
    if start.startswith(("{", "[")):
        topics = list(_of_json(path, only_utf8(path, lines, other)))
    elif start.startswith("<"):
        topics = read_elements(path, lines)
    elif start.startswith(MARK):
        records = smart_records(path, lines)
        topics = [Topic(line, name, {"text": fields.get("W", "")}) for line, name, fields in records]
    else:
        topics, notes = read_lines(path, lines) if lines else ([], [])
    return topics, [*told_encoding(path, other), *notes]


def _of_json(path: Path, lines: Lines) -> Iterator[Topic]:
    for number, row in json_rows(path, lines):
        try:
            _refuse_conversation(row)
            name = row_id(row, QUERY_IDS, "query")
        except InvalidInput as exc:
            raise InvalidInput(f"{path}, line {number}: {exc}") from exc
        fields: dict[str, Any] = {}
        for key, value in row.items():
            if key in NAMES:
                fields.setdefault(NAMES[key], value)
        yield Topic(number, name, fields, tuple(row))


def _refuse_conversation(row: dict[str, Any]) -> None:
    if turns := next((name for name in ("turn", "turns", "responses") if isinstance(row.get(name), list)), None):
        raise InvalidInput(f"a conversation ({turns!r}): write a TSV of the turns' ids and the utterances to ask")


def _chosen(path: Path, topics: Sequence[Topic], field: str | None) -> str:
    """Return which field is asked.

    Raises:
        InvalidInput: no topic has the one that is wanted, or any.
    """
    counts = Counter(name for topic in topics for name, value in topic.fields.items() if isinstance(value, str))
    if field is not None:
        wanted = NAMES.get(field.lower(), field.lower())
        if wanted in counts:
            return wanted
        raise InvalidInput(f"{path}: no topic has a {field!r}: they have {', '.join(filter(None, counts)) or 'none'}")
    for name in (*dict.fromkeys(NAMES.values()), ""):
        if name in counts:
            return name
    raise _no_text(path, topics[0], "text")


def _text(path: Path, topic: Topic, chosen: str) -> str:
    names = TOGETHER if chosen in TOGETHER else (chosen,)
    texts = [value for name in names if isinstance(value := topic.fields.get(name), str)]
    if not texts:
        raise _no_text(path, topic, chosen or "text")
    return " ".join(texts)


def _no_text(path: Path, topic: Topic, field: str) -> InvalidInput:
    has = ", ".join(topic.names or filter(None, topic.fields)) or "nothing else"
    known = ", ".join(dict.fromkeys(NAMES.values()))
    value = f'"{field}" is {shown(topic.fields.get(field))}, not a string'
    told = f"query {topic.id!r} has {has}; what can be asked is {known}"
    return InvalidInput(f"{path}, line {topic.line}: {value}: {told}")


def _asked(chosen: str, others: Sequence[str]) -> str:
    together = [name for name in TOGETHER if name == chosen or name in others] if chosen in TOGETHER else [chosen]
    beside = [name for name in others if name not in together]
    return " and ".join(together) + (f" (beside it they have {', '.join(beside)})" if beside else "")
