"""Read topics written as elements: `<top>`, `<topic number="1">`, `<query>`, `<DOC>`, or `<200>` before a question."""

from __future__ import annotations

import re
from bisect import bisect_right
from typing import TYPE_CHECKING

from backends.errors import InvalidInput
from vectorsearch.evaluation.formats.sgml import TAG, Element, elements, is_html, name_of, plain, unhidden
from vectorsearch.evaluation.formats.text_files import with_blank_lines
from vectorsearch.evaluation.formats.topic_fields import NAMES, Topic

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator, Sequence
    from pathlib import Path

_HOLDERS = ("top", "topic", "doc", "query")
_IDS = ("num", "number", "id", "qid", "topicid", "topic_id", "query_id", "identifier", "docno")
_ASIDE = ("docid", "subtopic", "type", "dom", "smry", "con", "concepts", "fac", "def", "nat", "head", "time", "context")
_KNOWN = frozenset({*NAMES, *_IDS, *_ASIDE})
_NUMBERED = re.compile(r"\s*<(\d+)>(.*)")
_LANGUAGE = re.compile(r"(?:[a-z]{2,3}-)(title|desc|narr|description|narrative)")
_NUMBER_WORD = re.compile(r"^\s*(?:(?:topic\s+)?number|num|topic)\s*:", re.IGNORECASE)
_FIELD_WORD = {
    "title": re.compile(r"^\s*(?:topic|title)\s*:", re.IGNORECASE),
    "description": re.compile(r"^\s*(?:description|desc)\s*:", re.IGNORECASE),
    "narrative": re.compile(r"^\s*(?:narrative|narr)\s*:", re.IGNORECASE),
    "summary": re.compile(r"^\s*summary\s*:", re.IGNORECASE),
}


def read_elements(path: Path, lines: Sequence[tuple[int, str]]) -> list[Topic]:
    """Return the topics of a file of elements.

    Raises:
        InvalidInput: there is none, one is malformed, or text stands between them; the message names the line.
    """
    if _NUMBERED.match(lines[0][1]):
        return [_numbered(path, number, line) for number, line in lines]
    text = unhidden("\n".join(with_blank_lines(lines)))
    breaks = [found.start() for found in re.finditer("\n", text)]

    def line_of(offset: int) -> int:
        return bisect_right(breaks, offset - 1) + 1

    names = {name_of(tag) for tag in TAG.finditer(text) if not tag["end"]}
    holder = next((name for name in _HOLDERS if name in names), None)
    if holder is None:
        found = ", ".join(f"<{name}>" for name in sorted(names)[:8]) or "none"
        raise InvalidInput(f"{path}: holds no <top>, <topic>, <query> or <DOC>; its elements are {found}")
    topics, past = [], 0
    for each in elements(text, holder.__eq__):
        _refuse_text_between(path, text, past, each.start, line_of)
        topics.append(_topic(path, each, line_of(each.start)))
        past = each.stop
    _refuse_text_between(path, text, past, len(text), line_of)
    return topics


def _topic(path: Path, holder: Element, line: int) -> Topic:
    # A name that isn't known is a field as well where its tag begins a line: classic topics don't end theirs.
    at_start = {
        name_of(tag)
        for tag in TAG.finditer(holder.body)
        if not tag["end"] and not is_html(name_of(tag)) and not holder.body[: tag.start()].rpartition("\n")[2].strip()
    }
    names = _KNOWN | at_start | {name_of(tag) for tag in TAG.finditer(holder.body) if _LANGUAGE.match(name_of(tag))}
    parts = list(elements(holder.body, names.__contains__))
    ids = [holder.attributes[name] for name in _IDS if name in holder.attributes][:1]
    ids = ids or [_NUMBER_WORD.sub("", plain(part.body)) for part in parts if part.name in _IDS]
    where = f"{path}, line {line}: "
    if not ids or not ids[0].strip():
        raise InvalidInput(f"{where}topic has no number: {' '.join(holder.body.split())[:80]!r}")
    if len(set(ids)) > 1 or len(ids[0].split()) > 1:
        raise InvalidInput(f"{where}topic has no one number, but {', '.join(map(repr, ids))}: is an end tag missing?")
    name = ids[0].strip()
    fields: dict[str, str] = {}
    for field, text in _fields(holder, parts):
        if field in fields and field != "field":
            raise InvalidInput(f"{where}topic {name!r} has two texts as its {field}: is an end tag missing?")
        fields[field] = f"{fields[field]}; {text}" if field in fields else text
    if not fields:
        raise InvalidInput(
            f"{where}topic {name!r} has no title or other text to ask; its elements are "
            f"{', '.join(f'<{part.name}>' for part in parts) or 'none'}"
        )
    return Topic(line, name, fields)


def _fields(holder: Element, parts: list[Element]) -> Iterator[tuple[str, str]]:
    """Yield (field, text) of what a topic says; its text in no element as the field "" if that is all there is."""
    said = False
    for part in parts:
        bare = _LANGUAGE.match(part.name)
        field = NAMES.get(bare[1] if bare else part.name)
        text = plain(part.body)
        if field in _FIELD_WORD and holder.name == "top":
            text = _FIELD_WORD[field].sub("", text).strip()
        if field is not None and text:
            said = True
            yield field, f"{part.attributes.get('name', '')} {text}".strip() if field == "field" else text
    if title := holder.attributes.get("title"):
        said = True
        yield "title", title
    outside = "".join(
        holder.body[a:b] for a, b in zip([0, *(p.stop for p in parts)], [*(p.start for p in parts), None], strict=True)
    )
    if not said and (text := plain(outside)):
        yield "", text


def _numbered(path: Path, number: int, line: str) -> Topic:
    found = _NUMBERED.fullmatch(line)
    if found is None or not found[2].strip():
        raise InvalidInput(f"{path}, line {number}: {line[:60]!r} is not <number> and a question, as the first line is")
    return Topic(number, found[1], {"question": plain(found[2])})


def _refuse_text_between(path: Path, text: str, start: int, stop: int, line_of: Callable[[int], int]) -> None:
    """Refuse words between topics: one whose start tag is damaged would be lost."""
    between = TAG.sub(lambda tag: " " * len(tag[0]), text[start:stop])
    if words := between.strip():
        line = line_of(start + between.index(words[0]))
        raise InvalidInput(
            f"{path}, line {line}: {' '.join(words.split())[:60]!r} is in no topic: is a start tag missing?"
        )
