"""Read TREC's own formats: topics, and documents in SGML. Texts in, values out."""

from __future__ import annotations

import html
import re
from typing import TYPE_CHECKING, Any

from backends.errors import InvalidInput

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator

_TOPIC = re.compile(r"<top>(.*?)</top>|<topic(\s[^>]*)?>(.*?)</topic>", re.DOTALL | re.IGNORECASE)
_NUMBER = re.compile(r"<num>\s*(?:Number:)?\s*([^<\s]+)", re.IGNORECASE)
_NUMBER_ATTRIBUTE = re.compile(r"""number\s*=\s*["']([^"']+)["']""", re.IGNORECASE)
# An element of a topic often has no end tag: it ends where the next one begins.
_QUESTION = re.compile(r"<(?:title|query)>\s*(?:Topic:)?(.*?)(?=<|\Z)", re.DOTALL | re.IGNORECASE)
_TAG = re.compile(r"<[^<>]*>")


def parse_topics(text: str) -> dict[str, str]:
    """Return query id → title of `<top>` topics, or of `<topic number="…">` ones, in order.

    Raises:
        InvalidInput: there is none, one lacks its number or title, or a number comes twice.
    """
    topics: dict[str, str] = {}
    for match in _TOPIC.finditer(text):
        body = match[1] or match[3] or ""
        number = _NUMBER_ATTRIBUTE.search(match[2] or "") or _NUMBER.search(body)
        question = _QUESTION.search(body)
        if number is None or question is None or not question[1].strip():
            raise InvalidInput(f"topic {len(topics) + 1} has no number or no title: {body[:80]!r}")
        if number[1] in topics:
            raise InvalidInput(f"topic {number[1]!r} comes twice")
        topics[number[1]] = _plain(question[1])
    if not topics:
        raise InvalidInput("holds no <top> or <topic>")
    return topics


def parse_documents(lines: Iterable[str]) -> Iterator[dict[str, Any]]:
    """Yield `{"_id", "title", "text"}` of each `<DOC>`; a document at a time is held.

    The title is that of TITLE, HEADLINE or HL; the text that of all TEXT elements, or of the whole document but
    DOCNO and title where there is none.

    Raises:
        InvalidInput: a document has no DOCNO, or is not ended.
    """
    body: list[str] | None = None
    for line in lines:
        start = line.upper().find("<DOC>")
        if start >= 0:
            if body is not None:
                raise InvalidInput(f"a <DOC> begins within one that is not ended: {''.join(body)[:80]!r}")
            body = [line[start + len("<DOC>") :]]
        elif body is not None:
            body.append(line)
        if body is not None and "</DOC>" in line.upper():
            yield _document("".join(body))
            body = None
    if body is not None:
        raise InvalidInput(f"the last <DOC> is not ended: {''.join(body)[:80]!r}")


def _document(body: str) -> dict[str, Any]:
    number = _elements(body, "DOCNO")
    if not number or not number[0]:
        raise InvalidInput(f"a document has no DOCNO: {body[:80]!r}")
    titles = next(filter(None, (_elements(body, name) for name in ("TITLE", "HEADLINE", "HL"))), [])
    texts = _elements(body, "TEXT")
    if not texts:
        rest = re.sub(r"<(DOCNO|TITLE|HEADLINE|HL)>.*?</\1>", " ", body, flags=re.DOTALL | re.IGNORECASE)
        texts = [_plain(rest)]
    return {"_id": number[0], "title": " ".join(titles), "text": " ".join(texts)}


def _elements(body: str, name: str) -> list[str]:
    return [_plain(text) for text in re.findall(rf"<{name}>(.*?)</{name}>", body, re.DOTALL | re.IGNORECASE)]


def _plain(text: str) -> str:
    return " ".join(html.unescape(_TAG.sub(" ", text)).split())
