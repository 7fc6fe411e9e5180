"""Small embedders as ONNX folders: one that behaves, and some that somebody with bad intentions might register."""

from __future__ import annotations

import json
from typing import TYPE_CHECKING, Any

import numpy as np
import onnx
from onnx import TensorProto, helper, numpy_helper
from tokenizers import Regex, Tokenizer, models, normalizers, pre_tokenizers

if TYPE_CHECKING:
    from pathlib import Path

DIM = 8
WORDS = ("[PAD]", "[UNK]", "read", "a", "file", "files", "full", "rows", "warm", "the")
_KINDS = ("honest", "greedy", "endless", "sociable", "dying", "crowded", "random", "nan")


def write_embedder(
    folder: Path,
    kind: str = "honest",
    *,
    nbytes: int = 600 << 20,
    normalizer: Any = None,
    splitter: Any = None,
    max_length: int = 32,
    seed: int = 0,
) -> Path:
    """Write an embedder.

    `greedy` holds so many bytes in each batch, `endless` never comes to an end, `sociable` takes the mean of the batch
    off each vector, `dying` fails in the runtime, `nan` divides by zero, `crowded` holds a kilobyte for each pair of
    rows, `random` draws numbers too small to be seen, in the body of a condition.
    """
    assert kind in _KINDS
    folder.mkdir(parents=True, exist_ok=True)
    config = {"model_type": "bert", "architectures": ["BertModel"], "hidden_size": DIM}
    config["max_position_embeddings"] = max_length
    (folder / "config.json").write_text(json.dumps(config), encoding="utf-8")
    tokenizer = Tokenizer(models.WordLevel({word: i for i, word in enumerate(WORDS)}, unk_token=WORDS[1]))
    tokenizer.pre_tokenizer = splitter or pre_tokenizers.Whitespace()
    if normalizer is not None:
        tokenizer.normalizer = normalizer
    tokenizer.save(str(folder / "tokenizer.json"))
    nodes = _nodes(kind)
    table = np.random.default_rng(seed).normal(size=(len(WORDS), DIM)).astype(np.float32)
    graph = helper.make_graph(
        [helper.make_node("Gather", ["table", "input_ids"], ["tokens"]), *nodes],
        "embedder",
        [
            helper.make_tensor_value_info(name, TensorProto.INT64, ["n", "l"])
            for name in ("input_ids", "attention_mask")
        ],
        [helper.make_tensor_value_info("last_hidden_state", TensorProto.FLOAT, ["n", "l", DIM])],
        [numpy_helper.from_array(table, "table"), *_constants(nbytes)],
    )
    model = helper.make_model(graph, opset_imports=[helper.make_opsetid("", 17)], ir_version=9)
    onnx.save(model, folder / "model.onnx")
    return folder


