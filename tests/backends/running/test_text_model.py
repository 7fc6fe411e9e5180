"""Text models: prefixes, order, empty input, refusals; and the two default models themselves."""

from __future__ import annotations

import numpy as np
import psutil
import pytest

from backends.catalogue import catalogue
from backends.choosing import registry
from backends.engines.fake_backend import FakeBackend, fake_spec
from backends.errors import CannotServe, InvalidInput
from backends.running import text_model
from backends.running.text_model import TextLoader, TextModel

MIB = 1 << 20


def test_prefix_is_put_before_the_text_when_its_kind_has_one() -> None:
    """Queries and passages get the model's own prefix, each its own."""
    from dataclasses import replace  # noqa: PLC0415  (only here)

    spec = replace(fake_spec("m"), query_prefix="find ", passage_prefix="text ")
    model, plain = TextLoader(FakeBackend()).load_model(spec), TextLoader(FakeBackend()).load_model(fake_spec("m"))
    for kind, prefixed in (("query", "find csv"), ("passage", "text csv")):
        np.testing.assert_array_equal(
            model.embed(["csv"], kind=kind).vectors,
            plain.embed([prefixed], kind="passage").vectors,  # type: ignore[arg-type]  (a literal)
        )


def test_model_is_not_called_when_there_are_no_texts() -> None:
    """No texts give empty arrays of the right shapes, without an inference."""
    backend = FakeBackend()
    embedded = TextLoader(backend).load_model(fake_spec("e", dim=7)).embed([], kind="passage")
    scored = TextLoader(backend).load_model(fake_spec("r", task="cross-encode")).score("q", [])
    assert (embedded.vectors.shape, embedded.truncated.shape) == ((0, 7), (0,))
    assert (scored.scores.shape, scored.truncated.shape) == ((0,), (0,))
    assert backend.inferred == 0


@pytest.mark.parametrize("call", ["score", "string", "number", "query"])
def test_argument_is_refused_when_it_is_not_the_models(call: str) -> None:
    """The wrong task, one string instead of several, and what is no string are the caller's errors."""
    embed = TextLoader(FakeBackend()).load_model(fake_spec("e"))
    rerank = TextLoader(FakeBackend()).load_model(fake_spec("r", task="cross-encode"))
    with pytest.raises(InvalidInput):
        {
            "score": lambda: embed.score("q", ["a"]),
            "string": lambda: embed.embed("abc", kind="query"),
            "number": lambda: embed.embed(["a", 3], kind="query"),  # type: ignore[list-item]  (the fault)
            "query": lambda: rerank.score(None, ["a"]),  # type: ignore[arg-type]  (the fault)
        }[call]()


def test_length_is_the_shorter_when_a_call_asks_for_one() -> None:
    """`max_length` cuts below the model's own length, and never goes beyond it."""
    model = TextLoader(FakeBackend()).load_model(fake_spec("r", task="cross-encode", max_length=20))
    text = ["a b c d e f g h i j k l m n o p q r s t u v w"]
    assert model.score("q", text, max_length=10_000).truncated.all()
    assert model.score("q", [text[0][:20]]).truncated.tolist() == [False]
    assert model.score("q", [text[0][:20]], max_length=8).truncated.tolist() == [True]


def test_reason_is_told_when_no_backend_serves_a_listed_model() -> None:
    """A catalogue model without an ONNX graph is refused with what it lacks."""
    with pytest.raises(CannotServe, match=r"has only model\.safetensors: run 'vectorsearch models export"):
        text_model.TextLoader(registry.select(catalogue.resolve("all-MiniLM-L6-v2"), backend="onnx"))


@pytest.mark.models
def test_cosines_make_sense_when_texts_are_related(embedder: TextModel) -> None:
    """A paraphrase is closer than an unrelated sentence, and vectors have length 1."""
    texts = ["How do I read a CSV file?", "Parsing comma separated values from disk", "The dog sleeps in the sun"]
    vectors = embedder.embed(texts, kind="passage").vectors
    assert vectors.shape == (3, 384)
    np.testing.assert_allclose(np.linalg.norm(vectors, axis=1), 1, atol=1e-5)
    assert vectors[0] @ vectors[1] > vectors[0] @ vectors[2] + 0.15


