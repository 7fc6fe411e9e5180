"""Tiny random models of any architecture that transformers knows, saved as it and sentence-transformers save them."""

from __future__ import annotations

import json
from typing import TYPE_CHECKING, Any

import sentence_transformers
import torch
import transformers
from kinds import POSITIONS, QUERY, TEMPLATES, WORDS, Kind
from sentence_transformers.sentence_transformer.modules import Normalize, Pooling, Transformer
from tokenizers import Tokenizer, models, normalizers, pre_tokenizers, processors, trainers
from transformers.models.auto.modeling_auto import MODEL_FOR_SEQUENCE_CLASSIFICATION_MAPPING_NAMES

if TYPE_CHECKING:
    from collections.abc import Sequence
    from pathlib import Path

    import numpy as np
    from numpy.typing import NDArray


def has_classifier(kind: Kind) -> bool:
    """Return whether transformers has a sequence classifier of this architecture."""
    return kind.model_type in MODEL_FOR_SEQUENCE_CLASSIFICATION_MAPPING_NAMES


def tokenizer_of(kind: Kind, *, length: int = POSITIONS) -> Any:
    """Return a tokenizer of words, or of bytes as Qwen2 has it, as transformers wraps it."""
    if kind.tokens == "bytes":
        return _of_bytes(length)
    special, single, pair = TEMPLATES[kind.tokens]
    vocabulary = {token: at for at, token in enumerate([*special, *dict.fromkeys(WORDS)])}
    unknown = next(token for token in special if "unk" in token.lower())
    made = Tokenizer(models.WordLevel(vocabulary, unk_token=unknown))
    made.normalizer = normalizers.Lowercase()
    made.pre_tokenizer = pre_tokenizers.Whitespace()
    ids = [(token, vocabulary[token]) for token in special]
    if kind.tokens != "none":
        made.post_processor = processors.TemplateProcessing(single=single, pair=pair, special_tokens=ids)
    names = ["input_ids", *(["token_type_ids"] if kind.typed else []), "attention_mask"]
    pad = next(token for token in special if "pad" in token.lower())
    return transformers.PreTrainedTokenizerFast(
        tokenizer_object=made, pad_token=pad, unk_token=unknown, model_max_length=length, model_input_names=names
    )


def _of_bytes(length: int) -> Any:
    """Return the tokenizer that transformers makes of a vocabulary for Qwen2, whatever tokenizer.json says."""
    made = Tokenizer(models.BPE())
    made.pre_tokenizer = pre_tokenizers.ByteLevel(add_prefix_space=False)
    trainer = trainers.BpeTrainer(
        vocab_size=320, initial_alphabet=pre_tokenizers.ByteLevel.alphabet(), special_tokens=["<|endoftext|>"]
    )
    made.train_from_iterator([f" {word}" for word in WORDS] * 3, trainer)
    model = json.loads(made.to_str())["model"]
    merges = [tuple(merge) for merge in model["merges"]]
    return transformers.Qwen2Tokenizer(vocab=model["vocab"], merges=merges, model_max_length=length)


def module_of(kind: Kind, *, classify: bool, seed: int = 0) -> Any:
    """Return transformers' module with random weights, no two of them alike."""
    tokenizer = tokenizer_of(kind)
    given = {"vocab_size": len(tokenizer) + 3, "pad_token_id": tokenizer.pad_token_id} | kind.settings
    special = {"bos_token_id": None, "eos_token_id": None} if kind.tokens != "bert" else {}
    config = transformers.AutoConfig.for_model(kind.model_type, **(special | given))
    config.num_labels = 1
    torch.manual_seed(seed)
    auto = transformers.AutoModelForSequenceClassification if classify else transformers.AutoModel
    module = auto.from_config(config).eval()
    with torch.no_grad():
        for name, value in module.named_parameters():
            if value.ndim == 1:  # all alike at first, which would hide one that is taken for another
                value.add_(torch.randn(value.shape), alpha=0.2)
            elif "score" in name or "classifier" in name:
                value.normal_(std=0.5)
    return module


def save(kind: Kind, folder: Path, *, classify: bool, pooling: str = "mean", seed: int = 0) -> Path:
    """Write a random model into a folder: an embedder as sentence-transformers saves it, or a cross-encoder."""
    module = module_of(kind, classify=classify, seed=seed)
    module.save_pretrained(folder)
    tokenizer_of(kind).save_pretrained(folder)
    if not classify:
        transformer = Transformer(str(folder))
        parts = [transformer, Pooling(transformer.get_embedding_dimension(), pooling_mode=pooling), Normalize()]
        sentence_transformers.SentenceTransformer(modules=parts, device="cpu").save(str(folder))
    return folder


def reference(folder: Path, texts: Sequence[str], *, classify: bool) -> NDArray[np.float32]:
    """Return what sentence-transformers answers, each text alone: vectors, or logits for the query."""
    if classify:
        scorer = sentence_transformers.CrossEncoder(str(folder), device="cpu", model_kwargs={"dtype": torch.float32})
        pairs = [(QUERY, text) for text in texts]
        return scorer.predict(pairs, batch_size=1, activation_fn=torch.nn.Identity(), show_progress_bar=False)
    embedder = sentence_transformers.SentenceTransformer(
        str(folder), device="cpu", model_kwargs={"dtype": torch.float32}
    )
    return embedder.encode(list(texts), batch_size=1, show_progress_bar=False)
