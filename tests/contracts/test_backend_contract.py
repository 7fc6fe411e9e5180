"""One suite for every backend that is installed, over real models.

By default each backend as it chooses its precision, and the two default models, which is quick.
`VECTORSEARCH_CONTRACT_MODELS` names others, separated by commas (`all`: the whole catalogue), pulled where the cache
lacks them, and takes each backend in each of its precisions.
"""

from __future__ import annotations

import gc
import os
import threading
from typing import TYPE_CHECKING, Any

import numpy as np
import pytest

from backends import catalogue, registry
from backends.base import TokenBatch
from backends.entries import DEFAULT_EMBEDDER, DEFAULT_RERANKER, ENTRIES
from backends.errors import InferenceError
from backends.text_model import TextLoader

if TYPE_CHECKING:
    from collections.abc import Iterator

    from numpy.typing import NDArray

    from backends.text_model import TextModel

pytestmark = [pytest.mark.models, pytest.mark.filterwarnings("ignore::DeprecationWarning")]  # of the runtimes' own

ASKED = os.environ.get("VECTORSEARCH_CONTRACT_MODELS", "")
MODELS = list(ENTRIES) if ASKED == "all" else (ASKED or f"{DEFAULT_EMBEDDER},{DEFAULT_RERANKER}").split(",")
BACKENDS = [
    variant
    for name in registry.available()
    if registry.get(name).priority is not None
    for variant in (registry.variants(name) if ASKED else (name,))
]
QUERY = "how do I read a csv file?"
TEXTS = [
    "",
    "csv",
    "Return a reader object that iterates over the lines of the given csv file.",
    "\N{CJK UNIFIED IDEOGRAPH-4E2D}\N{CJK UNIFIED IDEOGRAPH-6587}\N{CJK UNIFIED IDEOGRAPH-8BCD}",
    "\N{PILE OF POO}\N{ZERO WIDTH JOINER}\N{FLAG IN HOLE} emoji",
    "a NUL \0 inside",
    "Dogs and cats are common pets, and neither can parse a file.",
]


@pytest.fixture(scope="module", params=MODELS)
def spec(request: pytest.FixtureRequest) -> Any:
    """Give each model's description, its files in the cache."""
    return catalogue.pull(request.param)


@pytest.fixture(scope="module")
def reference(spec: Any) -> Iterator[TextModel]:
    """Give the model in float32, its 8-bit weights dequantised: what every backend is compared with."""
    name = "numpy:float32" if spec.weights_file.endswith(".onnx") else "torch:float32"
    model = TextLoader(registry.get(name)).load_model(spec)
    yield model
    model.close()


@pytest.fixture(scope="module", params=BACKENDS)
def loaded(request: pytest.FixtureRequest, spec: Any) -> Iterator[TextModel]:
    """Give each backend's model; where a backend can't serve it, it has said why, and the test is skipped."""
    backend = registry.get(request.param)
    answer = backend.can_serve(spec)
    if not answer:
        assert answer.reason
        pytest.skip(f"{request.param} and {spec.name}: {answer.reason}")
    model = TextLoader(backend).load_model(spec)
    yield model
    model.close()
    gc.collect()


def ask(model: TextModel, texts: list[str]) -> NDArray[np.float32]:
    """Return one row per text: its vector, or its score for the query."""
    if model.spec.task == "embed":
        return model.embed(texts, kind="passage").vectors
    return model.score(QUERY, texts).scores[:, None]


def distance(model: TextModel, one: NDArray[np.float32], other: NDArray[np.float32]) -> float:
    """Return the largest difference, of vectors 1 - cosine, of scores relative to their scale."""
    if model.spec.task == "embed":
        lengths = np.linalg.norm(one, axis=1) * np.linalg.norm(other, axis=1)
        return float((1 - (one * other).sum(axis=1) / lengths).max())
    return float(np.abs(one - other).max() / max(1, np.abs(other).max()))


def kind_of(model: TextModel) -> str:
    """Return how a model computes, as its device tells: float32, bfloat16 or int8."""
    if model.quantises:
        return "batch" if model.backend == "onnx" else "int8"
    return "bfloat16" if "bfloat16" in model.device else "float32"


