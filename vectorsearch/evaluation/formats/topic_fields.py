"""What the tracks call the parts of a topic."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from collections.abc import Mapping

# Each name's field, in the order in which fields are preferred as what is asked.
NAMES = {
    **dict.fromkeys(("text", "query_text", "query_txt", "content", "contents"), "text"),
    **dict.fromkeys(("title", "topic_title"), "title"),
    "query": "query",
    "question": "question",
    "summary": "summary",
    **dict.fromkeys(("description", "desc", "topic_description"), "description"),
    "need": "need",
    "note": "note",
    **{name: name for name in ("disease", "gene", "variant", "treatment", "demographic", "other")},
    "field": "field",
    **dict.fromkeys(("narrative", "narr", "topic_narrative"), "narrative"),
    "url": "url",
}
# The parts of a patient's topic are asked together, in this order, as the track's own baselines do.
TOGETHER = ("disease", "gene", "variant", "demographic", "other", "treatment")


@dataclass(frozen=True, slots=True)
class Topic:
    """A topic: the line where it begins, its id, and its texts by field; "" is the text in no field.

    `names` are what the file calls all that it has, where that is known.
    """

    line: int
    id: str
    fields: Mapping[str, Any]
    names: tuple[str, ...] = ()
