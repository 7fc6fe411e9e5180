"""The NumPy backend: the same answers as ONNX Runtime, whatever the batch, and clear refusals."""

from __future__ import annotations

from dataclasses import replace
from functools import partial
from typing import TYPE_CHECKING, Any

import numpy as np
import onnx
import pytest

from backends.base import Stoppable, TokenBatch
from backends.catalogue import catalogue
from backends.catalogue.entries import DEFAULT_EMBEDDER, DEFAULT_RERANKER
from backends.choosing import registry
from backends.engines import numpy_backend
from backends.errors import DeadlineExceeded, InferenceError, InvalidInput, InvalidModel, TransientBackendError
from backends.running.deadline import Deadline
from backends.runtimes.numpy_runtime import numpy_program

if TYPE_CHECKING:
    from collections.abc import Callable
    from pathlib import Path

    from backends.base import LoadedModel, ModelSpec
    from backends.running.text_model import TextModel

WORDS = ["csv file", "read a csv file", "dog", "", "cat dog cat dog cat dog", "parse", "how a b c", "what is this"]


@pytest.fixture
def load_numpy(load: Callable[..., TextModel]) -> Callable[..., TextModel]:
    """Return `load` for this backend."""
    return partial(load, backend="numpy")


def ragged(rows: int, length: int, seed: int = 0) -> TokenBatch:
    """Return a batch of random tokens of BERT's vocabulary whose rows but the first are of random lengths."""
    rng = np.random.default_rng(seed)
    mask = (np.arange(length) < np.array([length, *rng.integers(1, length + 1, rows - 1)])[:, None]).astype(np.int64)
    return TokenBatch(rng.integers(1000, 20000, (rows, length)) * mask, mask, np.zeros_like(mask))


@pytest.mark.models
@pytest.mark.parametrize("name", [DEFAULT_EMBEDDER, DEFAULT_RERANKER])
@pytest.mark.parametrize("precision", ["float32", "int8"])
def test_answers_do_not_depend_on_the_batch_when_the_graph_is_eight_bit(name: str, precision: str) -> None:
    """S32: rows alone, in other company, in another order and with more padding give the same answer to 1e-5."""
    spec = catalogue.pull(name)
    model = registry.get(f"numpy:{precision}").load_model(spec)
    batch = ragged(7, 24)
    whole = model.infer(batch)
    scale = float(np.abs(whole).max())
    order = np.random.default_rng(2).permutation(7)
    fields = (batch.input_ids, batch.attention_mask, batch.token_type_ids)
    padded = TokenBatch(*(np.pad(field, ((0, 0), (0, 9))) for field in fields))
    others = {
        "permuted": model.infer(TokenBatch(*(field[order] for field in fields)))[np.argsort(order)],
        "padded": model.infer(padded),
        "alone": np.concatenate([model.infer(TokenBatch(*(field[i : i + 1] for field in fields))) for i in range(7)]),
        "in pairs": np.concatenate([model.infer(TokenBatch(*(f[i : i + 2] for f in fields))) for i in range(0, 7, 2)]),
    }
    for how, answers in others.items():
        # Rounding may move one quantised number by a step, whose weight is far below what the steps themselves cost.
        limit = 1e-5 * max(1, scale) if precision == "float32" else 4e-3 * max(1, scale)
        assert np.abs(answers - whole).max() < limit, how
    model.close()


@pytest.mark.models
def test_vectors_are_close_to_the_floats_when_activations_are_eight_bit() -> None:
    """Per row quantised, the embedder keeps cosine 0.998 to its own dequantised weights, and 0.99 to ONNX Runtime."""
    spec = catalogue.pull(DEFAULT_EMBEDDER)
    models = [registry.get(name).load_model(spec) for name in ("numpy", "numpy:int8", "onnx")]
    batches = [ragged(1, length, seed) for seed, length in enumerate((3, 9, 30))]
    floats, bytes_, theirs = ([model.infer(batch)[0] for batch in batches] for model in models)
    assert min(float(a @ b) for a, b in zip(floats, bytes_, strict=True)) > 0.998
    assert min(float(a @ b) for a, b in zip(floats, theirs, strict=True)) > 0.99
    assert [getattr(model, "quantises", None) for model in models[:2]] == [False, True]
    assert [model.device for model in models[:2]] == ["cpu:numpy:float32", "cpu:numpy:int8"]
    for model in models:
        model.close()


@pytest.mark.models
def test_memory_is_what_was_said_when_a_model_is_loaded() -> None:
    """What is charged is at least the arrays held, what was estimated is at least what is charged, neither by much."""
    spec = catalogue.pull(DEFAULT_EMBEDDER)
    backend = registry.get("numpy")
    model = backend.load_model(spec)
    assert isinstance(model, numpy_backend.NumpyModel)
    assert model._graph is not None
    held = model._graph.nbytes + model._weights.nbytes
    assert 2.5 * spec.weights_nbytes < held < model.nbytes < held + numpy_backend.OVERHEAD_NBYTES + (16 << 20)
    assert model.nbytes < backend.estimate(spec) < 1.4 * model.nbytes
    model.close()
    assert model._graph is None
    assert not model._programs
    assert not model._weights.nbytes


