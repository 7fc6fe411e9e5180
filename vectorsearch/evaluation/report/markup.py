"""Write HTML and SVG so that no text can become markup: whatever isn't made by `element` is escaped."""

from __future__ import annotations

import html
import re
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Iterable

    Child = str | Iterable["Child"] | None
    Attribute = str | float | bool | None

# What HTML can't hold, and what could turn the direction of the text around it.
_UNFIT = re.compile("[\x00-\x08\x0b-\x1f\x7f-\x9f\u200e\u200f\u202a-\u202e\u2066-\u2069\ud800-\udfff\ufffe\uffff]")
_VOID = frozenset({"meta", "br", "hr"})


class Markup(str):
    """Text that is HTML already."""

    __slots__ = ()


def element(name: str, /, *children: Child, **attributes: Attribute) -> Markup:
    """Return `<name …>children</name>`.

    Children that are `Markup` stay as they are, other texts are escaped, None is left out, and lists are written one
    after the other. Attributes that are None or False are left out, True ones have no value; `class_` is `class`, and
    an underscore inside a name is a hyphen: `aria_label`.
    """
    written = "".join(_attribute(key, value) for key, value in attributes.items())
    if name in _VOID:
        return Markup(f"<{name}{written}>")
    return Markup(f"<{name}{written}>{''.join(map(_child, children))}</{name}>")


def escape(text: str) -> Markup:
    """Return the text as HTML, for an element or between quotes; what HTML can't hold becomes U+FFFD."""
    return Markup(html.escape(_UNFIT.sub("\ufffd", text)))


def _child(child: Child) -> str:
    if child is None:
        return ""
    if isinstance(child, Markup):
        return child
    return escape(child) if isinstance(child, str) else "".join(map(_child, child))


def _attribute(key: str, value: Attribute) -> str:
    if value is None or value is False:
        return ""
    name = key.rstrip("_").replace("_", "-")
    if value is True:
        return f" {name}"
    text = f"{value:.6g}" if isinstance(value, float) else str(value)
    return f' {name}="{escape(text)}"'
