"""Read TREC's documents: `<DOC>` elements in SGML, however they lie on the lines."""

from __future__ import annotations

import re
from collections import Counter
from typing import TYPE_CHECKING, Any

from backends.errors import InvalidInput
from vectorsearch.evaluation.formats.sgml import TAG, elements, is_html, name_of, plain, unhidden

if TYPE_CHECKING:
    from collections.abc import Iterator
    from pathlib import Path

    from vectorsearch.evaluation.formats.text_files import Lines

_DOC = re.compile(r"""<(/?)doc((?:\s+[\w:.-]+\s*=\s*(?:"[^"]*"|'[^']*'|[^\s"'<>]+))*)\s*>""", re.IGNORECASE)
_ID_ATTRIBUTE = re.compile(r"""\s(?:docno|docid|id)\s*=\s*(?:"([^"]*)"|'([^']*)'|([^\s"'<>]+))""", re.IGNORECASE)
_NUMBERS = ("docno", "docid")
_TITLES = ("title", "headline", "hl", "head", "ti", "ttl", "doctitle")
_TEXTS = ("text", "lp", "leadpara", "abstract", "summary")
_PAGE = "dochdr"


class TrecFile:
    """The documents of a file, read as it is iterated: (line number, {"_id", "title", "text"}).

    The id is that of DOCNO, else of DOCID, else an attribute of DOC. The title is that of TITLE, HEADLINE, HL, HEAD,
    TI, TTL or DOCTITLE; the text that of all TEXT, LP, LEADPARA, ABSTRACT and SUMMARY elements, or of the whole
    document but id and title where there is none.
    """

    def __init__(self, path: Path, lines: Lines) -> None:
        self._path = path
        self._lines = lines
        self._left_out: Counter[str] = Counter()
        self._empty = 0

    def __iter__(self) -> Iterator[tuple[int, dict[str, Any]]]:
        """Yield each document; one at a time is held.

        Raises:
            InvalidInput: a document has no id, or isn't ended; or text stands between documents; or they are web
                pages. The message names the line.
        """
        held: list[str] | None = None
        attributes, begun = "", 0
        for number, line in self._lines:
            past = 0
            for tag in _DOC.finditer(line):
                before, past = line[past : tag.start()], tag.end()
                if not tag[1]:
                    if held is not None:
                        raise self._error(number, f"a <DOC> begins within that of line {begun}, which is not ended")
                    self._refuse_text(number, before)
                    held, attributes, begun = [], tag[2], number
                    continue
                if held is None:
                    raise self._error(number, "</DOC> ends a document that has not begun")
                yield begun, self._document(begun, attributes, "\n".join([*held, before]))
                held = None
            if held is not None:
                held.append(line[past:])
            else:
                self._refuse_text(number, line[past:])
        if held is not None:
            raise self._error(begun, "the last <DOC> is not ended")

    def notes(self) -> list[str]:
        """Return what should be known of the file, when it has been read."""
        notes = []
        if self._left_out:
            names = ", ".join(f"{name} {count:,}" for name, count in self._left_out.most_common(8))
            notes.append(f"{self._path.name}: beside title and text there are, and are left out: {names}")
        if self._empty:
            notes.append(f"{self._path.name}: {self._empty:,} documents have neither title nor text")
        return notes

    def _document(self, line: int, attributes: str, body: str) -> dict[str, Any]:
        body = unhidden(body)
        names = {name_of(tag) for tag in TAG.finditer(body) if not tag["end"]}
        if _PAGE in names:
            raise self._error(line, "<DOCHDR> says that these are web pages: extract their texts to JSON lines first")
        titles, texts = [], []
        ids: dict[str, list[str]] = {}
        left_out = []
        outside, past = [], 0
        wanted = {*_NUMBERS, *_TITLES, *_TEXTS}
        for part in elements(body, lambda name: name in wanted):
            between, past = body[past : part.start], part.stop
            outside.append(between)
            text = plain(part.body)
            if part.name in _NUMBERS:
                ids.setdefault(part.name, []).append(text)
            elif part.name in _TITLES:
                titles.append(text)
            else:
                texts.append(text)
        outside.append(body[past:])
        if texts:
            left_out = [name.upper() for name in names - wanted if not is_html(name) and _says(name, outside)]
            left_out += ["text in no element"] if _bare(outside) else []
        else:
            texts = [plain("".join(outside))]
        self._left_out.update(left_out)
        title, text = " ".join(filter(None, titles)), " ".join(filter(None, texts))
        self._empty += not (title or text)
        return {"_id": self._id(line, attributes, ids, body), "title": title, "text": text}

    def _id(self, line: int, attributes: str, ids: dict[str, list[str]], body: str) -> str:
        stated = next((ids[name] for name in _NUMBERS if name in ids), None)
        if stated is None and (found := _ID_ATTRIBUTE.search(attributes)):
            stated = [next(filter(None, found.groups()), "")]
        if not stated or not stated[0]:
            raise self._error(line, f"a document has no DOCNO: {' '.join(body.split())[:80]!r}")
        if len(set(stated)) > 1:
            raise self._error(
                line, f"a document has several ids, {', '.join(map(repr, stated[:3]))}: is a </DOC> missing?"
            )
        return stated[0]

    def _refuse_text(self, number: int, between: str) -> None:
        if words := " ".join(TAG.sub(" ", unhidden(between)).split()):
            raise self._error(number, f"{words[:60]!r} is in no <DOC>")

    def _error(self, number: int, told: str) -> InvalidInput:
        return InvalidInput(f"{self._path}, line {number}: {told}")


def _says(name: str, outside: list[str]) -> bool:
    """Return whether an element of this name that is left out holds any text."""
    return any(plain(part.body) for piece in outside for part in elements(piece, name.__eq__))


def _bare(outside: list[str]) -> bool:
    """Return whether words stand in no element at all."""
    for piece in outside:
        past, bare = 0, []
        for part in elements(piece, lambda name: not is_html(name)):
            bare.append(piece[past : part.start])
            past = part.stop
        if plain("".join([*bare, piece[past:]])):
            return True
    return False
