"""Languages that words can be stemmed in, by the names that people give them."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Final

from backends.errors import InvalidInput


@dataclass(frozen=True, slots=True)
class Language:
    """A language by its ISO 639-1 code and English name, which is Snowball's; `stop_words`: whether it has a list."""

    code: str
    name: str
    iso_639_3: tuple[str, ...]
    stop_words: bool = True


LANGUAGES: Final = {
    language.code: language
    for language in (
        Language("ar", "arabic", ("ara",), stop_words=False),
        Language("da", "danish", ("dan",)),
        Language("de", "german", ("deu", "ger")),
        Language("el", "greek", ("ell", "gre"), stop_words=False),
        Language("en", "english", ("eng",)),
        Language("es", "spanish", ("spa",)),
        Language("fi", "finnish", ("fin",)),
        Language("fr", "french", ("fra", "fre")),
        Language("hi", "hindi", ("hin",), stop_words=False),
        Language("hu", "hungarian", ("hun",)),
        Language("it", "italian", ("ita",)),
        Language("nl", "dutch", ("nld", "dut")),
        Language("no", "norwegian", ("nor", "nb", "nn", "nob", "nno")),
        Language("pt", "portuguese", ("por",)),
        Language("ro", "romanian", ("ron", "rum"), stop_words=False),
        Language("ru", "russian", ("rus",)),
        Language("sv", "swedish", ("swe",)),
        Language("ta", "tamil", ("tam",), stop_words=False),
        Language("tr", "turkish", ("tur",), stop_words=False),
    )
}
NAMES: Final = ", ".join(f"{language.code} ({language.name})" for language in LANGUAGES.values())
_CODES = {name: each.code for each in LANGUAGES.values() for name in (each.code, each.name, *each.iso_639_3)}


def language_code(name: str) -> str:
    """Return the ISO 639-1 code of a language: by its code of two or three letters, or its English name, in any case.

    Raises:
        InvalidInput: there is no stemmer for it; the message names all languages that have one.
    """
    code = _CODES.get(name.strip().casefold()) if isinstance(name, str) else None
    if code is None:
        raise InvalidInput(
            f"language {name!r} is unknown: use one of {NAMES}; or None, which neither stems nor drops words"
        )
    return code
