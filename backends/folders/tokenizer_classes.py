"""Tokenizers that the reference builds anew by their class: whether `tokenizer.json` cuts texts into the same tokens.

For some classes transformers takes the vocabulary alone from `tokenizer.json`, and makes the steps around it itself.
Here texts are cut as the file says. So what the class would make is built of the file's vocabulary, and both are asked
for texts made of that vocabulary. Of Unigram models the normaliser counts as the file's. A test compares `MADE` and
`REGISTERED` with the installed transformers.
"""

from __future__ import annotations

import json
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from backends.errors import InvalidModel, MissingExtra

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping

_KEPT = {"kept": True}  # as the file has it
_BERT_NORMALIZER = {
    "type": "BertNormalizer",
    "clean_text": True,
    "handle_chinese_chars": True,
    "strip_accents": None,
    "lowercase": True,
}
_BYTES = {"type": "ByteLevel", "add_prefix_space": False, "trim_offsets": True, "use_regex": True}
_METASPACE = {"type": "Metaspace", "replacement": "▁", "prepend_scheme": "always", "split": True}
_QWEN_WORDS = (
    r"(?i:'s|'t|'re|'ve|'m|'ll|'d)|[^\r\n\p{L}\p{N}]?\p{L}+|\p{N}| ?[^\s\p{L}\p{N}]+[\r\n]*|\s*[\r\n]+|\s+(?!\S)|\s+"
)


@dataclass(frozen=True, slots=True)
class Made:
    """What a class makes: `first` and `last` are the settings that name the tokens around a text, and their defaults.

    `between` counts the last tokens between two texts; without `first` the template is the file's.
    """

    model: str
    normalizer: Mapping[str, Any] | None
    pre_tokenizer: Mapping[str, Any] | None
    first: tuple[str, str] | None = None
    last: tuple[str, str] | None = None
    between: int = 1
    typed: bool = False
    model_settings: Mapping[str, Any] | None = None


def _sequence(*steps: Mapping[str, Any]) -> dict[str, Any]:
    return {"type": "Sequence", "pretokenizers": list(steps)}


_SPACES = _sequence({"type": "WhitespaceSplit"}, _METASPACE)
_CLS, _SEP = ("cls_token", "[CLS]"), ("sep_token", "[SEP]")
_BOS, _EOS = ("bos_token", "<s>"), ("eos_token", "</s>")
_PIECES = Made("WordPiece", _BERT_NORMALIZER, {"type": "BertPreTokenizer"}, _CLS, _SEP, typed=True)
_ROBERTA = Made("BPE", None, _BYTES, ("cls_token", "<s>"), ("sep_token", "</s>"), between=2)
_FALLBACK = {"fuse_unk": True, "byte_fallback": True}
_LLAMA = Made("BPE", None, _METASPACE | {"prepend_scheme": "first", "split": False}, model_settings=_FALLBACK)
MADE: Mapping[str, Made] = {
    "BertTokenizer": _PIECES,
    "DistilBertTokenizer": _PIECES,
    "ElectraTokenizer": _PIECES,
    "MPNetTokenizer": Made(
        "WordPiece",
        _BERT_NORMALIZER,
        {"type": "BertPreTokenizer"},
        ("cls_token", "<s>"),
        ("sep_token", "</s>"),
        between=2,
    ),
    "RobertaTokenizer": _ROBERTA,
    "BartTokenizer": _ROBERTA,
    "LongformerTokenizer": _ROBERTA,
    "DebertaTokenizer": Made("BPE", None, _BYTES, _CLS, _SEP, between=2),
    "GPT2Tokenizer": Made("BPE", None, _BYTES),
    "Qwen2Tokenizer": Made(
        "BPE",
        {"type": "NFC"},
        _sequence(
            {"type": "Split", "pattern": {"Regex": _QWEN_WORDS}, "behavior": "Isolated", "invert": False},
            _BYTES | {"use_regex": False},
        ),
    ),
    "LlamaTokenizer": _LLAMA,
    "CodeLlamaTokenizer": _LLAMA,
    "GemmaTokenizer": Made(
        "BPE",
        {"type": "Replace", "pattern": {"String": " "}, "content": "▁"},
        {"type": "Split", "pattern": {"String": " "}, "behavior": "MergedWithPrevious", "invert": False},
        model_settings=_FALLBACK,
    ),
    "XLMRobertaTokenizer": Made("Unigram", _KEPT, _SPACES, _BOS, _EOS, between=2),
    "CamembertTokenizer": Made("Unigram", _KEPT, _SPACES, _BOS, _EOS, between=2),
    "AlbertTokenizer": Made("Unigram", _KEPT, _SPACES, _CLS, _SEP, typed=True),
    "DebertaV2Tokenizer": Made("Unigram", _KEPT, _sequence(_METASPACE), _CLS, _SEP, typed=True),
}
# The class of an architecture where the folder names none; of `_ALWAYS` whatever it names. "" is the file's own.
REGISTERED: Mapping[str, str] = {
    "albert": "AlbertTokenizer",
    "bert": "BertTokenizer",
    "camembert": "CamembertTokenizer",
    "data2vec-text": "RobertaTokenizer",
    "deberta": "DebertaTokenizer",
    "deberta-v2": "DebertaV2Tokenizer",
    "distilbert": "BertTokenizer",
    "electra": "BertTokenizer",
    "gemma3_text": "GemmaTokenizer",
    "gpt2": "GPT2Tokenizer",
    "mistral": "",
    "modernbert": "",
    "mpnet": "MPNetTokenizer",
    "qwen2": "Qwen2Tokenizer",
    "qwen3": "Qwen2Tokenizer",
    "roberta": "RobertaTokenizer",
    "roberta-prelayernorm": "RobertaTokenizer",
    "xlm-roberta": "XLMRobertaTokenizer",
    "xlm-roberta-xl": "",
    "xmod": "XLMRobertaTokenizer",
}
_ALWAYS = {"qwen2"}
_TEXTS = (
    "The quick, brown FOX — jumps!",
    " two  blanks\tand a tab\nand a line\r\n",
    "Café naïve Ångström İstanbul ﬁne ²",
    "don't we'll 12345 3.14 x86_64 a-b #tag @me",
    "中文字符 日本語 한국어 ไทย हिन्दी العربية",
    "zero\u200bwidth\x00control\u00a0space e\u0301",
)
_SAMPLE = 48


