"""Texts, or a query and texts, to token ids: `Tokenizer`, and its one real form over the `tokenizers` package.

Texts are encoded one by one and never through the package's own thread pool: a process that forks after that
pool was used is warned and may hang. Tokenising takes 1 to 2 % of a model's time, so little is lost.
"""

from __future__ import annotations

import functools
import json
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Protocol, TypeVar, runtime_checkable

import numpy as np

from backends.errors import InferenceError, InvalidInput, InvalidModel, MissingExtra, VectorSearchError
from backends.text.tokenizer_growth import growth_of
from backends.text.tokenizer_settings import TokenizerSettings

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence
    from pathlib import Path

    from numpy.typing import NDArray

    from backends.base import ModelSpec

# English has about 4.5 characters a token; with 16 the first cut almost always holds enough tokens.
CHARACTERS_PER_TOKEN = 16
# What a query that is too long must leave for each document, in tokens (a quarter of the room, if that is less).
DOCUMENT_TOKENS = 64
_T = TypeVar("_T")
_LEAST_OF_A_PAIR = 5  # tokens for query and text together: a quarter, which a text is left, must be one at least


@dataclass(frozen=True, slots=True)
class TokenRows:
    """Ragged token ids: row i is `input_ids[i]`, `token_type_ids[i]`; `truncated` bool[n] says what lost its tail.

    The first `prompt` tokens of each row are left out of the pooling.
    """

    input_ids: Sequence[Sequence[int]]
    token_type_ids: Sequence[Sequence[int]]
    truncated: NDArray[np.bool_]
    pad_id: int = 0
    prompt: int = 0

    @property
    def lengths(self) -> NDArray[np.intp]:
        """Return the rows' lengths in tokens, intp[n]."""
        return np.fromiter((len(ids) for ids in self.input_ids), np.intp, len(self.input_ids))


class Tokenizer(Protocol):
    """Turns texts into token rows. Safe to use from many threads."""

    def texts(self, texts: Sequence[str], max_length: int) -> TokenRows:
        """Return one row per text, at most `max_length` tokens, special tokens included; the tail is cut."""

    def pairs(self, query: str, texts: Sequence[str], max_length: int) -> TokenRows:
        """Return one row per (query, text): the query whole, the text's tail cut.

        A query that leaves no room for a document keeps its head, and every row counts as truncated.
        """


@runtime_checkable
class SuppliesTokenizer(Protocol):
    """A backend whose models bring a tokenizer of their own, instead of the folder's `tokenizer.json`."""

    def load_tokenizer(self, spec: ModelSpec) -> Tokenizer:
        """Return the tokenizer for this model."""


