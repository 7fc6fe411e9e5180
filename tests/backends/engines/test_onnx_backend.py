"""ONNX Runtime on tiny graphs: right answers whatever the batch, and clear refusals."""

from __future__ import annotations

import os
from typing import TYPE_CHECKING, Any

import numpy as np
import onnx
import pytest

from backends.catalogue import catalogue
from backends.choosing import registry
from backends.engines import onnx_backend
from backends.errors import BackendError, InferenceError, InvalidModel, MissingExtra, TransientBackendError
from backends.running.batching import Batching
from backends.running.process import usable_cores

if TYPE_CHECKING:
    from pathlib import Path

    from backends.running.text_model import TextModel

TEXTS = [
    "csv file",
    "read a csv file",
    "dog",
    "",
    "cat dog cat dog cat dog",
    "parse",
    "how a b c",
    "unknown words here",
] * 8


@pytest.mark.parametrize("budget", [8, 16, 56, 512])
def test_vectors_do_not_depend_on_the_batch_when_computed_in_floats(load: Any, budget: int) -> None:
    """S32: batches of 1, 2, 7 or 64 rows, and any order, give the same vectors to 1e-5."""
    model: TextModel = load()
    alone = np.concatenate([model.embed([text], kind="passage").vectors for text in TEXTS])
    model._batching = Batching(budget)
    order = np.random.default_rng(budget).permutation(len(TEXTS))
    together = model.embed([TEXTS[i] for i in order], kind="passage").vectors
    np.testing.assert_allclose(together, alone[order], atol=1e-5)
    np.testing.assert_allclose(np.linalg.norm(together, axis=1), 1, atol=1e-5)


def test_scores_do_not_depend_on_the_batch_when_computed_in_floats(load: Any) -> None:
    """S32: scores of one pair at a time equal those of all pairs in any order, to 1e-5."""
    model: TextModel = load(task="cross-encode")
    alone = np.concatenate([model.score("how", [text]).scores for text in TEXTS])
    order = np.random.default_rng(1).permutation(len(TEXTS))
    together = model.score("how", [TEXTS[i] for i in order]).scores
    assert together.dtype == np.float32
    np.testing.assert_allclose(together, alone[order], atol=1e-5)


def test_vectors_are_the_graphs_own_when_it_pools(load: Any) -> None:
    """A graph that pools gives the same vectors as mean pooling of… the same means, normalised."""
    pooled = load("pooled", pooled=True).embed(["csv file"], kind="passage").vectors
    assert pooled.shape == (1, 8)
    assert np.linalg.norm(pooled) == pytest.approx(1)


@pytest.mark.parametrize("content", [b"", b"garbage", None])
def test_file_is_refused_at_load_when_it_is_damaged_or_gone(make_folder: Any, content: bytes | None) -> None:
    """What the runtime can't read is an invalid model, with the path and the runtime's words."""
    spec = catalogue.resolve(make_folder())
    path = spec.folder / spec.weights_file
    path.unlink()
    if content is not None:
        path.write_bytes(content)
    with pytest.raises(InvalidModel, match=r"model\.onnx"):
        registry.get("onnx").load_model(spec)


def test_file_is_refused_at_load_when_it_is_cut_short(make_folder: Any) -> None:
    """A graph cut in the middle is an invalid model."""
    spec = catalogue.resolve(make_folder())
    path = spec.folder / spec.weights_file
    path.write_bytes(path.read_bytes()[:-100])
    with pytest.raises(InvalidModel):
        registry.get("onnx").load_model(spec)


def test_runtime_failure_is_translated_when_ids_are_out_of_range(load: Any) -> None:
    """The runtime's own exception becomes an inference error, kept as its cause."""
    model: TextModel = load()
    rows = np.full((1, 3), 10_000, np.int64)
    from backends.base import TokenBatch  # noqa: PLC0415  (only this test builds a batch by hand)

    with pytest.raises(InferenceError, match=r"batch of \(1, 3\)") as caught:
        model._model.infer(TokenBatch(rows, np.ones_like(rows), np.zeros_like(rows)))
    assert caught.value.__cause__ is not None
    assert not isinstance(caught.value, TransientBackendError)


@pytest.mark.parametrize(
    "failure", [MemoryError(), RuntimeError("Failed to allocate memory for requested buffer of size 9")]
)
def test_lack_of_memory_is_transient_when_the_runtime_says_so(
    load: Any, monkeypatch: pytest.MonkeyPatch, failure: Exception
) -> None:
    """Out of memory may pass elsewhere or later: a transient error."""
    model: TextModel = load()

    class Starved:
        def run(self, *_: object) -> None:
            raise failure

    monkeypatch.setattr(model._model, "_session", Starved())
    with pytest.raises(TransientBackendError):
        model.embed(["csv"], kind="passage")


def test_device_is_the_sessions_own_when_loaded(load: Any) -> None:
    """The device and provider are read off the session; bytes are what was estimated."""
    model: TextModel = load()
    assert model.device == "cpu:CPUExecutionProvider"
    assert model.nbytes == registry.get("onnx").estimate(model.spec) > model.spec.weights_nbytes


def test_reason_is_given_when_the_runtime_is_missing(make_folder: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    """Without ONNX Runtime the backend refuses with the pip command, before loading and at loading."""
    spec = catalogue.resolve(make_folder())
    monkeypatch.setattr(onnx_backend.importlib.util, "find_spec", lambda _: None)
    assert "pip install onnxruntime" in registry.get("onnx").can_serve(spec).reason
    monkeypatch.setitem(__import__("sys").modules, "onnxruntime", None)
    with pytest.raises(MissingExtra, match="pip install onnxruntime"):
        registry.get("onnx").load_model(spec)


def test_threads_follow_the_affinity_when_the_system_has_one(monkeypatch: pytest.MonkeyPatch) -> None:
    """The session uses the cores that this process may use; elsewhere all of them."""
    monkeypatch.setattr(os, "sched_getaffinity", lambda _: {3, 5, 7}, raising=False)
    assert usable_cores() == 3
    monkeypatch.delattr(os, "sched_getaffinity")
    assert usable_cores() == os.cpu_count()


def test_narrow_inputs_are_fed_when_a_graph_takes_int32(make_folder: Any) -> None:
    """A graph that takes int32 ids is served."""
    folder: Path = make_folder()
    model = onnx.load(str(folder / "model.onnx"))
    for value in model.graph.input:
        value.type.tensor_type.elem_type = onnx.TensorProto.INT32
    onnx.save(model, str(folder / "model.onnx"))
    from backends.running.text_model import TextLoader  # noqa: PLC0415  (the fixture's loader writes its own graph)

    loaded = TextLoader(registry.select(catalogue.resolve(folder))).load_model(catalogue.resolve(folder))
    assert loaded.embed(["csv"], kind="query").vectors.shape == (1, 8)
    loaded.close()


def test_every_error_is_a_backend_error_when_raised_here() -> None:
    """Whatever the runtime raises is caught by its own types, and all of ours are one tree."""
    assert all(issubclass(kind, Exception) for kind in onnx_backend.runtime_errors())
    assert len(onnx_backend.runtime_errors()) > 8
    assert issubclass(TransientBackendError, BackendError)
