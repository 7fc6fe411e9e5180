"""Architectures and graphs that are known by more than their names: what is said of each before anything is loaded."""

from __future__ import annotations

import importlib
from pathlib import Path
from typing import TYPE_CHECKING, Any

import onnx
import pytest

from backends.catalogue import catalogue
from backends.choosing import portable, registry
from backends.folders import architectures
from backends.text.tokenizer_settings import TYPED_ARCHITECTURES, TYPED_CLASSES

if TYPE_CHECKING:
    from collections.abc import Callable


@pytest.mark.parametrize("size", [("n", 16), (1, "length"), (8, 16)])
def test_next_backend_is_taken_when_a_graph_has_fixed_sizes(make_folder: Callable[..., Path], size: Any) -> None:
    """M13: a graph that takes one batch size or one length only is refused by its inputs, before the first batch."""
    folder = make_folder()
    graph = onnx.load(folder / "model.onnx")
    for value in graph.graph.input:
        for dim, given in zip(value.type.tensor_type.shape.dim, size, strict=True):
            dim.Clear()
            setattr(dim, "dim_value" if isinstance(given, int) else "dim_param", given)
    onnx.save(graph, folder / "model.onnx")
    spec = catalogue.resolve(folder)
    for backend in ("onnx", "jax", "numpy"):
        answer = registry.get(backend).can_serve(spec)
        assert not answer
        assert f"input_ids {list(size)}" in answer.reason
    assert not portable.is_graph(spec)  # remembered: the same the second time


@pytest.mark.parametrize(
    ("config", "positions"),
    [
        ({"model_type": "bert", "max_position_embeddings": 512, "pad_token_id": 3}, 512),
        ({"model_type": "roberta", "max_position_embeddings": 514}, 512),
        ({"model_type": "xlm-roberta-xl", "max_position_embeddings": 514, "pad_token_id": 1}, 512),
        ({"model_type": "xmod", "max_position_embeddings": 40, "pad_token_id": 5}, 34),
        ({"model_type": "mpnet", "max_position_embeddings": 42, "pad_token_id": 5}, 40),
        ({"model_type": "longformer", "max_position_embeddings": 4098}, 4096),
        ({"model_type": "gpt2", "n_positions": 1024}, 1024),
        ({"model_type": "xlnet", "max_position_embeddings": -1}, None),
        ({"model_type": "t5"}, None),
    ],
)
def test_positions_are_counted_as_the_architecture_does(config: dict[str, Any], positions: int | None) -> None:
    """M9: RoBERTa's kin have no position for the padding's id and those below it."""
    assert architectures.positions_of(config) == positions


@pytest.mark.parametrize("known", ["gemma3_text", "data2vec-text", "xlm-roberta-xl", "deberta-v2", "bert"])
def test_architecture_is_known_when_its_folder_has_another_name(known: str) -> None:
    """M10: model types are those that the installed transformers lists, wherever their code lies."""
    pytest.importorskip("transformers")
    torch_backend = importlib.import_module("backends.engines.torch_backend")
    assert torch_backend._is_known(known)
    assert not torch_backend._is_known("no-such-architecture")


def test_kin_of_roberta_are_those_that_count_from_padding_when_asked_of_transformers() -> None:
    """M9: each architecture in the list does so in the installed transformers."""
    pytest.importorskip("transformers")
    from transformers.models.auto.configuration_auto import model_type_to_module_name  # noqa: PLC0415  (heavy)

    for name in architectures.OFFSET_POSITIONS:
        package = importlib.import_module(f"transformers.models.{model_type_to_module_name(name)}")
        code = [path.read_text(encoding="utf-8") for path in Path(package.__path__[0]).glob("modeling_*.py")]
        assert any("create_position_ids_from_input_ids" in text for text in code), name


def test_tokenizers_that_name_token_types_are_those_of_transformers() -> None:
    """M2: the classes that give token types, and the architectures whose tokenizer does, are as in transformers."""
    pytest.importorskip("transformers")
    from transformers.models.auto import tokenization_auto  # noqa: PLC0415  (heavy)

    def gives_types(name: str | None) -> bool:
        if name is None:
            return False
        kind = tokenization_auto.tokenizer_class_from_name(name)
        try:
            return kind is not None and "token_type_ids" in kind.model_input_names
        except (ImportError, AttributeError, TypeError):  # needs a package that isn't there, or says it by a property
            return False

    assert all(gives_types(name) for name in TYPED_CLASSES)
    mapped = tokenization_auto.TOKENIZER_MAPPING_NAMES
    assert {name for name in TYPED_ARCHITECTURES if not gives_types(mapped.get(name))} == set()
