"""Tokenizers that the reference builds anew by their class: what it makes, and whether a file says the same."""

from __future__ import annotations

import json
from typing import TYPE_CHECKING, Any

import pytest

from backends.folders import folder_tokenizer, tokenizer_classes
from backends.folders.folder_keys import Vouched
from backends.folders.tokenizer_classes import MADE, REGISTERED

if TYPE_CHECKING:
    from pathlib import Path

_WORDS = ["[PAD]", "[UNK]", "[CLS]", "[SEP]", "<s>", "</s>", "dog", "cat", "a", "##s", ",", "Dog", "12345", "'", "t"]


def file_of(**changed: Any) -> dict[str, Any]:
    """Return a tokenizer.json of BERT's kind."""
    steps = {"type": "BertNormalizer", "clean_text": True, "handle_chinese_chars": True, "strip_accents": None}
    vocabulary = {word: at for at, word in enumerate(_WORDS)}
    sizes = {"continuing_subword_prefix": "##", "max_input_chars_per_word": 100}
    ends = {token: {"id": token, "ids": [vocabulary[token]], "tokens": [token]} for token in ("[CLS]", "[SEP]")}
    first, last = ({"SpecialToken": {"id": token, "type_id": 0}} for token in ("[CLS]", "[SEP]"))
    one, two = {"Sequence": {"id": "A", "type_id": 0}}, {"Sequence": {"id": "B", "type_id": 1}}
    pair = [first, one, last, two, {"SpecialToken": {"id": "[SEP]", "type_id": 1}}]
    return {
        "version": "1.0",
        "truncation": None,
        "padding": None,
        "added_tokens": [],
        "normalizer": {**steps, "lowercase": True},
        "pre_tokenizer": {"type": "BertPreTokenizer"},
        "post_processor": {
            "type": "TemplateProcessing",
            "single": [first, one, last],
            "pair": pair,
            "special_tokens": ends,
        },
        "decoder": None,
        "model": {"type": "WordPiece", "unk_token": "[UNK]", **sizes, "vocab": vocabulary},
        **changed,
    }


@pytest.mark.parametrize("kind", sorted(MADE))
def test_table_is_what_the_reference_makes_of_a_class(kind: str) -> None:
    """Each class of the table makes the steps and the ends that the installed transformers gives it (issue 13.1b)."""
    pytest.importorskip("transformers")
    from transformers.models.auto.tokenization_auto import tokenizer_class_from_name  # noqa: PLC0415  (heavy)

    found = tokenizer_class_from_name(kind)
    assert found is not None
    built, made = found(), MADE[kind]
    real = json.loads(built.backend_tokenizer.to_str())
    assert real["model"]["type"] in (made.model, None)
    if made.normalizer is not tokenizer_classes._KEPT:
        assert real["normalizer"] == made.normalizer
    assert real["pre_tokenizer"] == made.pre_tokenizer
    for key, value in (made.model_settings or {}).items():
        assert real["model"][key] == value
    if made.first and made.last:
        assert (str(getattr(built, made.first[0])), str(getattr(built, made.last[0]))) == (made.first[1], made.last[1])
        first, last = (built.convert_tokens_to_ids(end[1]) for end in (made.first, made.last))
        ids = built.backend_tokenizer.post_processor.num_special_tokens_to_add(is_pair=True)
        assert ids == 2 + made.between
        assert built("")["input_ids"] == [first, last]


def test_class_of_an_architecture_is_the_references() -> None:
    """Where a folder names no class, the one of its architecture is known as transformers has it (issue 13.1b)."""
    pytest.importorskip("transformers")
    from transformers.models.auto.tokenization_auto import TOKENIZER_MAPPING_NAMES  # noqa: PLC0415  (heavy)

    real = {name: str(TOKENIZER_MAPPING_NAMES[name]) for name in REGISTERED}
    assert {name: "" if kind == "TokenizersBackend" else kind for name, kind in real.items()} == dict(REGISTERED)


def test_file_is_taken_when_a_class_makes_the_same_of_it() -> None:
    """A file that says what its class does is served, steps in other words included (issue 13.1b)."""
    assert tokenizer_classes.difference("BertTokenizer", file_of(), {}) == ""
    assert tokenizer_classes.difference("BertTokenizer", file_of(), {"cls_token": {"content": "[CLS]"}}) == ""
    spelled = file_of()
    spelled["post_processor"] = {"type": "BertProcessing", "sep": ["[SEP]", 3], "cls": ["[CLS]", 2]}
    assert tokenizer_classes.difference("BertTokenizer", spelled, {}) == ""


@pytest.mark.parametrize(
    ("kind", "changed", "settings"),
    [
        ("BertTokenizer", {"pre_tokenizer": {"type": "WhitespaceSplit"}}, {}),
        ("BertTokenizer", {"post_processor": None}, {}),
        ("BertTokenizer", {}, {"cls_token": "<s>"}),
        ("BertTokenizer", {"normalizer": {"type": "Lowercase"}}, {"do_lower_case": False}),
        ("MPNetTokenizer", {}, {}),
        ("RobertaTokenizer", {}, {}),
        ("GemmaTokenizer", {}, {}),
        ("LlamaTokenizer", {}, {}),
        ("DebertaTokenizer", {}, {}),
    ],
)
def test_text_is_found_when_a_class_cuts_it_otherwise(
    kind: str, changed: dict[str, Any], settings: dict[str, Any]
) -> None:
    """A text that a class cuts into other tokens than the file is named (issue 13.1b)."""
    assert tokenizer_classes.difference(kind, file_of(**changed), settings)


@pytest.mark.parametrize(
    ("named", "model_type", "kind"),
    [
        ("BertTokenizerFast", "bert", "BertTokenizer"),
        (None, "bert", "BertTokenizer"),
        ("PreTrainedTokenizerFast", "bert", ""),
        ("MPNetTokenizer", "bert", "MPNetTokenizer"),
        ("PreTrainedTokenizerFast", "qwen2", "Qwen2Tokenizer"),
        ("LlamaTokenizerFast", "mistral", ""),
        ("BertTokenizer", "modernbert", ""),
        ("LlamaTokenizer", "llama", "LlamaTokenizer"),
        (None, "llama", ""),
    ],
)
def test_class_is_the_one_that_the_reference_would_take(named: str | None, model_type: str, kind: str) -> None:
    """What the folder names, or its architecture's; none where the reference obeys the file (issue 13.1b)."""
    assert tokenizer_classes.class_of({"tokenizer_class": named}, {"model_type": model_type}, file_of()) == kind


@pytest.mark.parametrize("kind", sorted(MADE))
def test_folder_is_not_refused_when_a_class_saved_it_as_it_is(kind: str, tmp_path: Path) -> None:
    """What a tokenizer of each class writes with its defaults is served (issue 13.1a)."""
    pytest.importorskip("transformers")
    from transformers.models.auto.tokenization_auto import tokenizer_class_from_name  # noqa: PLC0415  (heavy)

    found = tokenizer_class_from_name(kind)
    assert found is not None
    words = {"vocab": {"[UNK]": 0}} if MADE[kind].model == "WordPiece" else {}  # without it no text is cut at all
    found(**words).save_pretrained(tmp_path)
    folder_tokenizer.check(tmp_path, "tokenizer.json", Vouched())