def grows(pattern: str, times: int) -> Any:
    """Return a normaliser that makes `times` characters of each `pattern`."""
    return normalizers.Replace(pattern, "file " * (times // 5))


def panics() -> Any:
    """Return a splitter whose regular expression gives up on a long run of one letter, which is a panic."""
    return pre_tokenizers.Split(Regex("(a+)+$"), "isolated")


def _constants(nbytes: int) -> list[Any]:
    return [
        numpy_helper.from_array(np.array([nbytes // 4], np.int64), "many"),
        numpy_helper.from_array(np.array(0.0, np.float32), "zero"),
        numpy_helper.from_array(np.array(1 << 62, np.int64), "ever"),
        numpy_helper.from_array(np.array(True), "yes"),
        numpy_helper.from_array(np.array([0], np.int64), "rows"),
        numpy_helper.from_array(np.array([16, 16], np.int64), "often"),
    ]


def _nodes(kind: str) -> list[Any]:
    node = helper.make_node
    if kind == "greedy":
        count = node(
            "ConstantOfShape", ["many"], ["filled"], value=helper.make_tensor("v", TensorProto.FLOAT, [1], [1])
        )
        steps = [
            node("ReduceMax", ["tokens"], ["top"], keepdims=0),  # so that the runtime can't compute it once for all
            count,
            node("Add", ["filled", "top"], ["large"]),
            node("ReduceMean", ["large"], ["mean"], keepdims=0),
            node("Mul", ["mean", "zero"], ["nothing"]),
        ]
        return [*steps, node("Add", ["tokens", "nothing"], ["last_hidden_state"])]
    if kind == "sociable":
        steps = [node("ReduceMean", ["tokens"], ["mean"], axes=[0, 1], keepdims=1)]
        return [*steps, node("Sub", ["tokens", "mean"], ["last_hidden_state"])]
    if kind == "endless":
        value = helper.make_tensor_value_info
        body = helper.make_graph(
            [node("Identity", ["go"], ["go_on"]), node("Add", ["x", "x"], ["double"])],
            "body",
            [value("i", TensorProto.INT64, []), value("go", TensorProto.BOOL, []), value("x", TensorProto.FLOAT, None)],
            [value("go_on", TensorProto.BOOL, []), value("double", TensorProto.FLOAT, None)],
        )
        return [node("Loop", ["ever", "yes", "tokens"], ["last_hidden_state"], body=body)]
    if kind == "dying":
        wrong = node("Reshape", ["tokens", "many"], ["flat"])
        return [wrong, node("Add", ["tokens", "flat"], ["last_hidden_state"])]
    if kind in {"crowded", "random"}:
        return _crowded() if kind == "crowded" else _random()
    plain = node("Div", ["tokens", "zero"], ["last_hidden_state"])
    return [plain if kind == "nan" else node("Identity", ["tokens"], ["last_hidden_state"])]


def _crowded() -> list[Any]:
    node = helper.make_node
    steps = [
        node("ReduceMean", ["tokens"], ["across"], axes=[1, 2], keepdims=0),
        node("Unsqueeze", ["across", "rows"], ["line"]),  # [1, n]
        node("Transpose", ["line"], ["column"]),
        node("Add", ["line", "column"], ["pairs"]),
        node("Tile", ["pairs", "often"], ["all"]),
        node("ReduceMean", ["all"], ["mean"], keepdims=0),
        node("Mul", ["mean", "zero"], ["nothing"]),
    ]
    return [*steps, node("Add", ["tokens", "nothing"], ["last_hidden_state"])]


def _random() -> list[Any]:
    node = helper.make_node
    value = helper.make_tensor_value_info
    drawn = [
        node("RandomNormalLike", ["tokens"], ["drawn"], scale=1e-9),
        node("Add", ["tokens", "drawn"], ["moved"]),
    ]
    body = helper.make_graph(drawn, "body", [], [value("moved", TensorProto.FLOAT, None)])
    plain = helper.make_graph(
        [node("Identity", ["tokens"], ["same"])], "plain", [], [value("same", TensorProto.FLOAT, None)]
    )
    return [node("If", ["yes"], ["last_hidden_state"], then_branch=body, else_branch=plain)]


def write_bert(folder: Path) -> Path:
    """Write a random BERT of two layers as safetensors, with the words of the other models here."""
    from transformers import BertConfig, BertModel  # noqa: PLC0415  (heavy)

    sizes = {"hidden_size": 32, "num_hidden_layers": 2, "num_attention_heads": 2, "intermediate_size": 48}
    BertModel(BertConfig(vocab_size=len(WORDS), max_position_embeddings=64, **sizes)).save_pretrained(folder)
    tokenizer = Tokenizer(models.WordLevel({word: i for i, word in enumerate(WORDS)}, unk_token=WORDS[1]))
    tokenizer.pre_tokenizer = pre_tokenizers.Whitespace()
    tokenizer.save(str(folder / "tokenizer.json"))
    settings = {"tokenizer_class": "PreTrainedTokenizerFast", "pad_token": WORDS[0], "unk_token": WORDS[1]}
    settings["model_max_length"] = 64
    (folder / "tokenizer_config.json").write_text(json.dumps(settings), encoding="utf-8")
    return folder
