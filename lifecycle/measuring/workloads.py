"""What every backend is measured on: the same English texts, of ragged length, from Python's own language reference.

They come with every Python, so nothing is shipped or downloaded, and a profile is of one Python version anyway.
"""

from __future__ import annotations

import functools
import itertools
from pydoc_data import topics
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Sequence

# A query for each topic: its passages answer it to all degrees, so a reranker's order of them means something.
QUERIES = {
    "compound": "how does the with statement close a file",
    "formatstrings": "align a number in a format string",
    "string-methods": "replace part of a string and make it lower case",
    "debugger": "set a breakpoint and step through a program",
    "typesseq": "append an item to a list",
}
PASSAGES = 128
# Words a passage, in turn: about 15 to 400 tokens, as short texts and abstracts are mixed in a corpus. Six lengths and
# five topics, so that each topic gives passages of each length.
_WORDS = (8, 20, 40, 70, 110, 180)


@functools.cache
def passages() -> Sequence[str]:
    """Return `PASSAGES` passages, the topics in turn."""
    words = [iter(topics.topics[topic].split()) for topic in QUERIES]
    turns = itertools.islice(zip(itertools.cycle(words), itertools.cycle(_WORDS), strict=False), PASSAGES)
    return tuple(" ".join(itertools.islice(source, length)) for source, length in turns)


def pools() -> Sequence[tuple[str, Sequence[str]]]:
    """Return (query, the passages of its topic), for each query."""
    return [(query, passages()[i :: len(QUERIES)]) for i, query in enumerate(QUERIES.values())]
