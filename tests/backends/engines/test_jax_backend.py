"""The JAX backend: ONNX Runtime's answers whatever the batch, few programs, precisions as told, and clear refusals."""

from __future__ import annotations

import threading
from contextlib import suppress
from dataclasses import replace
from functools import partial
from typing import TYPE_CHECKING, Any

import numpy as np
import pytest

from backends.base import TokenBatch
from backends.catalogue import catalogue
from backends.catalogue.entries import DEFAULT_EMBEDDER, DEFAULT_RERANKER
from backends.choosing import precision, registry
from backends.engines import jax_backend
from backends.engines.jax_backend import JaxBackend, JaxModel, layers_of, lengths, row_counts
from backends.errors import InferenceError, InvalidInput, InvalidModel, MissingExtra, TransientBackendError
from backends.running.batching import Batching
from backends.running.text_model import TextLoader

if TYPE_CHECKING:
    from collections.abc import Callable
    from pathlib import Path

    from backends.running.text_model import TextModel

WORDS = ["csv file", "read a csv file", "dog", "", "cat dog cat dog cat dog", "parse", "how a b c", "what is this"]


@pytest.fixture
def load_jax(load: Callable[..., TextModel]) -> Callable[..., TextModel]:
    """Return `load` for this backend."""
    return partial(load, backend="jax:float32")


def inner(model: TextModel) -> JaxModel:
    """Return the JAX model in a text model."""
    assert isinstance(model._model, JaxModel)
    return model._model


def ragged(rows: int, length: int, vocabulary: int = 14) -> TokenBatch:
    """Return a batch of random tokens whose rows but the first are of random lengths."""
    rng = np.random.default_rng(rows * length)
    mask = (np.arange(length) < np.array([length, *rng.integers(1, length + 1, rows - 1)])[:, None]).astype(np.int64)
    return TokenBatch(rng.integers(0, vocabulary, (rows, length)) * mask, mask, np.zeros_like(mask))


@pytest.mark.parametrize("pooling", ["cls", "last", "mean"])
def test_vectors_are_pooled_as_elsewhere_when_rows_are_ragged(make_folder: Callable[..., Path], pooling: Any) -> None:
    """Pooling inside the program gives what ONNX Runtime's vectors give pooled by NumPy, normalised or not."""
    for normalize in (True, False):
        spec = replace(catalogue.resolve(make_folder()), pooling=pooling, normalize=normalize)
        ours, theirs = (registry.get(name).load_model(spec) for name in ("jax:float32", "onnx"))
        np.testing.assert_allclose(ours.infer(ragged(5, 9)), theirs.infer(ragged(5, 9)), atol=1e-5)
        ours.close()
        theirs.close()


@pytest.mark.parametrize("budget", [16, 112, 1024])
def test_vectors_do_not_depend_on_the_batch_when_computed_in_floats(load_jax: Any, budget: int) -> None:
    """S32: batches of 1, 7 or 64 rows, and any order, give the same vectors to 1e-5."""
    model: TextModel = load_jax()
    texts = WORDS * 8
    alone = np.concatenate([model.embed([text], kind="passage").vectors for text in texts])
    model._batching = Batching(budget, (16,), 2)
    order = np.random.default_rng(budget).permutation(len(texts))
    together = model.embed([texts[i] for i in order], kind="passage").vectors
    np.testing.assert_allclose(together, alone[order], atol=1e-5)


