"""PyTorch: the answers of transformers' own modules, in both precisions, and every failure in this project's words."""

from __future__ import annotations

import threading
from typing import TYPE_CHECKING, Any

import numpy as np
import pytest
from module_files import modules

from backends.base import TokenBatch
from backends.catalogue import catalogue
from backends.choosing import precision, registry
from backends.errors import DeadlineExceeded, InferenceError
from backends.running import text_model
from backends.running.deadline import Deadline

if TYPE_CHECKING:
    from pathlib import Path

    from numpy.typing import NDArray

torch = pytest.importorskip("torch")
transformers = pytest.importorskip("transformers")

TEXTS = ["read a csv file", "dog", "how how how a b c csv parse file dog read", "", "parse a file"]


def ragged(seed: int = 0) -> TokenBatch:
    """Return nine rows of random tokens, of unlike lengths, padded with garbage as well as with zeros."""
    rng = np.random.default_rng(seed)
    lengths = np.array([1, 40, 7, 23, 40, 2, 39, 11, 30])
    mask = (np.arange(40) < lengths[:, None]).astype(np.int64)
    types = (np.arange(40) >= lengths[:, None] // 2).astype(np.int64) * mask
    return TokenBatch(rng.integers(4, 32, (9, 40)), mask, types)


def reference(folder: Path, batch: TokenBatch, *, classify: bool) -> NDArray[np.float32]:
    """Return what transformers' own module answers: mean vectors of length 1, or logits."""
    kind = transformers.AutoModelForSequenceClassification if classify else transformers.AutoModel
    module = kind.from_pretrained(str(folder), attn_implementation="eager").eval()
    given = {"input_ids": torch.from_numpy(batch.input_ids), "attention_mask": torch.from_numpy(batch.attention_mask)}
    if module.config.model_type != "distilbert":
        given["token_type_ids"] = torch.from_numpy(batch.token_type_ids)
    with torch.no_grad():
        answer = module(**given)
    if classify:
        return np.asarray(answer.logits[:, 0].numpy())
    mask = given["attention_mask"][:, :, None]
    means = (answer.last_hidden_state * mask).sum(1) / mask.sum(1)
    return np.asarray(torch.nn.functional.normalize(means, dim=1).numpy())


@pytest.mark.parametrize("classify", [False, True])
@pytest.mark.parametrize("kind", ["bert", "roberta", "xlm-roberta", "distilbert"])
def test_answers_are_those_of_transformers_when_rows_are_padded(
    folder_of: Any,
    load_torch: Any,
    kind: str,
    classify: bool,  # noqa: FBT001  (a parameter of the test)
) -> None:
    """Every architecture, written out here or not, gives transformers' own vectors and logits, padding included."""
    folder = folder_of(kind, classify=classify)
    batch = ragged()
    found = load_torch(folder)._model.infer(batch)
    np.testing.assert_allclose(found, reference(folder, batch, classify=classify), atol=2e-5)


@pytest.mark.parametrize("kind", ["bert", "distilbert"])
def test_vectors_keep_their_direction_when_computed_in_bfloat16(folder_of: Any, load_torch: Any, kind: str) -> None:
    """In bfloat16 the cosine to float32 is at least 0.999, and the device says which precision it is."""
    folder = folder_of(kind)
    exact, fast = (load_torch(folder, f"torch:{precision}") for precision in ("float32", "bfloat16"))
    assert (exact.device, fast.device) == ("cpu:torch:float32", "cpu:torch:bfloat16")
    one, other = (model._model.infer(ragged()) for model in (exact, fast))
    assert 0.999 < np.sum(one * other, axis=1).min() < 0.9999999
    assert fast.nbytes < exact.nbytes


@pytest.mark.parametrize("pooling", ["cls", "mean", "last"])
def test_vectors_are_pooled_as_the_folder_says_when_embedding(folder_of: Any, load_torch: Any, pooling: str) -> None:
    """CLS, mean and last token agree with the token vectors of transformers' own module."""
    flags = {"cls": "pooling_mode_cls_token", "mean": "pooling_mode_mean_tokens", "last": "pooling_mode_lasttoken"}
    folder = folder_of(files={"1_Pooling/config.json": {flags[pooling]: True}, "modules.json": modules("Pooling")})
    batch = ragged()
    with torch.no_grad():
        hidden = (
            transformers.AutoModel.from_pretrained(str(folder))
            .eval()(
                *(torch.from_numpy(part) for part in (batch.input_ids, batch.attention_mask, batch.token_type_ids))
            )[0]
            .numpy()
        )
    lengths = batch.attention_mask.sum(axis=1)
    expected = {
        "cls": hidden[:, 0],
        "last": hidden[np.arange(9), lengths - 1],
        "mean": np.stack([row[:n].mean(axis=0) for row, n in zip(hidden, lengths, strict=True)]),
    }[pooling]
    np.testing.assert_allclose(load_torch(folder)._model.infer(batch), expected, atol=2e-5)


def test_scores_do_not_depend_on_the_batch_when_texts_are_mixed(folder_of: Any, load_torch: Any) -> None:
    """Alone, in any order, and among longer ones, a text has the same logit to 1e-5."""
    model = load_torch(folder_of(classify=True))
    together = model.score("how", TEXTS).scores
    np.testing.assert_allclose([model.score("how", [text]).scores[0] for text in TEXTS], together, atol=1e-5)
    np.testing.assert_allclose(model.score("how", TEXTS[::-1]).scores[::-1], together, atol=1e-5)


def test_layer_norms_are_read_when_a_checkpoint_is_old(folder_of: Any, load_torch: Any) -> None:
    """Weights called gamma and beta are the same model."""
    from safetensors.torch import load_file, save_file  # noqa: PLC0415  (heavy)

    folder = folder_of()
    expected = load_torch(folder).embed(TEXTS, kind="passage").vectors
    weights = load_file(folder / "model.safetensors")
    old = {"LayerNorm.weight": "LayerNorm.gamma", "LayerNorm.bias": "LayerNorm.beta"}
    for new, name in old.items():
        weights = {key.replace(new, name): value for key, value in weights.items()}
    save_file(weights, folder / "model.safetensors")
    np.testing.assert_array_equal(load_torch(folder).embed(TEXTS, kind="passage").vectors, expected)


def test_public_operators_answer_alike_when_packed_ones_are_missing(
    folder_of: Any, load_torch: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Where a build has no packed products, PyTorch's public operators give the same vectors."""
    from backends.runtimes.torch_runtime import bert_encoder  # noqa: PLC0415  (imports PyTorch)

    folder = folder_of()
    expected = load_torch(folder).embed(TEXTS, kind="passage").vectors
    monkeypatch.setattr(bert_encoder, "_packs", lambda _: False)
    plain = load_torch(folder)
    assert type(plain._model._encoder._layers[0].up) is bert_encoder._Linear
    np.testing.assert_allclose(plain.embed(TEXTS, kind="passage").vectors, expected, atol=1e-5)


def test_precision_is_measured_when_none_is_asked_for(
    folder_of: Any, load_torch: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Plain `torch` takes bfloat16 only if it is faster here and keeps the answers of this very model."""
    from backends.runtimes.torch_runtime import torch_precision  # noqa: PLC0415  (imports PyTorch)

    folder = folder_of()
    monkeypatch.setattr(torch_precision, "bfloat16_pays", lambda _: False)
    assert load_torch(folder, "torch").device == "cpu:torch:float32"
    monkeypatch.setattr(torch_precision, "bfloat16_pays", lambda _: True)
    monkeypatch.setattr(precision, "_agreed", {})
    assert load_torch(folder, "torch").device == "cpu:torch:bfloat16"
    monkeypatch.setattr(precision, "_agreed", {})
    monkeypatch.setattr(precision, "AGREEMENT", 1.1)
    assert load_torch(folder, "torch").device == "cpu:torch:float32"


def test_run_ends_when_the_time_is_up(folder_of: Any, load_torch: Any) -> None:
    """Past its deadline a batch is given up; the model is as good as before."""
    model = load_torch(folder_of())._model
    with pytest.raises(DeadlineExceeded):
        model.infer_until(ragged(), Deadline(due=1.0, clock=lambda: 2.0))
    assert model.infer_until(ragged(), Deadline.after(60.0)).shape == (9, 32)


def test_answers_are_right_when_sixteen_threads_ask(folder_of: Any, load_torch: Any) -> None:
    """Sixteen threads at once get the answers that one gets."""
    model = load_torch(folder_of())
    expected = model.embed(TEXTS, kind="passage").vectors
    results: list[Any] = [None] * 16
    start = threading.Barrier(16)

    def ask(i: int) -> None:
        start.wait()
        results[i] = model.embed(TEXTS, kind="passage").vectors

    threads = [threading.Thread(target=ask, args=(i,)) for i in range(16)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    for result in results:
        np.testing.assert_array_equal(result, expected)


def test_model_is_freed_when_closed_twice(folder_of: Any, load_torch: Any) -> None:
    """Closing drops the weights and ends the threads, again is harmless; load again gives the same vectors."""
    folder = folder_of()
    threads = set(threading.enumerate())
    model = load_torch(folder)
    expected = model.embed(TEXTS, kind="passage").vectors
    model.close()
    model.close()
    assert set(threading.enumerate()) <= threads
    with pytest.raises(InferenceError, match="is closed"):
        model.embed(["csv"], kind="passage")
    np.testing.assert_array_equal(load_torch(folder).embed(TEXTS, kind="passage").vectors, expected)


def test_threads_of_others_are_left_alone_when_a_model_is_loaded(folder_of: Any, load_torch: Any) -> None:
    """PyTorch's number of threads is as before for the caller, and for threads that start later."""
    found = [torch.get_num_threads()]
    load_torch(folder_of())
    thread = threading.Thread(target=lambda: found.append(torch.get_num_threads()))
    thread.start()
    thread.join()
    assert found == [torch.get_num_threads()] * 2


@pytest.mark.models
def test_vectors_are_those_of_sentence_transformers_when_the_model_is_real() -> None:
    """all-MiniLM-L6-v2 in float32 is within 1e-4 of sentence-transformers; in bfloat16 the cosine stays above 0.999."""
    from sentence_transformers import SentenceTransformer  # noqa: PLC0415  (heavy)

    spec = catalogue.pull("all-MiniLM-L6-v2")
    texts = [
        "how do I read a csv file",
        "",
        "a",
        "日本語 👍 \0",
        "word " * 300,
        *("file " * n for n in range(1, 60, 7)),
    ]
    expected = SentenceTransformer(str(spec.folder), device="cpu").encode(texts, show_progress_bar=False)
    for name, bound in (("float32", 1e-4), ("bfloat16", 0.05)):
        model = text_model.TextLoader(registry.select(spec, backend=f"torch:{name}")).load_model(spec)
        vectors = model.embed(texts, kind="passage").vectors
        model.close()
        np.testing.assert_allclose(vectors, expected, atol=bound)
        assert np.sum(vectors * expected, axis=1).min() > 0.999
