"""A collection that a very small model learns in seconds: of a topic's documents the one with "right" answers."""

from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np
import pytest
from tokenizers import Tokenizer, models, pre_tokenizers, processors

from vectorsearch.evaluation.collecting.topics import Topics

if TYPE_CHECKING:
    from pathlib import Path

TOPICS = [f"topic{i}" for i in range(40)]
OTHERS = [f"word{i}" for i in range(20)]
JUDGED = Topics({f"q{i}": topic for i, topic in enumerate(TOPICS)}, {f"q{i}": {f"{i}-3": 1} for i in range(40)})


def documents() -> list[dict[str, str]]:
    """Return five documents for each topic, of which the fourth answers it."""
    rng = np.random.default_rng(0)
    rows = []
    for i, topic in enumerate(TOPICS):
        words = rng.choice(OTHERS, (5, 6)).astype(object)
        words[3, rng.integers(6)] = "right"
        rows += [{"id": f"{i}-{n}", "text": " ".join([topic, *each])} for n, each in enumerate(words)]
    return rows


def write_base(folder: Path) -> Path:
    """Write a random cross-encoder of two layers over these words."""
    torch, transformers = pytest.importorskip("torch"), pytest.importorskip("transformers")
    vocabulary = {word: i for i, word in enumerate(["[PAD]", "[UNK]", "[CLS]", "[SEP]", "right", *TOPICS, *OTHERS])}
    tokenizer = Tokenizer(models.WordLevel(vocabulary, unk_token="[UNK]"))  # noqa: S106 -- no password
    tokenizer.pre_tokenizer = pre_tokenizers.Whitespace()
    tokenizer.post_processor = processors.TemplateProcessing(
        single="[CLS] $A [SEP]", pair="[CLS] $A [SEP] $B:1 [SEP]:1", special_tokens=[("[CLS]", 2), ("[SEP]", 3)]
    )
    sizes = {"hidden_size": 32, "num_hidden_layers": 2, "num_attention_heads": 4, "intermediate_size": 64}
    config = transformers.BertConfig(
        **sizes, vocab_size=len(vocabulary), num_labels=1, initializer_range=0.2, max_position_embeddings=64
    )
    torch.manual_seed(1)
    transformers.BertForSequenceClassification(config).save_pretrained(folder)
    named = {"pad_token": "[PAD]", "unk_token": "[UNK]", "cls_token": "[CLS]", "sep_token": "[SEP]"}
    transformers.PreTrainedTokenizerFast(tokenizer_object=tokenizer, **named).save_pretrained(folder)
    return folder
