"""The architectures that are tried, and what they are asked: names and numbers, without an import that takes time."""

from __future__ import annotations

import string
from dataclasses import dataclass, field
from typing import Any

POSITIONS = 40  # tokens that a model has positions for, unless its kind says otherwise
WORDS = [*string.ascii_lowercase, *(f"{a}{b}" for a in "bdfk" for b in "aeiou"), "dog", "cat", "csv", "file"]
TEXTS = [
    "dog",
    "read a csv file",
    "",
    "the quick brown fox jumps over the lazy dog and a cat in the sun",
    "ba da fa ka be de fe ke bi",
    "a b c d e f g h i j k l m n o p q r s t u v w x y z " * 3,  # longer than any model here
]
QUERY = "how do i parse a file"

_BERT = {
    "hidden_size": 32,
    "num_hidden_layers": 2,
    "num_attention_heads": 4,
    "intermediate_size": 64,
    "max_position_embeddings": POSITIONS,
    "initializer_range": 0.2,
}
_ROBERTA = _BERT | {"max_position_embeddings": POSITIONS + 2, "type_vocab_size": 1}
_DECODER = _BERT | {"num_key_value_heads": 2, "head_dim": 8, "max_window_layers": 1}


@dataclass(frozen=True)
class Kind:
    """An architecture: its model type, its settings, and the special tokens of its tokenizer.

    `tokens` is one of `TEMPLATES`, or `bytes`, and `typed` whether the tokenizer names token types.
    """

    model_type: str
    settings: dict[str, Any] = field(default_factory=lambda: _BERT)
    tokens: str = "bert"
    typed: bool = False

    def changed(self, **settings: Any) -> Kind:
        """Return the same architecture with other settings."""
        return Kind(self.model_type, self.settings | settings, self.tokens, self.typed)


# Special tokens, by id; what a text gets around it, and a pair; whether the second text has types of its own.
TEMPLATES: dict[str, tuple[list[str], str, str]] = {
    "bert": (["[PAD]", "[UNK]", "[CLS]", "[SEP]"], "[CLS] $A [SEP]", "[CLS] $A [SEP] $B:1 [SEP]:1"),
    "roberta": (["<s>", "<pad>", "</s>", "<unk>"], "<s> $A </s>", "<s> $A </s> </s> $B </s>"),
    "none": (["<unk>", "<pad>", "<eos>"], "$A", "$A $B"),
    "eos": (["<unk>", "<pad>", "<eos>"], "$A <eos>", "$A $B <eos>"),
    "gemma": (["<pad>", "<eos>", "<bos>", "<unk>"], "<bos> $A <eos>", "<bos> $A $B <eos>"),
}

KINDS: dict[str, Kind] = {
    "BERT": Kind("bert", typed=True),
    "DistilBERT": Kind(
        "distilbert",
        {"dim": 32, "n_layers": 2, "n_heads": 4, "hidden_dim": 64, "max_position_embeddings": POSITIONS},
    ),
    "RoBERTa": Kind("roberta", _ROBERTA, "roberta"),
    "XLM-R": Kind("xlm-roberta", _ROBERTA, "roberta"),
    "XLM-R-XL": Kind("xlm-roberta-xl", _ROBERTA, "roberta"),
    "RoBERTa pre-layer-norm": Kind("roberta-prelayernorm", _ROBERTA, "roberta"),
    "XMOD": Kind("xmod", _ROBERTA | {"languages": ["en_XX", "de_DE"], "default_language": "en_XX"}, "roberta"),
    "CamemBERT": Kind("camembert", _ROBERTA, "roberta"),
    "data2vec-text": Kind("data2vec-text", _ROBERTA, "roberta"),
    "MPNet": Kind("mpnet", _BERT | {"max_position_embeddings": POSITIONS + 2}, "roberta"),
    "ModernBERT": Kind("modernbert", _BERT | {"local_attention": 8, "global_attn_every_n_layers": 2}),
    "DeBERTa v1": Kind("deberta", _BERT | {"relative_attention": True, "pos_att_type": ["c2p", "p2c"]}, typed=True),
    "DeBERTa v2": Kind(
        "deberta-v2",
        _BERT | {"relative_attention": True, "pos_att_type": ["p2c", "c2p"], "position_buckets": 8},
        typed=True,
    ),
    "ELECTRA": Kind("electra", _BERT | {"embedding_size": 16}, typed=True),
    "ALBERT": Kind("albert", _BERT | {"embedding_size": 16}),
    "GPT-2": Kind("gpt2", {"n_embd": 32, "n_layer": 2, "n_head": 4, "n_positions": POSITIONS}, "none"),
    "Qwen2": Kind("qwen2", _DECODER, "bytes"),
    "Qwen3": Kind("qwen3", _DECODER, "eos"),
    "Llama": Kind("llama", _DECODER, "gemma"),
    "Mistral": Kind("mistral", _DECODER | {"sliding_window": 8}, "none"),
    "Gemma 3 text": Kind(
        "gemma3_text",
        _DECODER | {"use_bidirectional_attention": True, "sliding_window": 8, "query_pre_attn_scalar": 8},
        "gemma",
    ),
}
