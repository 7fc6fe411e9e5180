"""Tiny models, built on the spot: ONNX graphs of a few operators, a word-level tokenizer, a Hugging Face folder."""

from __future__ import annotations

import json
import sys
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np
import onnx
import pytest
from onnx import TensorProto, helper, numpy_helper
from tokenizers import Tokenizer, models, normalizers, pre_tokenizers, processors

from backends.catalogue import catalogue
from backends.catalogue.entries import DEFAULT_EMBEDDER, DEFAULT_RERANKER
from backends.choosing import registry
from backends.folders import folder
from backends.running import text_model

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

    from backends.running.text_model import TextModel

sys.path.insert(0, str(Path(__file__).parent / "support"))  # what several test files here share

DIM = 8
VOCABULARY = ["[PAD]", "[UNK]", "[CLS]", "[SEP]", "csv", "file", "read", "dog", "cat", "parse", "how", "a", "b", "c"]
SIZES = {"hidden_size": 32, "num_hidden_layers": 2, "num_attention_heads": 4, "intermediate_size": 64, "vocab_size": 32}
MODELS = {"bert": "Bert", "roberta": "Roberta", "xlm-roberta": "XLMRoberta", "distilbert": "DistilBert"}
SMALL = {"dim": 32, "n_layers": 2, "n_heads": 4, "hidden_dim": 64, "vocab_size": 32}


def graph(task: str = "embed", *, labels: int = 1, pooled: bool = False, poison: bool = False) -> onnx.ModelProto:
    """Build a float32 graph whose answer for a row depends on all its unmasked tokens, and on nothing else.

    `pooled` gives [n, dim] instead of token vectors; `poison` makes the word `dog` NaN; a cross-encoder gives `labels`.
    """
    rng = np.random.default_rng(7)
    table = rng.normal(size=(len(VOCABULARY), DIM)).astype(np.float32)
    if poison:
        table[VOCABULARY.index("dog")] = np.nan
    head = rng.normal(size=(DIM, labels)).astype(np.float32)
    nodes = [
        helper.make_node("Gather", ["table", "input_ids"], ["words"]),
        helper.make_node("Cast", ["attention_mask"], ["mask"], to=TensorProto.FLOAT),
        helper.make_node("Unsqueeze", ["mask", "last"], ["mask3"]),
        helper.make_node("Where", ["padding", "zero", "words"], ["seen"]),
        helper.make_node("ReduceSum", ["seen", "middle"], ["sums"], keepdims=1),
        helper.make_node("ReduceSum", ["mask3", "middle"], ["counts"], keepdims=1),
        helper.make_node("Div", ["sums", "counts"], ["mean"]),
        helper.make_node("Add", ["words", "mean"], ["last_hidden_state"]),
        helper.make_node("Squeeze", ["mean", "middle"], ["sentence"]),
        helper.make_node("MatMul", ["sentence", "head"], ["logits"]),
    ]
    nodes.insert(3, helper.make_node("Equal", ["mask3", "zero"], ["padding"]))
    weights = {
        "table": table,
        "head": head,
        "zero": np.zeros(1, np.float32),
        "last": np.array([2]),
        "middle": np.array([1]),
    }
    names = {"cross-encode": ("logits", labels)}.get(task, ("sentence", DIM) if pooled else ("last_hidden_state", DIM))
    shape: list[Any] = ["n", "length", DIM] if names[0] == "last_hidden_state" else ["n", names[1]]
    made = helper.make_graph(
        nodes,
        "tiny",
        [
            helper.make_tensor_value_info(name, TensorProto.INT64, ["n", "length"])
            for name in ("input_ids", "attention_mask")
        ],
        [helper.make_tensor_value_info(names[0], TensorProto.FLOAT, shape)],
        [numpy_helper.from_array(value, name) for name, value in weights.items()],
    )
    return helper.make_model(made, opset_imports=[helper.make_opsetid("", 17)], ir_version=8)


def tokenizer() -> Tokenizer:
    """Build a word-level tokenizer laid out as BERT's."""
    vocabulary = {word: i for i, word in enumerate(VOCABULARY)}
    made = Tokenizer(models.WordLevel(vocabulary, unk_token=VOCABULARY[1]))
    made.normalizer = normalizers.Lowercase()
    made.pre_tokenizer = pre_tokenizers.Whitespace()
    made.post_processor = processors.TemplateProcessing(
        single="[CLS] $A [SEP]", pair="[CLS] $A [SEP] $B:1 [SEP]:1", special_tokens=[("[CLS]", 2), ("[SEP]", 3)]
    )
    # As published files often have it: both must be switched off by whoever reads the file.
    made.enable_truncation(16)
    made.enable_padding(length=16)
    return made


