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

from backends.base import TokenBatch
from backends.catalogue import catalogue
from backends.catalogue.entries import DEFAULT_EMBEDDER, DEFAULT_RERANKER, ENTRIES
from backends.choosing import registry
from backends.errors import InferenceError
from backends.running.text_model import Embeddings, TextLoader

if TYPE_CHECKING:
    from collections.abc import Iterator

    from numpy.typing import NDArray

    from backends.running.text_model import TextKind, TextModel

pytestmark = [pytest.mark.models, pytest.mark.filterwarnings("ignore::DeprecationWarning")]  # of the runtimes' own

ASKED = os.environ.get("VECTORSEARCH_CONTRACT_MODELS", "")
MODELS = list(ENTRIES) if ASKED == "all" else (ASKED or f"{DEFAULT_EMBEDDER},{DEFAULT_RERANKER}").split(",")
BACKENDS = [variant for name in registry.unasked() for variant in (registry.variants(name) if ASKED else (name,))]
PAIRS = [(model, backend) for model in MODELS for backend in BACKENDS]
ANSWERS = {pair: registry.get(pair[1]).can_serve(catalogue.resolve(pair[0])) for pair in PAIRS}
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


class Expected:
    """The float32 answers of a model, its 8-bit weights dequantised, each computed once: what all are compared with."""

    def __init__(self, model: TextModel) -> None:
        self._model = model
        self._known: dict[tuple[Any, ...], NDArray[np.float32]] = {}

    def __call__(self, texts: list[str], *, kind: TextKind = "passage") -> NDArray[np.float32]:
        """Return one row per text; see `ask`."""
        key = (kind, *texts)
        if key not in self._known:
            self._known[key] = ask(self._model, texts, kind=kind)
        return self._known[key]

    def close(self) -> None:
        """Free the model."""
        self._model.close()


@pytest.fixture(scope="module")
def float_models() -> Iterator[dict[str, Expected]]:
    """Keep the float models met so far, by name, until the end."""
    made: dict[str, Expected] = {}
    yield made
    for model in made.values():
        model.close()


@pytest.fixture(scope="module", params=[pair for pair in PAIRS if ANSWERS[pair]], ids="-".join)
def loaded(request: pytest.FixtureRequest) -> Iterator[TextModel]:
    """Give each model on each backend that can serve it."""
    name, backend = request.param
    model = TextLoader(registry.get(backend)).load_model(catalogue.pull(name))
    yield model
    model.close()
    gc.collect()


@pytest.fixture(scope="module")
def expected(loaded: TextModel, float_models: dict[str, Expected]) -> Expected:
    """Give the answers that the backend's are compared with."""
    spec = loaded.spec
    if spec.name not in float_models:
        backend = "numpy:float32" if spec.weights_file.endswith(".onnx") else "torch:float32"
        float_models[spec.name] = Expected(TextLoader(registry.get(backend)).load_model(spec))
    return float_models[spec.name]


@pytest.fixture(scope="module")
def alone(loaded: TextModel) -> NDArray[np.float32]:
    """Give what each text gets from a backend by itself."""
    return np.concatenate([ask(loaded, [text]) for text in TEXTS])


def ask(model: TextModel, texts: list[str], *, kind: TextKind = "passage") -> NDArray[np.float32]:
    """Return one row per text: its vector, or its score for the query."""
    if model.spec.task == "embed":
        return model.embed(texts, kind=kind).vectors
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


# Vectors by 1 - cosine, scores by relative difference: against the float model, and between batches. With AVX-512 and
# AMX the most that the whole catalogue showed in these tests was, in the same order:
# (1.2e-7, 2.7e-7), (9.2e-5, 2.5e-3), (4.1e-3, 9.5e-3), (1.6e-2, 5.9e-2), and between batches
# (1.2e-7, 1.8e-7), (1.2e-4, 1.4e-3), (3.4e-3, 8.4e-3), (2.3e-2, 1.3e-2).
LIMITS = {"float32": (1e-6, 5e-6), "bfloat16": (3e-4, 8e-3), "int8": (6e-3, 2e-2), "batch": (2e-2, 8e-2)}
COMPANY = {"float32": (1e-6, 5e-6), "bfloat16": (2e-4, 4e-3), "int8": (5e-3, 1.3e-2), "batch": (3e-2, 3e-2)}


def limit(table: dict[str, tuple[float, float]], model: TextModel) -> float:
    """Return what a model may differ by."""
    return table[kind_of(model)][model.spec.task == "cross-encode"]


def test_reason_is_given_when_a_backend_can_not_serve() -> None:
    """Every backend serves a model or says why not, and NumPy or PyTorch serves each."""
    assert all(answer or answer.reason for answer in ANSWERS.values())
    assert {model for (model, _), answer in ANSWERS.items() if answer} == set(MODELS)


def test_answers_are_the_float_models_when_texts_are_of_any_kind(loaded: TextModel, expected: Expected) -> None:
    """Empty, one token, CJK, emoji, NUL and plain texts, as passages and as queries: as the float model answers."""
    passages = ask(loaded, TEXTS)
    assert distance(loaded, passages, expected(TEXTS)) < limit(LIMITS, loaded)
    if loaded.spec.task == "embed":
        queries = ask(loaded, TEXTS, kind="query")
        assert distance(loaded, queries, expected(TEXTS, kind="query")) < limit(LIMITS, loaded)
        np.testing.assert_allclose(np.linalg.norm(queries, axis=1), 1, atol=1e-3)
        has_prefix = loaded.spec.query_prefix != loaded.spec.passage_prefix
        assert has_prefix == (distance(loaded, queries, passages) > 1e-3)


def test_answers_are_the_float_models_when_a_text_is_long(loaded: TextModel, expected: Expected) -> None:
    """512 tokens are taken whole; of 20,000 the tail is cut, the answer says so, and is that of the part kept."""
    texts = ["reader " * 400, "reader " * 20_000]
    embeds = loaded.spec.task == "embed"
    found = loaded.embed(texts, kind="passage") if embeds else loaded.score(QUERY, texts)
    assert found.truncated.tolist() == [loaded.spec.max_length < 402, True]  # two special tokens
    answers = found.vectors if isinstance(found, Embeddings) else found.scores[:, None]
    assert distance(loaded, answers, expected(texts)) < limit(LIMITS, loaded)


@pytest.mark.parametrize("rows", [1, 2, 7, 64])
def test_answers_do_not_depend_on_company_when_batches_are_ragged(
    loaded: TextModel, alone: NDArray[np.float32], rows: int
) -> None:
    """S32: batches of 1, 2, 7 and 64 rows, in any order, give what each text gets alone."""
    order = np.random.default_rng(rows).permutation(rows) % len(TEXTS)
    together = ask(loaded, [TEXTS[i] for i in order])
    assert distance(loaded, together, alone[order]) < limit(COMPANY, loaded)


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