# Vectors by 1 - cosine, scores by relative difference: against the float model, and between batches.
LIMITS = {"float32": (1e-6, 1e-4), "bfloat16": (1e-3, 5e-2), "int8": (1e-2, 5e-2), "batch": (2e-2, 0.15)}
COMPANY = {"float32": (1e-6, 2e-5), "bfloat16": (1e-4, 5e-3), "int8": (5e-3, 2e-2), "batch": (3e-2, 0.15)}


def limit(table: dict[str, tuple[float, float]], model: TextModel) -> float:
    """Return what a model may differ by."""
    return table[kind_of(model)][model.spec.task == "cross-encode"]


def test_answers_are_the_float_models_when_texts_are_of_any_kind(loaded: TextModel, reference: TextModel) -> None:
    """Empty, one token, CJK, emoji, NUL and plain texts, as passages and as queries: as the float model answers."""
    assert distance(loaded, ask(loaded, TEXTS), ask(reference, TEXTS)) < limit(LIMITS, loaded)
    if loaded.spec.task == "embed":
        ours, theirs = (model.embed(TEXTS, kind="query").vectors for model in (loaded, reference))
        assert distance(loaded, ours, theirs) < limit(LIMITS, loaded)
        np.testing.assert_allclose(np.linalg.norm(ours, axis=1), 1, atol=1e-3)
        has_prefix = loaded.spec.query_prefix != loaded.spec.passage_prefix
        assert has_prefix == (distance(loaded, ours, ask(loaded, TEXTS)) > 1e-3)


@pytest.mark.parametrize("words", [510, 20_000])
def test_answers_are_the_float_models_when_a_text_is_long(loaded: TextModel, reference: TextModel, words: int) -> None:
    """512 tokens fit; of 20,000 the tail is cut and the answer says so; both as the float model answers."""
    text = "reader " * words
    found = loaded.embed([text], kind="passage") if loaded.spec.task == "embed" else loaded.score(QUERY, [text])
    room = loaded.spec.max_length - 2 - (9 if loaded.spec.task == "cross-encode" else 0)
    assert found.truncated.tolist() == [words > room]
    assert distance(loaded, ask(loaded, [text]), ask(reference, [text])) < limit(LIMITS, loaded)


@pytest.mark.parametrize("rows", [1, 2, 7, 64])
def test_answers_do_not_depend_on_company_when_batches_are_ragged(loaded: TextModel, rows: int) -> None:
    """S32: batches of 1, 2, 7 and 64 rows, in any order, give what each text gets alone."""
    texts = [TEXTS[i % len(TEXTS)] for i in range(rows)]
    order = np.random.default_rng(rows).permutation(rows)
    together = ask(loaded, [texts[i] for i in order])
    alone = np.concatenate([ask(loaded, [text]) for text in TEXTS])[order % len(TEXTS)]
    assert distance(loaded, together, alone) < limit(COMPANY, loaded)


def test_answers_are_right_when_sixteen_threads_ask(loaded: TextModel) -> None:
    """Sixteen threads at once get the answers that one gets."""
    expected = ask(loaded, TEXTS[1:3])
    results: list[Any] = [None] * 16
    start = threading.Barrier(16)

    def run(i: int) -> None:
        start.wait()
        results[i] = ask(loaded, TEXTS[1:3])

    threads = [threading.Thread(target=run, args=(i,)) for i in range(16)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    for result in results:
        np.testing.assert_allclose(result, expected, atol=1e-6)


def test_model_answers_as_before_when_loaded_again(loaded: TextModel) -> None:
    """Load, unload, load: the same answers; a closed model says that it is closed, and closing again is harmless."""
    again = TextLoader(registry.get(loaded.backend)).load_model(loaded.spec)
    np.testing.assert_allclose(ask(again, TEXTS[:3]), ask(loaded, TEXTS[:3]), atol=1e-6)
    assert again.nbytes > 0.2 * loaded.spec.weights_nbytes
    assert again.device.count(":") >= 1
    again.close()
    again.close()
    with pytest.raises(InferenceError, match="closed"):
        ask(again, TEXTS[:1])


def test_impossible_ids_are_an_error_when_they_are_fed(loaded: TextModel) -> None:
    """Ids beyond the vocabulary are an inference error, or an answer of finite numbers: never NaN, never a crash."""
    ids = np.full((2, 5), 1 << 20, np.int64)
    try:
        answer = loaded._model.infer(TokenBatch(ids, np.ones_like(ids), np.zeros_like(ids)))
    except InferenceError:
        return
    assert np.isfinite(answer).all()