def rewrite(folder: Path, change: Callable[[onnx.ModelProto], None]) -> ModelSpec:
    """Change a folder's graph, and return its spec as it was before."""
    spec = catalogue.resolve(folder)
    model = onnx.load(str(folder / "model.onnx"))
    change(model)
    onnx.save(model, str(folder / "model.onnx"))
    return spec


def test_operator_is_named_when_it_is_not_known(make_folder: Any) -> None:
    """A graph with an operator that is not known is refused by name, before loading and at loading."""

    def foreign(model: onnx.ModelProto) -> None:
        model.graph.node[6].domain = "com.microsoft"

    spec = rewrite(make_folder(), foreign)
    answer = registry.get("numpy").can_serve(spec)
    assert not answer
    assert "com.microsoft::ReduceSum" in answer.reason
    with pytest.raises(InvalidModel, match=r"com\.microsoft::ReduceSum"):
        registry.get("numpy").load_model(spec)


def test_reason_is_given_when_a_model_can_not_be_served(make_folder: Any) -> None:
    """Weights of another kind, a damaged file, and 8 bits asked of a float graph: each has its reason."""
    spec = catalogue.resolve(make_folder())
    backend = registry.get("numpy")
    assert backend.can_serve(spec)
    assert "models export" in backend.can_serve(replace(spec, weights_file="model.safetensors")).reason
    assert "no 8-bit products" in registry.get("numpy:int8").can_serve(spec).reason
    assert backend.can_serve(replace(spec, folder=spec.folder / "gone"))  # not fetched yet
    (spec.folder / "model.onnx").write_bytes(b"garbage")
    assert "not an ONNX graph" in backend.can_serve(spec).reason
    with pytest.raises(InvalidInput, match="no precision 'int4'"):
        registry.get("numpy:int4")


def test_failure_is_translated_when_ids_are_out_of_range(load_numpy: Any) -> None:
    """NumPy's own error becomes an inference error, kept as its cause."""
    rows = np.full((1, 3), 10_000, np.int64)
    with pytest.raises(InferenceError, match=r"batch of \(1, 3\)") as caught:
        load_numpy()._model.infer(TokenBatch(rows, np.ones_like(rows), np.zeros_like(rows)))
    assert isinstance(caught.value.__cause__, IndexError)
    assert not isinstance(caught.value, TransientBackendError)


def test_lack_of_memory_is_transient_when_numpy_says_so(load_numpy: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    """Out of memory may pass elsewhere or later, at load and in a run."""
    model: TextModel = load_numpy()

    def starved(*_: object) -> None:
        raise MemoryError

    monkeypatch.setattr(numpy_program.Execution, "run", starved)
    with pytest.raises(TransientBackendError, match="no memory for a batch"):
        model.embed(["csv"], kind="passage")
    monkeypatch.setattr(numpy_backend, "load", starved)
    with pytest.raises(TransientBackendError, match="no memory to load"):
        registry.get("numpy").load_model(model.spec)


def test_run_ends_when_the_deadline_has_passed(load_numpy: Any) -> None:
    """A run is given up between two operators once its time is up, or while it waits for another's; the model lives."""
    model = load_numpy()._model
    assert isinstance(model, Stoppable)
    now = iter(range(100))
    batch = ragged_words()
    with pytest.raises(DeadlineExceeded, match="time was up"):
        model.infer_until(batch, Deadline(4, clock=lambda: next(now)))
    assert next(now) > 4
    with model._turn, pytest.raises(DeadlineExceeded, match="busy"):
        model.infer_until(batch, Deadline(0, clock=lambda: 0))
    np.testing.assert_array_equal(model.infer_until(batch, Deadline.after(60)), model.infer(batch))


def ragged_words() -> TokenBatch:
    """Return a batch of the tiny model's vocabulary."""
    ids = np.array([[2, 4, 5, 3], [2, 6, 3, 0]])
    return TokenBatch(ids, (ids > 0).astype(np.int64), np.zeros_like(ids))


def test_programs_are_bounded_when_many_shapes_come(load_numpy: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    """The programs of the shapes met lately are kept, no more of them than the limit, and come to the same answers."""
    monkeypatch.setattr(numpy_backend, "PROGRAMS", 3)
    model: LoadedModel = load_numpy()._model
    assert isinstance(model, numpy_backend.NumpyModel)
    answers = {}
    for length in (2, 3, 4, 5, 2, 5):
        batch = ragged(2, length, seed=length)
        batch = replace(batch, input_ids=batch.input_ids % 14)
        made = model.infer(batch)
        np.testing.assert_array_equal(answers.setdefault(length, made), made)
    assert model.compiled == ((2, 4), (2, 2), (2, 5))
