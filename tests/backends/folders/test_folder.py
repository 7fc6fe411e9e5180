"""Folders in Hugging Face layout: what they say about a model is taken from the model's own files."""

from __future__ import annotations

import json
from typing import TYPE_CHECKING, Any

import numpy as np
import onnx
import pytest
from module_files import modules
from onnx import numpy_helper

from backends.catalogue import catalogue
from backends.errors import InvalidModel
from backends.folders import folder
from backends.graph.reading import signature

if TYPE_CHECKING:
    from pathlib import Path

MEAN = {"1_Pooling/config.json": {"pooling_mode_cls_token": False, "pooling_mode_mean_tokens": True}}


def test_description_is_the_folders_own_when_it_has_one(make_folder: Any) -> None:
    """Pooling, normalisation, prefixes and length come from sentence-transformers' files."""
    files = {
        "1_Pooling/config.json": {"pooling_mode_cls_token": True, "pooling_mode_mean_tokens": False},
        "modules.json": modules("Pooling"),
        "config_sentence_transformers.json": {"prompts": {"query": "q: ", "document": "d: "}},
        "sentence_bert_config.json": {"max_seq_length": 128},
    }
    spec = catalogue.resolve(make_folder(files=files))
    assert (spec.task, spec.pooling, spec.normalize, spec.dim) == ("embed", "cls", False, 8)
    assert (spec.query_prefix, spec.passage_prefix, spec.max_length) == ("q: ", "d: ", 128)


def test_mean_and_length_one_are_taken_when_the_folder_says_nothing(make_folder: Any) -> None:
    """Without those files: mean pooling, normalised, no prefix, 512 tokens."""
    spec = catalogue.resolve(make_folder())
    assert (spec.pooling, spec.normalize, spec.query_prefix, spec.max_length) == ("mean", True, "", 512)


@pytest.mark.parametrize(
    ("config", "pooling"),
    [({"pooling_mode_lasttoken": True}, "last"), ({"pooling_mode": "cls"}, "cls"), ({"pooling_mode": "mean"}, "mean")],
)
def test_pooling_is_read_when_written_either_way(make_folder: Any, config: dict[str, Any], pooling: str) -> None:
    """Old files have a flag per mode, new ones a single name."""
    assert catalogue.resolve(make_folder(files={"1_Pooling/config.json": config})).pooling == pooling


def test_graph_pools_when_it_has_no_token_vectors(make_folder: Any) -> None:
    """A graph whose only output is [n, dim] is taken as it is."""
    assert catalogue.resolve(make_folder(pooled=True, files=MEAN)).pooling == "none"


def test_task_is_cross_encoding_when_the_architecture_says_so(make_folder: Any) -> None:
    """…ForSequenceClassification is a cross-encoder, and has no dimension."""
    spec = catalogue.resolve(make_folder(task="cross-encode"))
    assert (spec.task, spec.dim) == ("cross-encode", None)


@pytest.mark.parametrize("config", [{}, {"num_labels": 2}, {"id2label": {"0": "no", "1": "yes"}}])
def test_two_labels_are_refused_when_a_cross_encoder_has_them(make_folder: Any, config: dict[str, Any]) -> None:
    """Two labels in the graph or in config.json are refused at registration."""
    files = {"config.json": {"architectures": ["TinyForSequenceClassification"], **config}}
    with pytest.raises(InvalidModel, match="two labels"):
        catalogue.resolve(make_folder(task="cross-encode", labels=1 if config else 2, files=files))


def test_lengths_leave_out_the_offset_when_positions_start_after_padding(make_folder: Any) -> None:
    """RoBERTa's 514 positions hold 512 tokens."""
    config = {"architectures": ["R"], "model_type": "roberta", "max_position_embeddings": 514, "pad_token_id": 1}
    assert catalogue.resolve(make_folder(files={"config.json": config})).max_length == 512


def test_graph_is_found_when_it_is_in_the_onnx_folder(make_folder: Any) -> None:
    """`onnx/model.onnx` is served as well."""
    assert catalogue.resolve(make_folder(weights="onnx/model.onnx")).weights_file == "onnx/model.onnx"


@pytest.mark.parametrize("path", ["config.json", "tokenizer.json", "model.onnx"])
def test_missing_file_is_named_when_a_folder_lacks_it(make_folder: Any, path: str) -> None:
    """A folder that lacks a file is refused, and the message says which files make a model."""
    made = make_folder()
    (made / path).unlink()
    with pytest.raises(InvalidModel, match=r"Hugging Face layout"):
        catalogue.resolve(made)


@pytest.mark.parametrize("content", [b"", b"not a graph", b"\x08\x07" * 40])
def test_file_is_refused_when_it_is_no_graph(make_folder: Any, content: bytes) -> None:
    """A damaged graph is an invalid model, before any runtime sees it."""
    made = make_folder()
    (made / "model.onnx").write_bytes(content)
    with pytest.raises(InvalidModel, match="is not an ONNX graph"):
        catalogue.resolve(made)