def test_programs_are_few_when_lengths_are_many(
    make_folder: Callable[..., Path], monkeypatch: pytest.MonkeyPatch
) -> None:
    """L35: 500 random lengths, in batches of any number of rows, compile no more programs than there are buckets."""
    monkeypatch.setattr(jax_backend, "SPARE_PROGRAMS", 100)  # all are kept, so that all are counted
    spec = replace(catalogue.resolve(make_folder()), max_length=128)
    model = JaxBackend("float32").load_model(spec)
    assert isinstance(model, JaxModel)
    rng = np.random.default_rng(0)
    for length in rng.integers(1, 129, 500):
        model.infer(ragged(int(rng.integers(1, 12)), int(length)))
    buckets = {(rows, n) for n in lengths(128) for rows in {1, 1024 // n // 8, 1024 // n}}
    assert set(model.compiled) <= buckets
    assert len(model.compiled) <= len(buckets) <= 3 * len(lengths(128))
    model.close()


def test_oldest_program_makes_room_when_all_are_kept_that_may_be(
    make_folder: Callable[..., Path], monkeypatch: pytest.MonkeyPatch
) -> None:
    """The one used least recently goes, with the constants of its shape; met again, it gives the same answers."""
    monkeypatch.setattr(jax_backend, "SPARE_PROGRAMS", -5)
    model = JaxBackend("float32").load_model(replace(catalogue.resolve(make_folder()), max_length=128))
    assert isinstance(model, JaxModel)
    assert model._programs is not None
    first = model.infer(ragged(1, 16))
    model.infer(ragged(1, 24))
    model.infer(ragged(1, 16))
    model.infer(ragged(1, 32))
    assert set(model.compiled) == {(1, 16), (1, 32)}
    assert not any(name.endswith("@1x24") for name in model._programs._weights)
    model.infer(ragged(1, 24))
    assert set(model.compiled) == {(1, 24), (1, 32)}
    np.testing.assert_array_equal(model.infer(ragged(1, 16)), first)
    model.close()


def test_layers_are_twelve_when_config_does_not_say(make_folder: Callable[..., Path]) -> None:
    """The charge goes by config.json's layers; a damaged file, or one without them, counts as a usual small model."""
    spec = catalogue.resolve(make_folder())
    config = spec.folder / "config.json"
    for text, layers in (('{"num_hidden_layers": 3}', 3), ("{}", 12), ("[]", 12), ("{", 12)):
        config.write_text(text, encoding="utf-8")
        assert layers_of(spec) == layers
    config.unlink()
    assert layers_of(spec) == 12


@pytest.mark.parametrize(
    ("longest", "expected"), [(128, (16, 24, 32, 48, 64, 96, 128)), (100, (16, 24, 32, 48, 64, 96, 100))]
)
def test_lengths_end_with_the_models_longest_when_listed(longest: int, expected: tuple[int, ...]) -> None:
    """Buckets rise to the longest that the model takes, and no further."""
    assert lengths(longest) == expected
    assert lengths(8192)[-5:] == (512, 1024, 2048, 4096, 8192)
    assert lengths(8) == (8,)


def test_rows_are_covered_when_a_batch_is_cut_into_programs() -> None:
    """The programs' rows hold the batch, at most twice of it, and are of three sizes."""
    for most in (1, 2, 8, 16, 64):
        for rows in range(1, 3 * most + 2):
            counts = list(row_counts(rows, most))
            assert rows <= sum(counts) <= 2 * rows
            assert sum(counts[:-1]) < rows
            assert set(counts) <= {1, max(1, most // 8), most}


def test_ids_are_refused_when_the_vocabulary_lacks_them(load_jax: Any) -> None:
    """An id beyond the table is an error that says so: XLA itself would compute something."""
    with pytest.raises(InferenceError, match="knows 14 tokens"):
        inner(load_jax()).infer(ragged(2, 5, vocabulary=40))


def test_lack_of_memory_is_transient_when_the_runtime_says_so(load_jax: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    """Out of memory may pass elsewhere or later; any other failure of the runtime may not."""
    import jax  # noqa: PLC0415  (heavy: only where it is used)

    model: TextModel = load_jax()
    for text, kind in (("RESOURCE_EXHAUSTED: 9 bytes", TransientBackendError), ("INTERNAL: 9", InferenceError)):

        def fail(*_: object, text: str = text) -> None:
            raise jax.errors.JaxRuntimeError(text)

        monkeypatch.setattr(inner(model)._programs, "_program", lambda _shape, fail=fail: (fail, ()))
        with pytest.raises(InferenceError, match="9") as caught:
            model.embed(["csv"], kind="passage")
        assert type(caught.value) is kind


def test_both_closes_end_when_they_come_at_once(load_jax: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    """Two threads that close a model of two streams at once can't wait for each other, each with one permit taken."""
    monkeypatch.setattr("backends.engines.jax_backend.usable_cores", lambda: 2)
    model: TextModel = load_jax()
    meeting = threading.Barrier(2, timeout=0.1)

    class Shared(threading.Semaphore):
        def acquire(self, *args: Any, **kwargs: Any) -> bool:
            taken = super().acquire(*args, **kwargs)
            with suppress(threading.BrokenBarrierError):  # where the other close waits until this one is through
                meeting.wait()
            return taken

        __enter__ = acquire

    monkeypatch.setattr(inner(model), "_turns", Shared(2))
    closing = [threading.Thread(target=model.close, daemon=True) for _ in range(2)]
    for thread in closing:
        thread.start()
    for thread in closing:
        thread.join(timeout=600)
    assert not any(thread.is_alive() for thread in closing)


def test_weights_are_freed_when_closed_twice(load_jax: Any) -> None:
    """Closing deletes the arrays on the device and the programs; again is harmless."""
    model: TextModel = load_jax()
    model.embed(WORDS, kind="passage")
    programs = inner(model)._programs
    assert programs is not None
    arrays = list(programs._weights.values())
    model.close()
    model.close()
    assert arrays
    assert all(array.is_deleted() for array in arrays)
    assert inner(model).compiled == ()


@pytest.mark.parametrize(
    ("pays", "cosine", "expected"), [(False, 1.0, "float32"), (True, 1.0, "bfloat16"), (True, 0.9, "float32")]
)
def test_precision_is_bfloat16_when_it_pays_and_agrees(
    load_jax: Any, monkeypatch: pytest.MonkeyPatch, *, pays: bool, cosine: float, expected: str
) -> None:
    """By its plain name a float model is computed in bfloat16 only where that is faster and keeps the answers."""
    from backends.runtimes.jax_runtime import jax_precision  # noqa: PLC0415  (imports JAX)

    monkeypatch.setattr(jax_precision, "bfloat16_pays", lambda: pays)
    monkeypatch.setattr(precision, "_agreed", {})
    monkeypatch.setattr(precision, "agreement", lambda *_: cosine)
    for _ in range(2):  # the second load knows the first one's answer
        assert load_jax(backend="jax").device == f"cpu:jax:{expected}"
    assert load_jax(backend="jax:bfloat16").device == "cpu:jax:bfloat16"
    assert not load_jax(backend="jax").quantises


def test_precision_is_refused_when_there_is_none_such(make_folder: Callable[..., Path]) -> None:
    """Precisions are three; int8 is for graphs that have it."""
    with pytest.raises(InvalidInput, match="jax:float32, jax:bfloat16, jax:int8"):
        registry.get("jax:int4")
    spec = catalogue.resolve(make_folder())
    assert "ask for jax or jax:bfloat16" in JaxBackend("int8").can_serve(spec).reason
    with pytest.raises(InvalidModel, match="8-bit"):
        JaxBackend("int8").load_model(spec)


def test_reason_is_given_when_the_runtime_is_missing(make_folder: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    """Without JAX the backend refuses with the pip command, before loading and at loading."""
    spec = catalogue.resolve(make_folder())
    assert JaxBackend().can_serve(spec)
    monkeypatch.setattr(jax_backend.importlib.util, "find_spec", lambda _: None)
    assert "vectorsearch[jax]" in JaxBackend().can_serve(spec).reason
    with pytest.raises(MissingExtra, match=r"vectorsearch\[jax\]"):
        JaxBackend().load_model(spec)


@pytest.mark.models
def test_rows_are_quantised_alone_when_a_graph_has_8_bit_products() -> None:
    """The default embedder's vectors don't depend on the batch, and agree with its floats to a cosine of 0.99."""
    spec = catalogue.pull(DEFAULT_EMBEDDER)
    vectors = {}
    for name in ("jax", "jax:bfloat16", "jax:float32"):
        model = registry.get(name).load_model(spec)
        vectors[name] = model.infer(ragged(5, 16, vocabulary=20000))
        if name == "jax":
            assert (model.device, model.quantises) == ("cpu:jax:int8", True)  # type: ignore[attr-defined]  (JAX's own)
            batch = ragged(5, 16, vocabulary=20000)
            one = TokenBatch(batch.input_ids[4:], batch.attention_mask[4:], batch.token_type_ids[4:])
            assert float(model.infer(one)[0] @ vectors[name][4]) > 0.9999
        model.close()
    cosines = {name: (vectors[name] * vectors["jax:float32"]).sum(1).min() for name in vectors}
    assert cosines["jax:bfloat16"] > 0.999
    assert cosines["jax"] > 0.99


@pytest.mark.models
def test_pairs_are_scored_alike_when_computed_in_bfloat16() -> None:
    """The default reranker's order of passages is the same in bfloat16 and in float32."""
    spec = catalogue.pull(DEFAULT_RERANKER)
    passages = ["csv.reader returns rows of a csv file", "a recipe for bread", "open() opens a file", "rows of corn"]
    scores = {}
    for name in ("jax:bfloat16", "jax:float32"):
        model = TextLoader(registry.get(name)).load_model(spec)
        scores[name] = model.score("how to read a csv file", passages).scores
        model.close()
    np.testing.assert_allclose(*scores.values(), atol=0.1)
    assert np.argsort(scores["jax:bfloat16"]).tolist() == np.argsort(scores["jax:float32"]).tolist()
