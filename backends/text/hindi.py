"""A light stemmer of Hindi, which Tantivy has none for.

A. Ramanathan and D. Rao, A Lightweight Stemmer for Hindi, EACL 2003 workshop on computational linguistics for South
Asian languages: the longest ending of inflection is cut off where at least two characters are left before it.
"""

from __future__ import annotations

_ENDINGS = frozenset(
    (  # noqa: SIM905 -- easier to read
        # of nouns and adjectives
        "ो े ू ु ी ि ा ों ें ीं ां ाँ ाओं ाएं ुओं ुएं ुआं ियां ियाँ ियों ाइयां ाइयाँ ाइयों ताओं ताएं नाओं नाएं "
        # of verbs
        "कर ाकर ाओ िए ाइए ाई ाईं ाए ाया ने नी ना ाने ाना ते ती ता तीं ाते ाती ाता ातीं ेगा ेगी ोगे ोगी ेंगे ेंगी एंगे "
        "एंगी ूंगा ूंगी ाएगा ाएगी ाओगे ाओगी ाएंगे ाएंगी ाऊंगा ाऊंगी"
    ).split()
)
_LONGEST = max(map(len, _ENDINGS))


def stem(word: str) -> str:
    """Return a folded word without its ending."""
    for length in range(min(_LONGEST, len(word) - 2), 0, -1):
        if word[-length:] in _ENDINGS:
            return word[:-length]
    return word