@pytest.mark.parametrize("damaged", ["{", "[" * 100_000], ids=["cut", "deep"])
def test_damaged_config_is_named_when_it_is_no_json(make_folder: Any, damaged: str) -> None:
    """The message has the path of the file that can't be read."""
    made = make_folder()
    (made / "config.json").write_text(damaged)
    with pytest.raises(InvalidModel, match=r"config\.json"):
        catalogue.resolve(made)


@pytest.mark.parametrize("config", [[], 3, {"architectures": 3}, {"max_position_embeddings": "many"}])
def test_a_config_is_refused_when_its_values_are_of_another_kind(make_folder: Any, config: Any) -> None:
    """It is the model's fault, told with the folder."""
    made = make_folder()
    (made / "config.json").write_text(json.dumps(config))
    with pytest.raises(InvalidModel, match="values of another kind"):
        catalogue.resolve(made)


@pytest.mark.parametrize("location", ["../secret.bin", "/etc/passwd", "missing.bin"])
def test_external_weights_are_refused_when_outside_the_folder(make_folder: Any, location: str) -> None:
    """A graph may keep weights only in files beside it."""
    made = make_folder()
    model = onnx.load(str(made / "model.onnx"))
    tensor = model.graph.initializer[0]
    tensor.ClearField("raw_data")
    tensor.data_location = onnx.TensorProto.EXTERNAL
    tensor.external_data.add(key="location", value=location)
    (made / "model.onnx").write_bytes(model.SerializeToString())
    with pytest.raises(InvalidModel, match="not a file beside it"):
        catalogue.resolve(made)


def test_external_weights_count_when_they_lie_beside_the_graph(make_folder: Any) -> None:
    """Bytes in a file beside the graph are part of the digest and of the size."""
    made = make_folder()
    model = onnx.load(str(made / "model.onnx"))
    model.graph.initializer.append(numpy_helper.from_array(np.zeros(5000, np.float32), "unused"))
    onnx.save(
        model, str(made / "model.onnx"), save_as_external_data=True, location="model.onnx_data", size_threshold=99
    )
    before = catalogue.resolve(made)
    assert before.weights_nbytes > 20_000
    data = bytearray((made / "model.onnx_data").read_bytes())
    data[0] ^= 1
    (made / "model.onnx_data").write_bytes(data)
    assert catalogue.resolve(made).digest != before.digest


def test_inputs_are_refused_when_they_can_not_be_fed(make_folder: Any) -> None:
    """A graph that wants something else than ids, mask and types is refused with its name."""
    made = make_folder()
    model = onnx.load(str(made / "model.onnx"))
    model.graph.input.append(onnx.helper.make_tensor_value_info("pixel_values", onnx.TensorProto.FLOAT, [1]))
    onnx.save(model, str(made / "model.onnx"))
    with pytest.raises(InvalidModel, match="pixel_values"):
        catalogue.resolve(made)


def test_nothing_is_read_again_when_no_file_changed(make_folder: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    """Reopening a folder hashes nothing; a changed file is noticed, and gives another digest."""
    made = make_folder()
    first = catalogue.resolve(made)
    examine = folder._examine
    monkeypatch.setattr(folder, "_examine", pytest.fail)
    assert catalogue.resolve(made) == first
    monkeypatch.setattr(folder, "_examine", examine)
    make_folder(files=MEAN | {"modules.json": modules("Pooling")})
    assert catalogue.resolve(made).digest != first.digest


def test_change_is_refused_when_files_differ_from_the_registered_ones(make_folder: Any) -> None:
    """A folder whose weights were replaced after it was resolved is not loaded under the old digest."""
    spec = catalogue.resolve(make_folder())
    assert catalogue.ensure(spec) == spec
    make_folder(poison=True)
    with pytest.raises(InvalidModel, match="changed since"):
        catalogue.ensure(spec)
    (spec.folder / "model.onnx").unlink()
    with pytest.raises(InvalidModel, match="has no file"):
        catalogue.ensure(spec)


def test_folder_is_served_when_onnx_is_not_installed(make_folder: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    """Without the onnx package the folder's own files must do, and the runtime checks the graph when it loads it."""
    monkeypatch.setattr(signature, "read", lambda _: None)
    spec = catalogue.resolve(make_folder(files=MEAN))
    assert (spec.pooling, spec.dim) == ("mean", 8)


def test_cache_is_not_needed_when_it_can_not_be_written(
    make_folder: Any, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A cache folder that can't be made costs time only."""
    (tmp_path / "file").touch()
    monkeypatch.setenv("VECTORSEARCH_CACHE", str(tmp_path / "file" / "cache"))
    assert catalogue.resolve(make_folder()).dim == 8


def test_packed_weights_count_unpacked_when_the_graph_turns_them_to_floats(make_folder: Any) -> None:
    """8-bit weights that a graph casts to float32 are charged with 4 bytes each, as they lie in memory."""
    made = make_folder()
    model = onnx.load(str(made / "model.onnx"))
    model.graph.initializer.append(numpy_helper.from_array(np.zeros((10, 100), np.int8), "packed"))
    model.graph.node.insert(0, onnx.helper.make_node("Cast", ["packed"], ["floats"], to=onnx.TensorProto.FLOAT))
    onnx.save(model, str(made / "model.onnx"))
    assert catalogue.resolve(made).weights_nbytes == (made / "model.onnx").stat().st_size + 3000
