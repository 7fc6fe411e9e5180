"""What is known of architectures by their names: how they count positions, and which weights are not of the encoder."""

from __future__ import annotations

import re
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping

# These count positions from the padding's id on, so that many of their positions, and one, are never a token's.
OFFSET_POSITIONS = frozenset(
    {
        "camembert",
        "data2vec-text",
        "esm",
        "ibert",
        "lilt",
        "longformer",
        "luke",
        "mpnet",
        "roberta",
        "roberta-prelayernorm",
        "xlm-roberta",
        "xlm-roberta-xl",
        "xmod",
    }
)
WRITTEN_OUT = frozenset({"bert", "roberta", "xlm-roberta", "camembert"})  # families that `bert_encoder` computes
# Encoders of what transformers would otherwise load with a decoder beside them.
ENCODERS = {
    "longt5": "LongT5EncoderModel",
    "mt5": "MT5EncoderModel",
    "t5": "T5EncoderModel",
    "umt5": "UMT5EncoderModel",
}
_PADDING = 1  # the padding's id of all that count from it, where config.json doesn't say
# Of a head for another task (a pooler beside them), and what is computed anew: no part of what an embedder computes.
_HEADS = (
    "classifier",
    "cls",
    "decoder",
    "discriminator_predictions",
    "generator_lm_head",
    "generator_predictions",
    "head",
    "lm_head",
    "lm_predictions",
    "mask_predictions",
    "mlm_head",
    "predictions",
    "qa_outputs",
    "score",
    "sop_classifier",
    "vocab_layer_norm",
    "vocab_projector",
    "vocab_transform",
)
_BUFFERS = ("attn.bias", "inv_freq", "masked_bias", "position_ids", "token_type_ids")
_UNREAD = re.compile(rf"^({'|'.join(_HEADS)})(\.|$)|(^|\.)pooler\.|(^|\.)({'|'.join(map(re.escape, _BUFFERS))})$")


def padding_of(config: Mapping[str, Any]) -> int | None:
    """Return the padding's id that positions are counted from; None where they are counted from 0."""
    if config.get("model_type") not in OFFSET_POSITIONS:
        return None
    stated = _PADDING if config["model_type"] == "mpnet" else config.get("pad_token_id", _PADDING)  # MPNet's is fixed
    return stated if isinstance(stated, int) else None


def positions_of(config: Mapping[str, Any]) -> int | None:
    """Return how many tokens have a position, as far as config.json says."""
    stated = next((config[key] for key in ("max_position_embeddings", "n_positions") if config.get(key)), None)
    if not isinstance(stated, int) or stated < 1:  # XLNet says -1 for no limit
        return None
    padding = padding_of(config)
    return stated if padding is None else stated - padding - 1


def depends_on_length(config: Any) -> bool:  # noqa: ANN401  (transformers' configuration)
    """Return whether a token's position is told by the length of its batch, padding included."""
    stated = getattr(config.get_text_config(), "rope_parameters", None) or {}
    parameters = [stated, *(value for value in stated.values() if isinstance(value, dict))]
    return any(each.get("rope_type") in {"dynamic", "longrope"} for each in parameters)


def unread(names: Iterable[str], *, classify: bool) -> list[str]:
    """Return the names of weights that the encoder must read and doesn't, of those that it didn't read.

    With `classify` a pooler and a classifier are read, and count.
    """
    return sorted(name for name in names if not _UNREAD.search(name) or (classify and _is_of_classifier(name)))


def _is_of_classifier(name: str) -> bool:
    return any(part in {"classifier", "pooler", "score"} for part in name.split("."))