@pytest.mark.models
def test_first_token_is_read_when_pooling_is_cls(embedder: TextModel) -> None:
    """The vector is the first token's state, normalised: taken from the session itself, it is the same."""
    rows = embedder._tokenizer.texts(["read a csv file"], 512)
    ids = np.array(rows.input_ids, np.int64)
    feeds = {"input_ids": ids, "attention_mask": np.ones_like(ids), "token_type_ids": np.zeros_like(ids)}
    hidden = embedder._model._session.run(["last_hidden_state"], feeds)[0]  # type: ignore[attr-defined]  (ONNX only)
    expected = hidden[0, 0] / np.linalg.norm(hidden[0, 0])
    np.testing.assert_allclose(embedder.embed(["read a csv file"], kind="passage").vectors[0], expected, atol=1e-6)


@pytest.mark.models
def test_vectors_hardly_move_when_the_batch_changes(embedder: TextModel) -> None:
    """Int8 quantises over the whole batch, so vectors depend on it a little: cosine stays at least 0.98."""
    texts = ["csv", "read a file " * 20, "How do I parse a csv file?", "The dog sleeps. " * 30] * 4
    alone = np.concatenate([embedder.embed([text], kind="passage").vectors for text in texts])
    together = embedder.embed(texts, kind="passage").vectors
    assert (alone * together).sum(axis=1).min() >= 0.98


@pytest.mark.models
def test_answer_comes_first_when_pairs_are_scored(reranker: TextModel) -> None:
    """The text that answers the query has the highest logit; logits are not squashed."""
    texts = [
        "New York City is famous for the Metropolitan Museum of Art.",
        "Berlin had a population of 3,520,031 registered inhabitants in an area of 891.82 square kilometers.",
        "",
        "Berlin is well known for its museums.",
    ]
    result = reranker.score("How many people live in Berlin?", texts)
    assert int(np.argmax(result.scores)) == 1
    assert result.scores[1] > 5
    assert result.scores[0] < -5
    assert result.scores.dtype == np.float32


@pytest.mark.models
@pytest.mark.parametrize(("words", "truncated"), [(0, False), (1, False), (509, False), (510, True), (20_000, True)])
def test_any_length_is_scored_when_the_query_fits(reranker: TextModel, words: int, *, truncated: bool) -> None:
    """S41: empty, one-token, exactly 512-token and 20,000-token pairs are scored, and what was cut is said."""
    # [CLS] how [SEP] … [SEP] leaves 508 tokens; "dog" is one token.
    result = reranker.score("how", ["dog " * max(words - 1, 0)])
    assert np.isfinite(result.scores).all()
    assert result.truncated.tolist() == [truncated]


@pytest.mark.models
def test_memory_levels_off_when_batches_are_ragged(embedder: TextModel, reranker: TextModel) -> None:
    """S40, L34: once the largest and 12 ragged batches were seen, 12 more add less than 32 MiB."""
    rng = np.random.default_rng(0)

    def ask(words: int, rows: int) -> None:
        embedder.embed(["csv " * words] * rows, kind="passage")
        reranker.score("how do I read", ["csv " * words] * rows)

    for words in (510, 250, 100, 30):
        ask(words, max(1, 1024 // words))
    before = 0
    for call in range(24):
        if call == 12:
            before = psutil.Process().memory_info().rss
        ask(int(rng.integers(1, 500)), int(rng.integers(1, 4)))
    assert psutil.Process().memory_info().rss - before < 32 * MIB


@pytest.mark.models
@pytest.mark.parametrize("name", catalogue.names()[:2])
def test_memory_comes_back_when_a_model_is_loaded_and_unloaded(name: str) -> None:
    """Load, warm up and unload, again and again: resident memory doesn't grow after the first two."""
    spec = catalogue.pull(name)
    loader, sizes = text_model.TextLoader(registry.get("onnx")), []
    for _ in range(4):
        model = loader.load_model(spec)
        model.warm_up()
        model.close()
        sizes.append(psutil.Process().memory_info().rss)
    assert sizes[-1] - sizes[1] < 16 * MIB
