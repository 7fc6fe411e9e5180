"""What ONNX Runtime, JAX and NumPy have in common: the same answers, refusals and closing for one graph."""

from __future__ import annotations

import os
import threading
from dataclasses import replace
from typing import TYPE_CHECKING, Any

import numpy as np
import pytest

from backends.catalogue import catalogue
from backends.choosing import registry
from backends.errors import InferenceError, InvalidModel

if TYPE_CHECKING:
    from backends.running.text_model import TextModel

WORDS = ["csv file", "read a csv file", "dog", "", "cat dog cat dog cat dog", "parse", "how a b c", "what is this"]
BACKENDS = ["onnx", "jax:float32", "numpy:float32"]


@pytest.mark.parametrize("backend", BACKENDS[1:])
@pytest.mark.parametrize("options", [{}, {"pooled": True}, {"task": "cross-encode"}])
def test_answers_are_onnx_runtimes_when_computed_in_floats(load: Any, backend: str, options: Any) -> None:
    """Token vectors, pooled vectors and logits agree with ONNX Runtime to 1e-5."""
    ours, theirs = load(backend=backend, **options), load(**options)
    if "task" in options:
        np.testing.assert_allclose(ours.score("how", WORDS).scores, theirs.score("how", WORDS).scores, atol=1e-5)
    else:
        mine, its = (model.embed(WORDS, kind="query").vectors for model in (ours, theirs))
        np.testing.assert_allclose(mine, its, atol=1e-5)


@pytest.mark.parametrize("backend", BACKENDS)
def test_rows_are_named_when_the_graph_gives_nan(load: Any, backend: str) -> None:
    """L47: NaN is an error that names the texts, never a vector."""
    model: TextModel = load(backend=backend, poison=True)
    with pytest.raises(InferenceError, match=r"NaN.*rows \[0\].*texts \[1, 0\]"):
        model.embed(["csv", "csv dog"], kind="passage")


@pytest.mark.parametrize("backend", BACKENDS)
@pytest.mark.parametrize("options", [{"task": "cross-encode", "labels": 2}, {"pooled": True}])
def test_graph_is_refused_at_load_when_it_does_not_fit_its_description(
    make_folder: Any, backend: str, options: Any
) -> None:
    """Two labels, no token vectors where pooling needs them, or vectors of another length are refused."""
    good = catalogue.resolve(make_folder(task=options.get("task", "embed")))
    with pytest.raises(InvalidModel, match=r"two labels|rank 3"):
        registry.get(backend).load_model(replace(good, folder=make_folder("bad", **options)))
    with pytest.raises(InvalidModel, match="vectors of 8 numbers, its description says 9"):
        registry.get(backend).load_model(replace(catalogue.resolve(make_folder("dim")), dim=9))


@pytest.mark.parametrize("backend", BACKENDS)
def test_model_is_gone_when_closed_twice(load: Any, backend: str) -> None:
    """Closing again is harmless, and inference says that it is closed; load again gives the same vectors to the bit."""
    model: TextModel = load(backend=backend)
    before = model.embed(WORDS, kind="passage").vectors
    model.close()
    model.close()
    with pytest.raises(InferenceError, match="is closed"):
        model.embed(["csv"], kind="passage")
    np.testing.assert_array_equal(load(backend=backend).embed(WORDS, kind="passage").vectors, before)


@pytest.mark.parametrize("backend", BACKENDS)
def test_answers_are_right_when_sixteen_threads_ask(load: Any, backend: str) -> None:
    """Sixteen threads at once, on a model that has run nothing yet, get the answers that one gets."""
    expected = load("other", backend=backend).embed(WORDS, kind="passage").vectors
    model: TextModel = load(backend=backend)
    results: list[Any] = [None] * 16
    start = threading.Barrier(16)

    def ask(i: int) -> None:
        start.wait()
        results[i] = model.embed(WORDS, kind="passage").vectors

    threads = [threading.Thread(target=ask, args=(i,)) for i in range(16)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    for result in results:
        np.testing.assert_array_equal(result, expected)


@pytest.mark.parametrize("backend", BACKENDS[:2])
def test_child_is_told_when_the_model_was_loaded_before_a_fork(
    load: Any, monkeypatch: pytest.MonkeyPatch, backend: str
) -> None:
    """S40: a forked child, where the runtime's threads don't exist, gets an error instead of waiting for ever."""
    model: TextModel = load(backend=backend)
    monkeypatch.setattr(os, "getpid", lambda: -1)
    with pytest.raises(InferenceError, match="forked"):
        model.embed(["csv"], kind="passage")
