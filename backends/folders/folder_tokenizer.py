"""What `tokenizer_config.json` says: it must agree with `tokenizer.json`, from which texts are cut into tokens here.

The reference makes some tokenizers anew from the vocabulary and these settings. Where both files say the same, so do
both programs.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from backends.errors import InvalidModel
from backends.folders import folder_keys, tokenizer_classes
from backends.folders.folder_json import read_object

if TYPE_CHECKING:
    from pathlib import Path

    from backends.folders.folder_keys import Vouched

# Classes that the reference makes anew with a BertNormalizer of these settings, and the architectures that have them.
_BERT_CLASSES = {"BertTokenizer", "DistilBertTokenizer", "ElectraTokenizer", "MPNetTokenizer"}
_BERT_TYPES = {"bert", "distilbert", "electra", "mpnet"}
_OTHER_LOWERING = {"AlbertTokenizer", "DebertaV2Tokenizer"}
_IN_DIGEST = ("model_input_names", "tokenizer_class", "truncation_side")


def check(folder: Path, tokenizer: str, vouched: Vouched) -> None:
    """Refuse settings that aren't understood, or that contradict `tokenizer.json`.

    Raises:
        InvalidModel: the message names the key, and how to vouch for it.
    """
    path = folder / "tokenizer_config.json"
    settings = read_object(path)
    folder_keys.check(path, settings, path.name, vouched)
    config = read_object(folder / "config.json")
    kind = str(settings.get("tokenizer_class") or config.get("tokenizer_class") or "").removesuffix("Fast")
    if not settings and not kind:
        return  # the folder has nothing beside tokenizer.json
    _check_words(path, tokenizer, kind, vouched)
    _check_class(path, tokenizer, vouched)


def _check_words(path: Path, tokenizer: str, kind: str, vouched: Vouched) -> None:
    """Refuse settings that contradict the steps of `tokenizer.json`."""
    folder, settings = path.parent, read_object(path)
    config = read_object(folder / "config.json")
    is_bert = kind in _BERT_CLASSES or (not kind and config.get("model_type") in _BERT_TYPES)
    if not is_bert and kind not in _OTHER_LOWERING and not settings.keys() & {"add_bos_token", "add_eos_token"}:
        return
    file = read_object(folder / tokenizer)
    done: dict[str, object] = {}
    steps = _flat(file.get("normalizer"), "normalizers")
    if is_bert and (normalizer := next((each for each in steps if each.get("type") == "BertNormalizer"), None)):
        done = {
            "do_lower_case": normalizer.get("lowercase", True),
            "strip_accents": normalizer.get("strip_accents"),
            "tokenize_chinese_chars": normalizer.get("handle_chinese_chars", True),
        }
    elif kind in _OTHER_LOWERING:
        done = {"do_lower_case": any(each.get("type") == "Lowercase" for each in steps)}
    if not is_bert:
        done |= _added(file)
    # Accents are stripped where letters are lowered, if nothing is said.
    if done.get("strip_accents", "") is None:
        done["strip_accents"] = done["do_lower_case"]
    for key, does in done.items():
        # The reference lowers letters where a tokenizer of this kind isn't told not to.
        says = settings.get(key, True if is_bert and key == "do_lower_case" else None)
        if says is not None and bool(says) != bool(does) and not vouched.accepts(key):
            raise folder_keys.refusal(path, key, says, f"contradicts {tokenizer}, by which texts are cut here")


def _check_class(path: Path, tokenizer: str, vouched: Vouched) -> None:
    """Refuse a class by which the reference would cut texts into other tokens than `tokenizer.json`."""
    settings, file = read_object(path), read_object(path.parent / tokenizer)
    kind = tokenizer_classes.class_of(settings, read_object(path.parent / "config.json"), file)
    if not kind:
        return
    try:
        text = tokenizer_classes.difference(kind, file, settings)
        why = f"cuts the text {text[:60]!r} otherwise than {tokenizer}" if text else ""
    except InvalidModel as exc:
        why = f"can't be made of {tokenizer}: {exc}"
    if why and not vouched.accepts("tokenizer_class"):
        said = settings.get("tokenizer_class")
        why = f"has the reference build a {kind} of the vocabulary, and that {why}"
        raise folder_keys.refusal(path, "tokenizer_class", said, why)


def canonical(folder: Path) -> dict[str, Any]:
    """Return what of the settings changes an answer beside the length: it belongs to a model's identity."""
    settings = read_object(folder / "tokenizer_config.json")
    return {key: settings[key] for key in _IN_DIGEST if key in settings}


def longest(path: Path) -> int | None:
    """Return the number of tokens that a `tokenizer.json` itself cuts a text to; None if it doesn't.

    Raises:
        InvalidModel: it can't be read.
    """
    cut = read_object(path).get("truncation")
    if cut is None:
        return None
    if not isinstance(cut, dict) or not isinstance(cut.get("max_length"), int):
        raise InvalidModel(f"{path} has values of another kind than a tokenizer's: truncation is {cut!r:.60}")
    return int(cut["max_length"])


def _added(file: dict[str, Any]) -> dict[str, object]:
    """Return which ends of a text get a special token, where a template says so."""
    for each in _flat(file.get("post_processor"), "processors"):
        if each.get("type") == "TemplateProcessing":
            single = [next(iter(piece)) for piece in each.get("single") or [{"Sequence": 0}]]
            return {"add_bos_token": single[0] == "SpecialToken", "add_eos_token": single[-1] == "SpecialToken"}
        if each.get("type") in {"BertProcessing", "RobertaProcessing"}:
            return {"add_bos_token": True, "add_eos_token": True}
    return {"add_bos_token": False, "add_eos_token": False}


def _flat(node: object, inside: str) -> list[dict[str, Any]]:
    """Return the steps of a normaliser or a post-processor, which may be a sequence of sequences."""
    if not isinstance(node, dict):
        return []
    if node.get("type") == "Sequence":
        return [step for each in node.get(inside) or () for step in _flat(each, inside)]
    return [node]
