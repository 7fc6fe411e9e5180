"""Exports: safetensors to an ONNX graph and back, with the answers kept, or no folder at all."""

from __future__ import annotations

import json
from typing import TYPE_CHECKING, Any

import numpy as np
import onnx
import pytest

from backends.catalogue import catalogue, export
from backends.catalogue.entries import DEFAULT_EMBEDDER, DEFAULT_RERANKER
from backends.choosing import registry
from backends.errors import InvalidInput, InvalidModel, MissingExtra
from backends.graph import graph
from backends.running import text_model

if TYPE_CHECKING:
    from collections.abc import Callable
    from pathlib import Path

    from numpy.typing import NDArray

torch = pytest.importorskip("torch")
transformers = pytest.importorskip("transformers")

TEXTS = ["read a csv file", "dog", "how how how a b c csv parse file dog read", "", "parse a file"]
SIZES = {"hidden_size": 32, "num_hidden_layers": 2, "num_attention_heads": 4, "intermediate_size": 64, "vocab_size": 32}


@pytest.fixture
def folder_of(make_folder: Callable[..., Path]) -> Callable[..., Path]:
    """Return a function that writes a random BERT as transformers stores it."""

    def make(*, classify: bool = False) -> Path:
        folder = make_folder(f"bert-{classify}")
        (folder / "model.onnx").unlink()
        torch.manual_seed(3)
        config = transformers.BertConfig(**SIZES, num_labels=1, initializer_range=0.3, max_position_embeddings=70)
        kind = transformers.BertForSequenceClassification if classify else transformers.BertModel
        module = kind(config)
        with torch.no_grad():
            for value in module.parameters():
                if value.ndim == 1:  # all alike at first, which would hide one that is taken for another
                    value.add_(torch.randn(value.shape), alpha=0.3)
        module.save_pretrained(folder)
        return folder

    return make


def answers(folder: Path, backend: str) -> NDArray[np.float32]:
    """Return a folder's vectors, or its logits, of the texts."""
    spec = catalogue.resolve(folder)
    model = text_model.TextLoader(registry.select(spec, backend=backend)).load_model(spec)
    try:
        if spec.task == "embed":
            return model.embed(TEXTS, kind="passage").vectors
        return model.score("how", TEXTS).scores
    finally:
        model.close()


def quantised(folder: Path, scratch: Path) -> Path:
    """Return a folder whose only weights are the model's graph, quantised as its publishers do."""
    from onnxruntime.quantization import quantize_dynamic  # noqa: PLC0415  (heavy)

    made = export.export(catalogue.resolve(folder), scratch / "int8").spec.folder
    (made / "model.safetensors").unlink()
    quantize_dynamic(made / "model.onnx", made / "model.onnx")
    assert any(node.op_type == "MatMulInteger" for node in onnx.load(made / "model.onnx").graph.node)
    return made


@pytest.mark.parametrize("classify", [False, True])
def test_graph_answers_as_the_weights_when_exported(folder_of: Any, tmp_path: Path, classify: bool) -> None:  # noqa: FBT001
    """The exported folder has both forms of one model, of operators known here, and every backend agrees on it."""
    folder = folder_of(classify=classify)
    made = export.export(catalogue.resolve(folder), tmp_path / "out")
    assert made.form == "onnx"
    assert made.max_difference < 1e-5
    assert graph.unsupported(tmp_path / "out" / "model.onnx") == made.unsupported == ()
    expected = answers(folder, "torch:float32")
    for backend in ("onnx", "torch:float32", "numpy"):
        assert registry.get(backend).can_serve(made.spec)
        np.testing.assert_allclose(answers(tmp_path / "out", backend), expected, atol=2e-5)
    assert made.spec.digest != catalogue.resolve(folder).digest
    assert sorted(path.name for path in tmp_path.iterdir() if path.name.startswith(".export")) == []


@pytest.mark.parametrize("classify", [False, True])
def test_weights_come_back_when_a_quantised_graph_is_exported(folder_of: Any, tmp_path: Path, classify: bool) -> None:  # noqa: FBT001
    """Safetensors made of an int8 graph are near the weights that were quantised, under the names that they had."""
    from safetensors.numpy import load_file  # noqa: PLC0415  (heavy)

    folder = folder_of(classify=classify)
    weights = load_file(folder / "model.safetensors")
    int8 = quantised(folder, tmp_path)
    made = export.export(catalogue.resolve(int8), tmp_path / "back")
    assert (made.form, made.spec.weights_file) == ("safetensors", "model.safetensors")
    found = load_file(tmp_path / "back" / "model.safetensors")
    assert found.keys() == {name for name in weights if classify or "pooler" not in name}
    for name, array in found.items():
        np.testing.assert_allclose(array, weights[name], atol=0.02)


