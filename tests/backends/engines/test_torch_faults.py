"""PyTorch: every failure in this project's words, and nothing left behind."""

from __future__ import annotations

import json
import os
import threading
from typing import Any
from unittest.mock import Mock

import numpy as np
import pytest

from backends.base import TokenBatch
from backends.catalogue import catalogue
from backends.choosing import registry
from backends.engines import torch_backend
from backends.errors import InferenceError, InvalidModel, MissingExtra, TransientBackendError

torch = pytest.importorskip("torch")
transformers = pytest.importorskip("transformers")
from backends.runtimes.torch_runtime.torch_model import Workers  # noqa: E402 - it imports PyTorch

TEXTS = ["read a csv file", "dog", "how how how a b c csv parse file dog read", "", "parse a file"]


def test_files_are_asked_for_when_only_a_graph_is_there(make_folder: Any) -> None:
    """A model without safetensors is refused with the command that makes them."""
    folder = make_folder()
    answer = registry.get("torch").can_serve(catalogue.resolve(folder))
    assert not answer
    assert f"has only model.onnx: run 'vectorsearch models export {folder} --to safetensors'" in answer.reason


def test_architecture_is_refused_when_only_the_folder_has_code_for_it(folder_of: Any) -> None:
    """A model type that transformers lacks is refused: code in a model's folder is never run."""
    folder = folder_of()
    config = json.loads((folder / "config.json").read_text())
    (folder / "modeling_own.py").write_text("raise SystemExit('code was run')")
    own = {"AutoModel": "modeling_own.OwnModel"}
    (folder / "config.json").write_text(json.dumps(config | {"model_type": "own", "auto_map": own}))
    with pytest.raises(InvalidModel, match="auto_map"):
        catalogue.resolve(folder)
    (folder / "config.json").write_text(json.dumps(config | {"model_type": "own"}))
    assert "'own', and code that lies in a model's folder is never run" in (
        registry.get("torch").can_serve(catalogue.resolve(folder)).reason
    )
    with pytest.raises(InvalidModel, match="own"):
        registry.get("torch").load_model(catalogue.resolve(folder))


def test_command_is_given_when_pytorch_is_missing(folder_of: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    """Without PyTorch the backend refuses with the pip command, before loading and at loading."""
    spec = catalogue.resolve(folder_of())
    monkeypatch.setattr(torch_backend.importlib.util, "find_spec", lambda _: None)
    assert "pip install 'vectorsearch[torch]'" in registry.get("torch").can_serve(spec).reason
    monkeypatch.setitem(__import__("sys").modules, "torch", None)
    with pytest.raises(MissingExtra, match=r"vectorsearch\[torch\]"):
        registry.get("torch").load_model(spec)


@pytest.mark.parametrize("kind", ["bert", "distilbert"])
@pytest.mark.parametrize("damage", ["cut", "lacking"])
def test_weights_are_refused_when_damaged_or_missing(folder_of: Any, load_torch: Any, kind: str, damage: str) -> None:
    """A file that is cut short, or lacks a layer, is an invalid model; nothing is left at random values."""
    from safetensors.torch import load_file, save_file  # noqa: PLC0415  (heavy)

    folder = folder_of(kind)
    path = folder / "model.safetensors"
    if damage == "cut":
        path.write_bytes(path.read_bytes()[:-100])
    else:
        weights = load_file(path)
        save_file({key: value for key, value in weights.items() if "layer.1." not in key}, path)
    with pytest.raises(InvalidModel, match=r"layer\.1\.|safetensors"):
        load_torch(folder)


def test_rows_are_named_when_weights_are_not_numbers(folder_of: Any, load_torch: Any) -> None:
    """NaN in a word's vector is an error for the rows that hold the word."""
    from safetensors.torch import load_file, save_file  # noqa: PLC0415  (heavy)

    folder = folder_of()
    weights = load_file(folder / "model.safetensors")
    weights["embeddings.word_embeddings.weight"][7] = float("nan")  # `dog`
    save_file(weights, folder / "model.safetensors")
    model = load_torch(folder)
    assert model.embed(["csv"], kind="query").vectors.shape == (1, 32)
    with pytest.raises(InferenceError, match=r"rows \[1\]"):
        model._model.infer(TokenBatch(np.array([[4, 5], [4, 7]]), np.ones((2, 2), int), np.zeros((2, 2), int)))


@pytest.mark.parametrize(
    ("failure", "kind"),
    [
        (MemoryError(), TransientBackendError),
        (RuntimeError("[enforce fail] DefaultCPUAllocator: can't allocate memory"), TransientBackendError),
        (torch.OutOfMemoryError("CUDA out of memory. Tried to allocate 2.00 GiB"), TransientBackendError),
        (RuntimeError("shapes do not match"), InferenceError),
    ],
)
def test_failures_are_told_apart_when_a_batch_fails(
    folder_of: Any, load_torch: Any, failure: Exception, kind: type[Exception]
) -> None:
    """Lack of memory may pass elsewhere or later, anything else not; the runtime's own words are kept."""
    model = load_torch(folder_of())
    model._model._encoder = Mock(side_effect=failure, sees_padding=False, pad_id=None)
    with pytest.raises(InferenceError, match="PyTorch failed on a batch of") as caught:
        model.embed(["csv"], kind="passage")
    assert type(caught.value) is kind


def test_token_is_refused_when_the_vocabulary_lacks_it(folder_of: Any, load_torch: Any) -> None:
    """An id beyond the vocabulary is an inference error."""
    with pytest.raises(InferenceError, match="index out of range"):
        load_torch(folder_of())._model.infer(TokenBatch(np.array([[99]]), np.ones((1, 1), int), np.zeros((1, 1), int)))


def test_child_is_told_when_the_model_was_loaded_before_a_fork(
    folder_of: Any, load_torch: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    """S40: a forked child, where the threads don't exist, gets an error instead of waiting for ever."""
    model = load_torch(folder_of())
    monkeypatch.setattr(os, "getpid", lambda: -1)
    with pytest.raises(InferenceError, match="forked"):
        model.embed(["csv"], kind="passage")


def test_no_thread_is_left_waiting_when_another_can_not_be_had(monkeypatch: pytest.MonkeyPatch) -> None:
    """Workers that wait for the rest end, so that the process can."""
    start, started = threading.Thread.start, []

    def refuse_the_second(thread: threading.Thread) -> None:
        started.append(thread)
        if len(started) == 2:
            raise RuntimeError("can't start new thread")
        start(thread)

    monkeypatch.setattr(threading.Thread, "start", refuse_the_second)
    with pytest.raises(RuntimeError, match="can't start"):
        Workers(4)
    started[0].join(600)
    assert not started[0].is_alive()
