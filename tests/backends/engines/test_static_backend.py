"""Tables of token vectors: a StaticEmbedding and a model2vec folder give the reference's vectors."""

from __future__ import annotations

import json
from typing import TYPE_CHECKING, Any

import numpy as np
import pytest
from safetensors.numpy import save_file

from backends.catalogue import catalogue
from backends.choosing import registry
from backends.errors import CannotServe, InferenceError, InvalidModel
from backends.running import text_model

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator
    from pathlib import Path

    from backends.running.text_model import TextModel

TEXTS = ["how read csv", "dog", "", "unknown words here dog", "a b c " * 300]
STATIC = {"idx": 0, "name": "0", "path": "0_StaticEmbedding", "type": "sentence_transformers.models.StaticEmbedding"}
NORMALIZE = {"idx": 1, "name": "1", "path": "1_Normalize", "type": "sentence_transformers.models.Normalize"}


@pytest.fixture
def make_table(make_folder: Any) -> Callable[..., Path]:
    """Return a function that writes a folder with a table in place of a network."""

    def make(place: str = "", *, files: dict[str, Any] | None = None, **weights: np.ndarray) -> Path:
        folder: Path = make_folder(files=files)
        (folder / "model.onnx").unlink()
        if place:
            (folder / "config.json").unlink()
            (folder / place).mkdir(exist_ok=True)
            (folder / "tokenizer.json").rename(folder / place / "tokenizer.json")
        path = folder / place / "tokenizer.json"
        path.write_text(json.dumps(json.loads(path.read_text()) | {"truncation": None}))
        if not weights:
            weights = {"embedding.weight": np.random.default_rng(3).normal(size=(14, 8)).astype(np.float32)}
        save_file(weights, folder / place / "model.safetensors")
        return folder

    return make


@pytest.fixture
def load_table() -> Iterator[Callable[[Path], TextModel]]:
    """Return a function that loads a folder with the backend that comes first."""
    loaded: list[TextModel] = []

    def load(folder: Path) -> TextModel:
        spec = catalogue.resolve(folder)
        loaded.append(text_model.TextLoader(registry.select(spec)).load_model(spec))
        return loaded[-1]

    yield load
    for model in loaded:
        model.close()


@pytest.mark.parametrize("after", [[], [NORMALIZE]], ids=["bare", "normalized"])
def test_table_gives_the_references_vectors_when_it_is_a_static_embedding(
    make_table: Any, load_table: Any, after: list[Any]
) -> None:
    """The mean of the tokens' rows, none for an empty text, without special tokens or a limit of 512."""
    sentence_transformers = pytest.importorskip("sentence_transformers")
    folder = make_table("0_StaticEmbedding", files={"modules.json": [STATIC, *after]})
    model = load_table(folder)
    assert (model.backend, model.spec.normalize, model.spec.pooling) == ("static", bool(after), "none")
    found = model.embed(TEXTS, kind="passage")
    expected = sentence_transformers.SentenceTransformer(str(folder), device="cpu").encode(TEXTS)
    np.testing.assert_allclose(found.vectors, expected, atol=1e-6)
    assert not found.vectors[2].any()
    assert not found.truncated.any()


def test_table_is_mapped_and_weighted_when_it_is_model2vecs(make_table: Any, load_table: Any) -> None:
    """A model2vec folder: a row for several tokens, a weight for each, and lengths of 1 where it asks for that."""
    rng = np.random.default_rng(4)
    weights = {
        "embeddings": rng.normal(size=(5, 8)).astype(np.float16),
        "mapping": rng.integers(0, 5, 14),
        "weights": rng.uniform(size=14),
    }
    config = {"model_type": "model2vec", "architectures": ["StaticModel"], "normalize": True, "apply_zipf": True}
    model = load_table(make_table(files={"config.json": config | {"hidden_dim": 8, "seq_length": 1000000}}, **weights))
    table = weights["embeddings"].astype(np.float32)[weights["mapping"]] * weights["weights"][:, None]
    row = table[[10, 6, 4]].mean(axis=0)
    np.testing.assert_allclose(model.embed(TEXTS, kind="query").vectors[0], row / np.linalg.norm(row), atol=1e-6)
    assert (model.backend, model.spec.dim) == ("static", 8)


def test_table_is_refused_when_its_files_do_not_belong_together(make_table: Any, load_table: Any) -> None:
    """A table that is too short is an error of the text that needs more; one that is no table isn't loaded."""
    model = load_table(make_table(**{"embedding.weight": np.ones((9, 8), np.float32)}, files={"modules.json": AT_ROOT}))
    with pytest.raises(InferenceError, match="has 9 vectors"):
        model.embed(["how read csv"], kind="query")
    for weights in ({"other": np.ones((9, 8), np.float32)}, {"embedding.weight": np.ones(9, np.float32)}):
        with pytest.raises(InvalidModel, match="table"):
            load_table(make_table(**weights, files={"modules.json": AT_ROOT}))


def test_other_backends_say_no_when_a_table_is_asked_of_them(make_table: Any) -> None:
    """A table has one backend, and a network isn't this one's."""
    spec = catalogue.resolve(make_table(files={"modules.json": AT_ROOT}))
    for backend in ("onnx", "numpy", "torch", "jax"):
        with pytest.raises(CannotServe, match=backend):
            registry.choose(spec, "query", asked=backend)


AT_ROOT = [{**STATIC, "path": ""}]
