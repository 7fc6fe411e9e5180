"""The fake backend: answers that mean something, and every failure on demand."""

from __future__ import annotations

import threading

import numpy as np
import pytest

from backends.engines.fake_backend import FakeBackend, Fault, fake_spec
from backends.errors import InferenceError, InvalidModel, TransientBackendError
from backends.running.text_model import TextLoader, TextModel


def loaded(backend: FakeBackend, task: str = "embed") -> TextModel:
    """Load a fake model."""
    return TextLoader(backend).load_model(fake_spec("m", task=task))  # type: ignore[arg-type]  (a literal)


def test_vectors_are_close_when_texts_share_words() -> None:
    """Shared words give a higher cosine than none; the same text gives the same vector, of length 1."""
    vectors = loaded(FakeBackend()).embed(["read a CSV file", "csv file, read", "walk the dog"], kind="passage").vectors
    assert vectors[0] @ vectors[1] > vectors[0] @ vectors[2] + 0.3
    np.testing.assert_allclose(np.linalg.norm(vectors, axis=1), 1, atol=1e-6)
    np.testing.assert_array_equal(loaded(FakeBackend()).embed(["read a CSV file"], kind="query").vectors[0], vectors[0])


def test_scores_rise_when_more_of_the_query_is_found() -> None:
    """The share of the query's words that a text has decides."""
    scores = loaded(FakeBackend(), "cross-encode").score("read csv file", ["dog", "csv", "read a csv file"]).scores
    assert list(np.argsort(-scores)) == [2, 1, 0]


@pytest.mark.parametrize(
    ("fault", "error"),
    [(Fault.OUT_OF_MEMORY, TransientBackendError), (Fault.CRASH, InferenceError), (Fault.NAN, InferenceError)],
)
@pytest.mark.parametrize("task", ["embed", "cross-encode"])
def test_inference_fails_once_when_scripted(fault: Fault, error: type[Exception], task: str) -> None:
    """L47: a scripted failure is raised, never answered with zeros; the next call succeeds."""
    model = loaded(FakeBackend(infers=[fault]), task)

    def ask() -> object:
        return model.embed(["a"], kind="query") if task == "embed" else model.score("a", ["a"])

    with pytest.raises(error, match=r"texts \[0\]") as caught:
        ask()
    assert type(caught.value) is error
    ask()


def test_load_fails_in_order_when_scripted() -> None:
    """Load steps are taken one per load: out of memory, crash, success."""
    backend = FakeBackend(loads=[Fault.OUT_OF_MEMORY, Fault.CRASH])
    for error in (TransientBackendError, InvalidModel):
        with pytest.raises(error):
            loaded(backend)
    loaded(backend).close()
    assert (backend.loaded, backend.closed) == (1, 1)


def test_load_waits_when_an_event_is_scripted() -> None:
    """A load blocks until the test sets the event, so that races can be staged without sleeping."""
    gate, backend = threading.Event(), FakeBackend(nbytes=5)
    backend = FakeBackend(nbytes=5, loads=[gate])
    models: list[TextModel] = []
    thread = threading.Thread(target=lambda: models.append(loaded(backend)))
    thread.start()
    assert models == []
    gate.set()
    thread.join()
    assert [model.nbytes for model in models] == [5]


def test_query_is_whole_and_tail_is_cut_when_a_text_is_long() -> None:
    """S41: the fake's own tokenizer cuts as the real one does."""
    model = TextLoader(FakeBackend()).load_model(fake_spec("m", task="cross-encode", max_length=12))
    result = model.score("csv file", ["x " * 50 + "csv file", "csv file"])
    assert result.truncated.tolist() == [True, False]
    assert result.scores[1] > result.scores[0]


def test_closed_model_is_an_error_when_used() -> None:
    """A closed model says so, and a second close is not counted."""
    backend = FakeBackend()
    model = loaded(backend)
    model.close()
    model.close()
    assert backend.closed == 1
    with pytest.raises(InferenceError, match="is closed"):
        model.embed(["a"], kind="query")
