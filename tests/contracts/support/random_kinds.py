"""Architectures with settings drawn at random, among those that their configuration classes read."""

from __future__ import annotations

import random
from typing import Any

from kinds import KINDS, Kind

POOLINGS = ("cls", "mean", "lasttoken")
_LAYERS = {
    "num_hidden_layers": [1, 2, 3],
    "num_attention_heads": [1, 2, 4, 8],
    "intermediate_size": [16, 48, 100],
    "initializer_range": [0.1, 0.2, 0.4],
    "tie_word_embeddings": [True, False],
    "output_hidden_states": [True, False],
}
_ENCODER = _LAYERS | {
    "hidden_act": ["gelu", "relu", "silu", "gelu_new", "gelu_pytorch_tanh", "quick_gelu"],
    "layer_norm_eps": [1e-12, 1e-5, 1e-2],
}
_CAUSAL = _ENCODER | {"is_decoder": [False, False, True]}
_ROPES = [
    {"rope_type": "default", "rope_theta": 100.0},
    {"rope_type": "default", "rope_theta": 1e6},
    {"rope_type": "linear", "rope_theta": 1e4, "factor": 4.0},
    {"rope_type": "dynamic", "rope_theta": 1e4, "factor": 2.0},
    {"rope_type": "yarn", "rope_theta": 1e4, "factor": 2.0, "original_max_position_embeddings": 20},
    {
        "rope_type": "llama3",
        "rope_theta": 1e4,
        "factor": 8.0,
        "low_freq_factor": 1.0,
        "high_freq_factor": 4.0,
        "original_max_position_embeddings": 16,
    },
    {
        "rope_type": "longrope",
        "rope_theta": 1e4,
        "short_factor": [1.0, 1.5, 2.0, 2.5],
        "long_factor": [2.0, 3.0, 4.0, 5.0],
        "factor": 2.0,
        "original_max_position_embeddings": 20,
    },
]
_DECODER = _LAYERS | {
    "num_attention_heads": [4, 8],
    "num_key_value_heads": [1, 2, 4],
    "hidden_act": ["silu", "gelu", "relu", "gelu_pytorch_tanh"],
    "rms_norm_eps": [1e-6, 1e-2],
    "attention_bias": [True, False],
    "mlp_bias": [True, False],
    "rope_parameters": _ROPES,
    "pad_token_id": [None, 0, 1, 2],
}
_DEBERTA = _ENCODER | {
    "relative_attention": [True, False],
    "max_relative_positions": [-1, 8, 40],
    "position_biased_input": [True, False],
    "pos_att_type": [[], ["c2p"], ["p2c"], ["p2c", "c2p"]],
    "type_vocab_size": [0, 2],
    "pooler_hidden_act": ["gelu", "relu", "tanh"],
}
SETTINGS: dict[str, dict[str, list[Any]]] = {
    "BERT": _CAUSAL | {"type_vocab_size": [2, 3]},
    "DistilBERT": {
        "n_layers": [1, 2, 3],
        "n_heads": [1, 2, 4],
        "hidden_dim": [16, 100],
        "activation": ["gelu", "relu"],
        "sinusoidal_pos_embds": [True, False],
        "seq_classif_dropout": [0.1, 0.9],
    },
    "RoBERTa": _CAUSAL | {"type_vocab_size": [1, 2]},
    "XLM-R": _CAUSAL | {"type_vocab_size": [1, 2]},
    "XLM-R-XL": _CAUSAL | {"type_vocab_size": [1, 2]},
    "RoBERTa pre-layer-norm": _CAUSAL,
    "XMOD": _ENCODER
    | {
        "pre_norm": [True, False],
        "adapter_reduction_factor": [2, 4],
        "adapter_layer_norm": [True, False],
        "adapter_reuse_layer_norm": [True, False],
        "ln_before_adapter": [True, False],
    },
    "CamemBERT": _CAUSAL,
    "data2vec-text": _CAUSAL,
    "MPNet": _ENCODER | {"relative_attention_num_buckets": [8, 32]},
    "ModernBERT": _LAYERS
    | {
        "hidden_activation": ["gelu", "silu", "relu"],
        "local_attention": [4, 8, 64],
        "global_attn_every_n_layers": [1, 2, 3],
        "attention_bias": [True, False],
        "mlp_bias": [True, False],
        "norm_bias": [True, False],
        "classifier_bias": [True, False],
        "classifier_pooling": ["cls", "mean"],
        "classifier_activation": ["gelu", "relu"],
    },
    "DeBERTa v1": _DEBERTA,
    "DeBERTa v2": _DEBERTA
    | {
        "position_buckets": [-1, 4, 8],
        "norm_rel_ebd": ["none", "layer_norm"],
        "share_att_key": [True, False],
        "conv_kernel_size": [0, 3],
        "conv_act": ["tanh", "gelu"],
    },
    "ELECTRA": _CAUSAL | {"embedding_size": [16, 32], "type_vocab_size": [2, 3]},
    "ALBERT": _ENCODER | {"embedding_size": [8, 32], "num_hidden_groups": [1], "inner_group_num": [1, 2]},
    "GPT-2": {
        "n_layer": [1, 2, 3],
        "n_head": [1, 2, 4],
        "n_inner": [None, 16],
        "activation_function": ["gelu_new", "relu", "silu", "tanh"],
        "layer_norm_epsilon": [1e-5, 1e-2],
        "scale_attn_weights": [True, False],
        "scale_attn_by_inverse_layer_idx": [True, False],
        "reorder_and_upcast_attn": [True, False],
        "initializer_range": [0.1, 0.3],
        "pad_token_id": [None, 1, 2],
    },
    "Qwen2": _DECODER
    | {
        "use_sliding_window": [True, False],
        "sliding_window": [4, 16],
        "max_window_layers": [0, 1, 2],
        "is_causal": [True, False],
    },
    "Qwen3": _DECODER | {"head_dim": [8], "use_sliding_window": [True, False], "sliding_window": [4, 16]},
    "Llama": _DECODER | {"is_causal": [True, False]},
    "Mistral": _DECODER | {"sliding_window": [None, 4, 16]},
    "Gemma 3 text": _LAYERS
    | {
        "num_attention_heads": [4, 8],
        "num_key_value_heads": [1, 2, 4],
        "use_bidirectional_attention": [True, False],
        "sliding_window": [4, 16, 64],
        "query_pre_attn_scalar": [8, 64],
        "attn_logit_softcapping": [None, 2.0],
        "hidden_activation": ["gelu_pytorch_tanh", "silu"],
        "layer_types": [
            ["full_attention"] * 3,
            ["sliding_attention"] * 2 + ["full_attention"],
            ["sliding_attention"] * 3,
        ],
        "num_hidden_layers": [3],
    },
}


def random_kind(seed: int) -> tuple[Kind, bool, str]:
    """Return an architecture with settings of a seed, whether it classifies, and its pooling."""
    drawn = random.Random(seed)  # noqa: S311  (a test's choice)
    names = list(SETTINGS)
    name = names[seed % len(names)]
    settings = {key: drawn.choice(values) for key, values in SETTINGS[name].items()}
    kind = KINDS[name].changed(**settings)
    if "num_key_value_heads" in settings:  # each of a group of heads has the size of four
        kind = kind.changed(head_dim=8, num_attention_heads=max(4, settings["num_attention_heads"]))
    return kind, drawn.random() < 0.5, drawn.choice(POOLINGS)