@pytest.mark.parametrize("classify", [False, True])
def test_pytorch_answers_as_the_graph_when_it_is_of_8_bits(folder_of: Any, tmp_path: Path, classify: bool) -> None:  # noqa: FBT001
    """An int8 graph of BERT is served by PyTorch as it is, with the answers of the graph's weights as floats."""
    int8 = quantised(folder_of(classify=classify), tmp_path)
    spec = catalogue.resolve(int8)
    backend = registry.get("torch:float32")
    assert backend.can_serve(spec)
    np.testing.assert_allclose(answers(int8, "torch:float32"), answers(int8, "numpy:float32"), atol=2e-5)
    assert backend.estimate(spec) > 3 * spec.weights_nbytes


def test_pytorch_refuses_a_graph_when_its_configuration_is_of_another(folder_of: Any, tmp_path: Path) -> None:
    """A config.json that describes another computation than the graph's is told at the load, not in the answers."""
    int8 = quantised(folder_of(), tmp_path)
    config = json.loads((int8 / "config.json").read_text(encoding="utf-8"))
    (int8 / "config.json").write_text(json.dumps({**config, "num_attention_heads": 2}), encoding="utf-8")
    with pytest.raises(InvalidModel, match=r"not what model\.onnx computes"):
        answers(int8, "torch:float32")
    (int8 / "config.json").write_text(json.dumps({**config, "model_type": "distilbert"}), encoding="utf-8")
    assert "models export" in registry.get("torch").can_serve(catalogue.resolve(int8)).reason


def test_nothing_is_left_when_the_forms_differ(folder_of: Any, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """A failed parity check is an error that says how far apart they are, and leaves no folder."""
    from backends.runtimes.torch_runtime.transformers_encoder import TransformersEncoder  # noqa: PLC0415  (imports transformers)

    right = TransformersEncoder.to_onnx

    def shuffled(self: Any, path: Path, *, opset: int) -> None:
        right(self, path, opset=opset)
        model = onnx.load(path)
        norm = next(tensor for tensor in model.graph.initializer if tensor.name.endswith("LayerNorm.bias"))
        norm.raw_data = np.ones(32, np.float32).tobytes()
        onnx.save(model, path)

    monkeypatch.setattr(TransformersEncoder, "to_onnx", shuffled)
    with pytest.raises(InvalidModel, match=r"differs from PyTorch by [\d.]+, more than 0\.0001"):
        export.export(catalogue.resolve(folder_of()), tmp_path / "new" / "out")
    assert list((tmp_path / "new").iterdir()) == []


def test_folder_is_kept_when_it_is_there_already(folder_of: Any, tmp_path: Path) -> None:
    """An export never writes into a folder that exists, nor without the weights that it is made of."""
    folder = folder_of()
    with pytest.raises(InvalidInput, match="already there"):
        export.export(catalogue.resolve(folder), folder)
    with pytest.raises(InvalidInput, match=r"made of an ONNX graph, and 'bert-False' has only model\.safetensors"):
        export.export(catalogue.resolve(folder), tmp_path / "out", form="safetensors")


def test_command_is_given_when_pytorch_is_missing(
    folder_of: Any, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Without PyTorch an export says what to install."""
    folder = folder_of()
    monkeypatch.setitem(__import__("sys").modules, "torch", None)
    with pytest.raises(MissingExtra, match=r"vectorsearch\[torch\]"):
        export.export(catalogue.resolve(folder), tmp_path / "out")


@pytest.mark.models
@pytest.mark.parametrize("name", [DEFAULT_EMBEDDER, DEFAULT_RERANKER])
def test_default_models_become_weights_when_exported(name: str, tmp_path: Path) -> None:
    """Both defaults, whose only file is an int8 graph, become safetensors that sentence-transformers serves alike."""
    import sentence_transformers as other  # noqa: PLC0415  (heavy)

    made = export.export(catalogue.pull(name), tmp_path / "out")
    assert made.form == "safetensors"
    assert made.max_difference < 1e-4
    texts = [*TEXTS, "日本語 👍", "file " * 300]
    spec = made.spec
    model = text_model.TextLoader(registry.select(spec, backend="torch:float32")).load_model(spec)
    if spec.task == "embed":
        expected = other.SentenceTransformer(str(spec.folder), device="cpu").encode(texts, show_progress_bar=False)
        found = model.embed(texts, kind="passage").vectors
    else:
        scorer = other.CrossEncoder(str(spec.folder), device="cpu")
        expected = scorer.predict([("how", text) for text in texts], show_progress_bar=False)
        found = model.score("how", texts).scores
        # Logits, not a sigmoid of them.
        assert expected.min() < -1
    model.close()
    np.testing.assert_allclose(found, expected, atol=2e-4)


def test_config_says_logits_when_a_cross_encoder_is_exported(folder_of: Any, tmp_path: Path) -> None:
    """config.json gets the identity, since sentence-transformers would put a sigmoid on a single label."""
    export.export(catalogue.resolve(folder_of(classify=True)), tmp_path / "out")
    config = json.loads((tmp_path / "out" / "config.json").read_text())
    assert config["sentence_transformers"]["activation_fn"] == "torch.nn.modules.linear.Identity"