class FolderTokenizer:
    """The `tokenizer.json` of a model's folder, with what the files beside it say of it.

    The file's own padding and truncation are switched off once, here, and lengths are cut on each encoding, so
    that no call changes state that another thread reads.

    Raises:
        MissingExtra: the `tokenizers` package is not installed.
        InvalidModel: the file is missing or can't be read.
    """

    def __init__(self, path: Path, *, lower_case: bool = False) -> None:
        try:
            from tokenizers import Tokenizer as Loaded  # noqa: PLC0415  (heavy: only where a model is loaded)
        except ImportError as exc:
            raise MissingExtra("models need the tokenizers package: pip install tokenizers") from exc
        try:
            text = path.read_text(encoding="utf-8")
            growth = growth_of(json.loads(text).get("normalizer"))
            self._tokenizer = _translated(lambda: Loaded.from_str(text))
        except (OSError, UnicodeDecodeError) as exc:
            raise InvalidModel(f"can't read the tokenizer {path}: {exc}") from exc
        except InvalidModel as exc:
            raise InvalidModel(f"{path} is refused: {exc}") from exc
        # The package raises bare Exception for a file that it can't parse.
        except Exception as exc:
            raise InvalidModel(f"{path} is not a tokenizer that this version of tokenizers can read: {exc}") from exc
        if lower_case:
            self._lower()
        self._characters_per_token = max(1, int(CHARACTERS_PER_TOKEN / growth))
        self._settings = TokenizerSettings.read(path.parent)
        self._pad_id = self._find_pad_id()
        self._tokenizer.no_padding()
        self._tokenizer.no_truncation()
        self._added = {pair: self._tokenizer.num_special_tokens_to_add(is_pair=pair) for pair in (False, True)}

    def texts(self, texts: Sequence[str], max_length: int) -> TokenRows:
        """Return one row per text; see `Tokenizer.texts`."""
        room = self._room(max_length, pair=False)
        encoded = [self._encode(text, room) for text in texts]
        return self._rows([self._completed(e) for e, _ in encoded], [cut for _, cut in encoded])

    def pairs(self, query: str, texts: Sequence[str], max_length: int) -> TokenRows:
        """Return one row per (query, text); see `Tokenizer.pairs`."""
        room = self._room(max_length, pair=True)
        asked, query_cut = self._encode(query, room - min(DOCUMENT_TOKENS, room // 4))
        encoded = [self._encode(text, room - len(asked.ids)) for text in texts]
        joined = [self._completed(asked, e) for e, _ in encoded]
        return self._rows(joined, [query_cut or cut for _, cut in encoded])

    def plain(self, text: str, max_length: int) -> tuple[list[int], bool]:
        """Return a text's own token ids, none of them added, and whether its tail was cut."""
        encoding, cut = self._encode(text, max_length)
        return list(encoding.ids), cut

    def prompt_length(self, prompt: str, max_length: int) -> int:
        """Return how many tokens a prompt has at the head of a text: its own, and those that stand before it."""
        encoding = self._completed(self._encode(prompt, self._room(max_length, pair=False))[0])
        return len(encoding.ids) - int(bool(encoding.special_tokens_mask) and encoding.special_tokens_mask[-1])

    def _lower(self) -> None:
        """Lower texts before all else, as `do_lower_case` of a sentence_bert_config.json asks for."""
        from tokenizers import normalizers  # noqa: PLC0415  (heavy: only where a model is loaded)

        own = self._tokenizer.normalizer
        self._tokenizer.normalizer = normalizers.Sequence([normalizers.Lowercase(), *([own] if own else [])])

    def _find_pad_id(self) -> int:
        if self._settings.pad_id is not None:
            return self._settings.pad_id
        if self._tokenizer.padding:
            return int(self._tokenizer.padding["pad_id"])
        known = (self._tokenizer.token_to_id(token) for token in ("[PAD]", "<pad>"))
        return next((i for i in known if i is not None), 0)

    def _room(self, max_length: int, *, pair: bool) -> int:
        room = max_length - self._added[pair]
        if room < (_LEAST_OF_A_PAIR if pair else 1):
            least = self._added[pair] + (_LEAST_OF_A_PAIR if pair else 1)
            raise InvalidInput(f"max_length={max_length} leaves no room for text: this model needs at least {least}")
        return room

    def _encode(self, text: str, room: int) -> tuple[Any, bool]:
        """Return the encoding, cut to `room` tokens, and whether anything was cut."""
        limit = room * self._characters_per_token
        while True:
            part = text if len(text) <= limit else self._kept(text, limit)
            encoding = _told(functools.partial(self._tokenizer.encode, to_unicode(part), add_special_tokens=False))
            if len(encoding.ids) > room:
                encoding.truncate(room, direction="left" if self._settings.cuts_head else "right")
                return encoding, True
            if len(part) == len(text):
                return encoding, False
            limit *= 4  # few tokens in many characters (blanks, one endless word): look further

    def _kept(self, text: str, limit: int) -> str:
        """Return the end of a long text that is kept, of about `limit` characters.

        A megabyte of text is not tokenised to keep 500 tokens of it. The cut falls on a space where there is one, so
        that the tokens that are kept are those of the whole text.
        """
        if self._settings.cuts_head:
            space = text.find(" ", len(text) - limit, len(text) - limit // 2)
            return text[space if space >= 0 else len(text) - limit :]
        return text[: text.rfind(" ", limit // 2, limit) + 1 or limit]

    def _completed(self, *encodings: Any) -> Any:  # noqa: ANN401  (the package's encodings)
        """Return one encoding, or a pair of them, with the tokens that the model's template adds."""
        return _told(functools.partial(self._tokenizer.post_process, *encodings))

    def _rows(self, encodings: Sequence[Any], truncated: Sequence[bool]) -> TokenRows:
        # A tokenizer without special tokens gives nothing for an empty text; a row needs one token.
        ids = [encoding.ids or [self._pad_id] for encoding in encodings]
        types = [
            (self._settings.has_types and e.type_ids) or [0] * len(row) for e, row in zip(encodings, ids, strict=True)
        ]
        return TokenRows(ids, types, np.array(truncated, np.bool_), self._pad_id)


def _told(work: Callable[[], _T]) -> _T:
    """Return `work()`; what the package raises, such as for a word that is no token, becomes an error of ours."""
    try:
        return _translated(work)
    except VectorSearchError:
        raise
    except Exception as exc:  # the package raises bare Exception
        raise InferenceError(f"the tokenizer failed: {exc}") from exc


def _translated(work: Callable[[], _T]) -> _T:
    """Return `work()`; a panic of the package's own code, which is no `Exception`, becomes an error of ours."""
    try:
        return work()
    except (Exception, KeyboardInterrupt, SystemExit, GeneratorExit):
        raise
    except BaseException as exc:
        raise InferenceError(f"the tokenizer failed: {type(exc).__name__}: {exc}") from exc


def to_unicode(text: str) -> str:
    """Return `text` with lone surrogates, which are no characters and can't be encoded, replaced by U+FFFD."""
    try:
        text.encode()
    except UnicodeEncodeError:
        return text.encode("utf-16-le", "surrogatepass").decode("utf-16-le", "replace")
    return text
