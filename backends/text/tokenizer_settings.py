"""What a folder says of its tokenizer beside `tokenizer.json`: what a model is fed, what pads it, which end is cut."""

from __future__ import annotations

import json
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from backends.errors import InvalidModel

if TYPE_CHECKING:
    from pathlib import Path

# Tokenizer classes of transformers 5.24 that name token types among what they give, and architectures whose tokenizer
# is of such a class where the folder names none. A test compares both with the installed transformers.
TYPED_CLASSES = frozenset(
    {
        "BertTokenizer",
        "CanineTokenizer",
        "ConvBertTokenizer",
        "DPRQuestionEncoderTokenizer",
        "DebertaTokenizer",
        "DebertaV2Tokenizer",
        "ElectraTokenizer",
        "FNetTokenizer",
        "LayoutLMTokenizer",
        "LayoutLMv2Tokenizer",
        "LxmertTokenizer",
        "MarkupLMTokenizer",
        "MobileBertTokenizer",
        "SqueezeBertTokenizer",
        "TapasTokenizer",
    }
)
TYPED_ARCHITECTURES = frozenset(
    {
        "bert",
        "bros",
        "canine",
        "convbert",
        "deberta",
        "deberta-v2",
        "distilbert",
        "dpr",
        "electra",
        "ernie",
        "fnet",
        "layoutlm",
        "layoutlmv2",
        "lxmert",
        "markuplm",
        "megatron-bert",
        "mobilebert",
        "nezha",
        "nomic_bert",
        "qdqbert",
        "realm",
        "retribert",
        "squeezebert",
        "tapas",
        "visual_bert",
    }
)


@dataclass(frozen=True, slots=True)
class TokenizerSettings:
    """`has_types`: whether the model is fed token types; `cuts_head`: whether a long text loses its head.

    `pad_id` is the padding's id by config.json: models that read their score at the last token know it by that.
    """

    has_types: bool = True
    cuts_head: bool = False
    pad_id: int | None = None

    @classmethod
    def read(cls, folder: Path) -> TokenizerSettings:
        """Read a folder's `tokenizer_config.json` and `config.json`; a folder that has neither gets the defaults.

        Raises:
            InvalidModel: a file can't be read, or a value is none of those that there are.
        """
        tokenizer, config = (_json(folder / name) for name in ("tokenizer_config.json", "config.json"))
        side = tokenizer.get("truncation_side", "right")
        if side not in ("left", "right"):
            raise InvalidModel(
                f"{folder / 'tokenizer_config.json'} has truncation_side {side!r}: left or right is known"
            )
        pad_id = config.get("pad_token_id")
        return cls(_has_types(tokenizer, config), side == "left", pad_id if isinstance(pad_id, int) else None)


def _has_types(tokenizer: dict[str, Any], config: dict[str, Any]) -> bool:
    named = tokenizer.get("model_input_names")
    if isinstance(named, list):
        return "token_type_ids" in named
    kind = tokenizer.get("tokenizer_class") or config.get("tokenizer_class")
    if isinstance(kind, str):
        return kind.removesuffix("Fast") in TYPED_CLASSES
    return config.get("model_type", "bert") in TYPED_ARCHITECTURES


def _json(path: Path) -> dict[str, Any]:
    try:
        found = json.loads(path.read_text(encoding="utf-8"))
    except FileNotFoundError:
        return {}
    except (OSError, ValueError, RecursionError) as exc:
        raise InvalidModel(f"can't read {path}: {exc}") from exc
    if not isinstance(found, dict):
        raise InvalidModel(f"{path} holds no object")
    return found