@pytest.fixture(autouse=True)
def _own_cache(request: pytest.FixtureRequest, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Keep each test out of the user's cache, except where it needs the real models."""
    monkeypatch.setattr(folder, "_places", {})  # other tests have written the same bytes elsewhere
    if "models" not in request.keywords:
        monkeypatch.setenv("VECTORSEARCH_CACHE", str(tmp_path / "cache"))


@pytest.fixture
def make_folder(tmp_path: Path) -> Callable[..., Path]:
    """Return a function that writes a model's folder: the graph's options, and more JSON files by path."""

    def make(
        name: str = "tiny", *, files: dict[str, Any] | None = None, weights: str = "model.onnx", **options: Any
    ) -> Path:
        folder = tmp_path / name
        task = options.get("task", "embed")
        architecture = "TinyForSequenceClassification" if task == "cross-encode" else "TinyModel"
        written = {"config.json": {"architectures": [architecture], "hidden_size": DIM, "id2label": {"0": "x"}}}
        for path, content in (written | (files or {})).items():
            (folder / path).parent.mkdir(parents=True, exist_ok=True)
            (folder / path).write_text(json.dumps(content))
        tokenizer().save(str(folder / "tokenizer.json"))
        (folder / weights).parent.mkdir(exist_ok=True)
        onnx.save(graph(**options), str(folder / weights))
        return folder

    return make


@pytest.fixture
def load(make_folder: Callable[..., Path]) -> Iterator[Callable[..., TextModel]]:
    """Return a function that makes a folder and loads it with a backend; what it loaded is closed afterwards."""
    loaded: list[TextModel] = []

    def make(name: str = "tiny", *, backend: str = "onnx", **options: Any) -> TextModel:
        spec = catalogue.resolve(make_folder(name, **options))
        loaded.append(text_model.TextLoader(registry.select(spec, backend=backend)).load_model(spec))
        return loaded[-1]

    yield make
    for model in loaded:
        model.close()


@pytest.fixture(scope="session")
def embedder() -> Iterator[TextModel]:
    """Return the default embedder, from the model cache."""
    spec = catalogue.pull(DEFAULT_EMBEDDER)
    model = text_model.TextLoader(registry.select(spec)).load_model(spec)
    yield model
    model.close()


@pytest.fixture(scope="session")
def reranker() -> Iterator[TextModel]:
    """Return the default reranker, from the model cache."""
    spec = catalogue.pull(DEFAULT_RERANKER)
    model = text_model.TextLoader(registry.select(spec)).load_model(spec)
    yield model
    model.close()


@pytest.fixture
def folder_of(make_folder: Callable[..., Path]) -> Callable[..., Path]:
    """Return a function that writes a random model of an architecture, as transformers stores it."""

    def make(kind: str = "bert", *, classify: bool = False, files: dict[str, Any] | None = None, **config: Any) -> Path:
        torch, transformers = pytest.importorskip("torch"), pytest.importorskip("transformers")
        folder = make_folder(f"{kind}-{classify}", files=files)
        (folder / "model.onnx").unlink()
        sizes = SMALL if kind == "distilbert" else SIZES
        family = MODELS[kind]
        torch.manual_seed(3)
        made = getattr(transformers, f"{family}Config")(
            **sizes, **config, num_labels=1, initializer_range=0.3, max_position_embeddings=70
        )
        module = getattr(transformers, f"{family}ForSequenceClassification" if classify else f"{family}Model")(made)
        with torch.no_grad():
            for value in module.parameters():
                if value.ndim == 1:  # all alike at first, which would hide one left out or taken for another
                    value.add_(torch.randn(value.shape), alpha=0.3)
        module.save_pretrained(folder)
        return folder

    return make


@pytest.fixture
def load_torch() -> Iterator[Callable[..., TextModel]]:
    """Return a function that loads a folder with a backend; what it loaded is closed afterwards."""
    loaded: list[TextModel] = []

    def make(folder: Path, backend: str = "torch:float32") -> TextModel:
        spec = catalogue.resolve(folder)
        loaded.append(text_model.TextLoader(registry.select(spec, backend=backend)).load_model(spec))
        return loaded[-1]

    yield make
    for model in loaded:
        model.close()
