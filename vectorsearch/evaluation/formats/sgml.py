"""SGML as TREC writes it: end tags left out, names in any case, `<` and `&` raw in the text. Texts in, values out."""

from __future__ import annotations

import html
import re
from dataclasses import dataclass
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Callable, Collection, Iterable, Iterator, Mapping

TAG = re.compile(
    r"""<(?P<end>/?)(?P<name>[A-Za-z][\w:.-]*)"""
    r"""(?P<attributes>(?:\s+[\w:.-]+(?:\s*=\s*(?:"[^"]*"|'[^']*'|[^\s"'<>]+))?)*)\s*/?>"""
)
_ATTRIBUTE = re.compile(r"""([\w:.-]+)\s*=\s*(?:"([^"]*)"|'([^']*)'|([^\s"'<>]+))""")
_ENTITY = re.compile(r"&(?:#\d+|#[xX][0-9a-fA-F]+|\w+);")
_OWN_ENTITIES = {"&blank;": " ", "&hyph;": "-"}  # of TREC's disks, and nobody else's
_HTML_NAMES = """
a abbr b blockquote body br center code dd div dl dt em font h1 h2 h3 h4 h5 h6 head hr html i img li ol option p pre
small span strong sub sup table tbody td th thead tr tt u ul
"""
_HTML = frozenset(_HTML_NAMES.split())
_NEED_AN_END = frozenset(
    {"a", "abbr", "b", "code", "em", "font", "i", "pre", "small", "span", "strong", "sub", "sup", "tt", "u"}
)
_DOCTYPE = re.compile(r"<!DOCTYPE[^\[>]*(?:\[.*?\]\s*)?>", re.DOTALL | re.IGNORECASE)
_HIDDEN_LESS, _HIDDEN_AND = "\ue000", "\ue001"  # what a literal section writes as < and &


@dataclass(frozen=True, slots=True)
class Element:
    """A part of a text: its name in small letters, its attributes, what it holds as written, and where it lies."""

    name: str
    attributes: Mapping[str, str]
    body: str
    start: int
    stop: int


def name_of(tag: re.Match[str]) -> str:
    """Return a tag's name in small letters, without its namespace."""
    return tag["name"].rpartition(":")[2].lower()


def unhidden(text: str) -> str:
    """Return the text without comments and declarations, and with literal (CDATA) sections as the text they are."""
    text = _each(text, "<![CDATA[", "]]>", lambda inner: inner.replace("<", _HIDDEN_LESS).replace("&", _HIDDEN_AND))
    for start, end in (("<!--", "-->"), ("<?", "?>")):
        text = _each(text, start, end, _only_breaks)
    return _DOCTYPE.sub(lambda found: _only_breaks(found[0]), text, count=1)


def _each(text: str, start: str, end: str, changed: Callable[[str], str]) -> str:
    """Return the text with what stands between each start and its end changed, and both marks gone."""
    parts, past = [], 0
    while (begin := text.find(start, past)) >= 0 and (stop := text.find(end, begin + len(start))) >= 0:
        parts += [text[past:begin], changed(text[begin + len(start) : stop])]
        past = stop + len(end)
    return "".join([*parts, text[past:]])


def _only_breaks(text: str) -> str:
    return "\n" * text.count("\n")  # so that lines keep their numbers


def elements(body: str, known: Callable[[str], bool]) -> Iterator[Element]:
    """Yield the known elements that lie side by side in a text, in order; what lies within one is its body.

    One ends at its end tag. Where that is left out, so that none comes, or only after another of its name has begun,
    it ends where the next known element begins, or with the text.
    """
    tags = list(TAG.finditer(body))
    past = 0
    for at, tag in enumerate(tags):
        name = name_of(tag)
        if tag["end"] or tag.start() < past or not known(name):
            continue
        start = past = tag.end()
        if not tag[0].endswith("/>"):
            stop = _end((tags[after] for after in range(at + 1, len(tags))), name, known)
            past = len(body) if stop is None else stop
        yield Element(name, _attributes(tag["attributes"]), body[start:past], tag.start(), past)


def plain(text: str) -> str:
    """Return a text without its markup, entities as the characters they stand for, white space as single spaces.

    What looks like a tag is one only if it is ended somewhere in the text, is one of HTML's that need no end, has an
    attribute's value, or is written in capitals, as on TREC's disks: `vector<int>` and `a <b and c> d` are text.
    """
    closed = {name_of(tag) for tag in TAG.finditer(text) if tag["end"]}
    bare = TAG.sub(lambda tag: " " if _is_markup(tag, closed) else tag[0], text)
    bare = _ENTITY.sub(lambda found: _OWN_ENTITIES.get(found[0].lower()) or html.unescape(found[0]), bare)
    return " ".join(bare.replace(_HIDDEN_LESS, "<").replace(_HIDDEN_AND, "&").split())


def is_html(name: str) -> bool:
    """Return whether an element of this name is a text's own markup, and no field of it."""
    return name.lower() in _HTML


def _end(tags: Iterable[re.Match[str]], name: str, known: Callable[[str], bool]) -> int | None:
    """Return where an element ends whose start tag stands before these tags; None at the end of the text."""
    following: int | None = None
    for tag in tags:
        found = name_of(tag)
        if tag["end"] and found == name:
            return tag.start()
        if not tag["end"] and known(found):
            following = tag.start() if following is None else following
            if found == name:
                break
    return following


def _is_markup(tag: re.Match[str], closed: Collection[str]) -> bool:
    name = tag["name"].rpartition(":")[2]
    written_out = "=" in tag["attributes"] or (name.isupper() and len(name) > 1)
    needs_no_end = name.lower() in _HTML - _NEED_AN_END and not tag["attributes"].strip()
    return bool(tag["end"]) or name.lower() in closed or needs_no_end or written_out


def _attributes(text: str) -> dict[str, str]:
    return {
        name.rpartition(":")[2].lower(): html.unescape(double or single or bare)
        for name, double, single, bare in _ATTRIBUTE.findall(text)
    }