def class_of(settings: Mapping[str, Any], config: Mapping[str, Any], file: Mapping[str, Any]) -> str:
    """Return the class by which the reference builds a tokenizer anew; nothing where it obeys the file."""
    named = str(settings.get("tokenizer_class") or config.get("tokenizer_class") or "").removesuffix("Fast")
    model_type = str(config.get("model_type") or "")
    registered = REGISTERED.get(model_type)
    if registered == "":
        return ""
    if registered and (not named or model_type in _ALWAYS):
        return registered
    if named == "LlamaTokenizer" and '"ByteLevel"' in json.dumps([file.get("pre_tokenizer"), file.get("decoder")]):
        return ""
    return named if named in MADE else ""


def difference(kind: str, file: Mapping[str, Any], settings: Mapping[str, Any]) -> str:
    """Return a text that the tokenizer of a class cuts into other tokens than `tokenizer.json`; nothing if none is.

    Raises:
        MissingExtra: they differ in words, and the `tokenizers` package, which could compare them, is missing.
        InvalidModel: one can't be built.
    """
    made = MADE[kind]
    built = _built(made, file, settings)
    if all(built.get(part) == file.get(part) for part in ("model", "normalizer", "pre_tokenizer", "post_processor")):
        return ""
    try:
        from tokenizers import Tokenizer  # noqa: PLC0415  (heavy: only where a folder is read)
    except ImportError as exc:
        raise MissingExtra("models need the tokenizers package: pip install tokenizers") from exc
    try:
        ours, theirs = (Tokenizer.from_str(json.dumps(each)) for each in (file, built))
        for each in (ours, theirs):
            each.no_truncation()
            each.no_padding()
        return next((text for text in _probes(file) if _tokens(ours, text, made) != _tokens(theirs, text, made)), "")
    except Exception as exc:  # the package raises bare Exception
        raise InvalidModel(str(exc)) from exc


def _tokens(tokenizer: Any, text: str, made: Made) -> list[Any]:  # noqa: ANN401  (the package's own)
    both = [tokenizer.encode(text), tokenizer.encode(text, "a")]
    return [each.ids for each in both] + ([each.type_ids for each in both] if made.typed else [])


def _probes(file: Mapping[str, Any]) -> Iterator[str]:
    """Yield texts, among them some of the vocabulary's own words."""
    yield from _TEXTS
    vocabulary = file["model"].get("vocab") or ()
    words = [each if isinstance(each, str) else str(each[0]) for each in vocabulary]
    some = [word.strip("▁Ġ#") for word in words[:: max(1, len(words) // _SAMPLE)]]
    yield from (" ".join(some), ",".join(some), "".join(some), " ".join(some).title(), "  ".join(some))


def _built(made: Made, file: Mapping[str, Any], settings: Mapping[str, Any]) -> dict[str, Any]:
    """Return the file with what a class makes in the place of its own steps."""
    built = dict(file)
    built["model"] = _model(made, file["model"], settings)
    if made.normalizer is not _KEPT:
        built["normalizer"] = made.normalizer and dict(made.normalizer)
    if made.normalizer is _BERT_NORMALIZER:
        built["normalizer"] = _of_bert(file.get("normalizer"), settings)
    built["pre_tokenizer"] = _prefixed(made, settings.get("add_prefix_space"))
    if made.first and made.last:
        built["post_processor"] = _template(made, file, settings)
    return built


def _model(made: Made, model: Mapping[str, Any], settings: Mapping[str, Any]) -> dict[str, Any]:
    kind, vocabulary = model.get("type"), model.get("vocab")
    if made.model == "Unigram" and kind == made.model:
        return dict(model)
    if made.model == "Unigram" or not isinstance(vocabulary, dict):
        raise InvalidModel(f"a model of the kind {made.model} is needed, and it is {kind}")
    if made.model == "WordPiece":
        unknown = _token(settings, "unk_token", "[UNK]")
        sizes = {"continuing_subword_prefix": "##", "max_input_chars_per_word": 100}
        return {"type": "WordPiece", "unk_token": unknown, **sizes, "vocab": vocabulary}
    kept = dict(model) if kind == "BPE" else {"type": "BPE", "vocab": vocabulary, "merges": []}
    return kept | {"ignore_merges": False} | dict(made.model_settings or {})


def _of_bert(normalizer: object, settings: Mapping[str, Any]) -> dict[str, Any]:
    """Return the normaliser of BERT's kin; what it says of letters is compared with the file by `folder_tokenizer`."""
    named = {"handle_chinese_chars": "tokenize_chinese_chars", "strip_accents": "strip_accents"}
    named["lowercase"] = "do_lower_case"
    if isinstance(normalizer, dict) and normalizer.get("type") == "BertNormalizer":
        return dict(_BERT_NORMALIZER) | {key: normalizer[key] for key in named if key in normalizer}
    return dict(_BERT_NORMALIZER) | {key: settings[name] for key, name in named.items() if name in settings}


def _prefixed(made: Made, prefixed: object) -> Any:  # noqa: ANN401  (any JSON)
    """Return a class's pre-tokenizer with a blank before a text, or none, as the settings say."""
    if not isinstance(prefixed, bool):
        return made.pre_tokenizer

    def changed(step: Mapping[str, Any]) -> dict[str, Any]:
        if step["type"] == "Metaspace" and not prefixed:
            return {**step, "prepend_scheme": "never"}
        return {**step, "add_prefix_space": prefixed} if step["type"] == "ByteLevel" else dict(step)

    steps = (made.pre_tokenizer or {}).get("pretokenizers")
    return _sequence(*map(changed, steps)) if steps else changed(made.pre_tokenizer or {})


def _template(made: Made, file: Mapping[str, Any], settings: Mapping[str, Any]) -> dict[str, Any]:
    first, last = (_token(settings, *each) for each in (made.first, made.last) if each)
    ids = {token: _id_of(token, file) for token in (first, last)}

    def special(token: str, kind: int = 0) -> dict[str, Any]:
        return {"SpecialToken": {"id": token, "type_id": kind}}

    one, second = {"Sequence": {"id": "A", "type_id": 0}}, int(made.typed)
    two = {"Sequence": {"id": "B", "type_id": second}}
    return {
        "type": "TemplateProcessing",
        "single": [special(first), one, special(last)],
        "pair": [special(first), one, *([special(last)] * made.between), two, special(last, second)],
        "special_tokens": {token: {"id": token, "ids": [at], "tokens": [token]} for token, at in ids.items()},
    }


def _token(settings: Mapping[str, Any], key: str, default: str) -> str:
    named = settings.get(key) or default
    return str(named.get("content", default) if isinstance(named, dict) else named)


def _id_of(token: str, file: Mapping[str, Any]) -> int:
    added = next((each["id"] for each in file.get("added_tokens") or () if each.get("content") == token), None)
    if added is not None:
        return int(added)
    vocabulary = file["model"].get("vocab")
    if isinstance(vocabulary, dict) and token in vocabulary:
        return int(vocabulary[token])
    if isinstance(vocabulary, list):
        found = next((at for at, each in enumerate(vocabulary) if each[0] == token), None)
        if found is not None:
            return found
    raise InvalidModel(f"the token {token!r}, which stands at an end of a text, isn't in its vocabulary")
