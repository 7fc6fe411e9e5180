"""Feature models: the fit against exact linear algebra, the saved folder, and what is served from it."""

from __future__ import annotations

import hashlib
import json
import subprocess
import sys
from typing import TYPE_CHECKING, Any

import numpy as np
import pytest

from backends.catalogue import catalogue
from backends.errors import InferenceError, InvalidInput, InvalidModel
from backends.features.feature_fit import collect, fit, right_singular_vectors
from backends.features.feature_model import (
    WEIGHTS_FILE,
    FeatureModel,
    FeatureTokenizer,
    read_features,
    read_spec,
    read_tokenizer,
    save,
)
from backends.running.batching import collate
from backends.text.analyzer import Analyzer

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence
    from pathlib import Path

    from numpy.typing import NDArray

    from backends.base import ModelSpec

TOPICS = (
    "read rows of a csv file with a reader",
    "parse json documents into python objects",
    "start threads and wait for locks",
    "send mail over an smtp server",
)
TEXTS = [f"{topic} {extra}" for topic in TOPICS for extra in ("quickly", "slowly", "again", "quickly again", "once")]


def tokenizer() -> FeatureTokenizer:
    return FeatureTokenizer("en")


def fitted(folder: Path, *, dim: int = 4, seed: int = 0) -> ModelSpec:
    counts = collect(tokenizer().hashes(text) for text in TEXTS)
    return save(fit(counts, dim=dim, language="en", seed=seed), folder, {"documents": len(TEXTS)})


def vectors(spec: ModelSpec, texts: Sequence[str]) -> NDArray[np.float32]:
    rows = read_tokenizer(spec).texts(texts, spec.max_length)
    return FeatureModel(spec).infer(collate(rows, np.arange(len(texts))))


def test_singular_vectors_equal_the_exact_ones() -> None:
    """The randomised iteration finds the subspace and the singular values that NumPy's SVD gives, in order."""
    rng = np.random.default_rng(5)
    documents = [rng.integers(1, 120, rng.integers(5, 40)).tolist() for _ in range(700)]
    counts = collect(documents)
    terms, frequencies = counts.vocabulary()
    rows = counts.weighted(terms, np.log(1 + len(counts) / frequencies).astype(np.float32))
    dense = np.zeros((len(rows), rows.width), np.float32)
    dense[np.repeat(np.arange(len(rows)), np.diff(rows.starts)), rows.columns] = rows.values
    np.testing.assert_allclose(np.linalg.norm(dense, axis=1), 1, rtol=1e-5)
    exact = np.linalg.svd(dense, compute_uv=False)
    found = right_singular_vectors(rows, 8, seed=1)
    np.testing.assert_allclose(found.T @ found, np.eye(8), atol=1e-5)
    np.testing.assert_allclose(np.linalg.norm(dense @ found, axis=0), exact[:8], rtol=0.01)


def test_weights_follow_the_formula() -> None:
    """A term's value is (1 + ln count) ln(1 + N / n), in a row of length 1; terms of one document are left out."""
    counts = collect([[7, 7, 7, 9], [7, 9, 11], [9]])
    terms, frequencies = counts.vocabulary()
    assert (terms.tolist(), frequencies.tolist()) == ([7, 9], [2, 3])
    rows = counts.weighted(terms, np.log(1 + 3 / frequencies).astype(np.float32))
    first = np.array([(1 + np.log(3)) * np.log(2.5), np.log(2)])
    np.testing.assert_allclose(rows.values[:2], first / np.linalg.norm(first), rtol=1e-5)
    assert rows.starts.tolist() == [0, 2, 4, 5]


def test_vectors_of_one_topic_are_close_when_they_share_no_word(tmp_path: Path) -> None:
    """Texts of one topic are near one another, whatever words of it they have, and far from another topic's."""
    found = vectors(fitted(tmp_path / "m"), ["csv reader", "rows of files", "threads", "lock waits"])
    assert found.shape == (4, 4)
    assert found.dtype == np.float32
    np.testing.assert_allclose(np.linalg.norm(found, axis=1), 1, rtol=1e-6)
    cosines = found @ found.T
    assert min(cosines[0, 1], cosines[2, 3]) > 0.9
    assert cosines[0, 2] < 0.5


def test_text_without_known_terms_is_the_zero_vector(tmp_path: Path) -> None:
    """Empty texts, stop words and words never seen give zeros, not NaN."""
    found = vectors(fitted(tmp_path / "m"), ["", "the of and", "zebra", "\0\ud800", "csv"])
    assert not found[:4].any()
    assert found[4].any()


def test_answers_do_not_depend_on_the_batch(tmp_path: Path) -> None:
    """S32: batch sizes and order change nothing, and nor does padding."""
    spec = fitted(tmp_path / "m")
    together = vectors(spec, TEXTS)
    for size in (1, 2, 7):
        parts = [vectors(spec, TEXTS[i : i + size]) for i in range(0, len(TEXTS), size)]
        np.testing.assert_array_equal(np.concatenate(parts), together)
    np.testing.assert_array_equal(vectors(spec, TEXTS[::-1])[::-1], together)


def test_same_documents_and_seed_give_the_same_digest(tmp_path: Path) -> None:
    """A fit is deterministic: the same files in another folder; another seed gives another model."""
    first, again, other = fitted(tmp_path / "a"), fitted(tmp_path / "b"), fitted(tmp_path / "c", seed=9)
    assert first.digest == again.digest
    assert (tmp_path / "a" / WEIGHTS_FILE).read_bytes() == (tmp_path / "b" / WEIGHTS_FILE).read_bytes()
    assert other.digest != first.digest
    assert sorted(path.name for path in (tmp_path / "a").iterdir()) == ["config.json", WEIGHTS_FILE]


def test_new_process_hashes_terms_alike(tmp_path: Path) -> None:
    """Terms are hashed without Python's own, which differs from process to process."""
    spec = fitted(tmp_path / "m")
    code = (
        "import json, sys; from pathlib import Path\n"
        "from backends.features.feature_model import read_spec, read_tokenizer\n"
        "print(json.dumps(read_tokenizer(read_spec(Path(sys.argv[1]))).hashes('Reading CSV files')))"
    )
    done = subprocess.run([sys.executable, "-c", code, spec.folder], capture_output=True, check=True, timeout=600)
    assert json.loads(done.stdout) == tokenizer().hashes("Reading CSV files")


def test_folder_resolves_to_its_spec(tmp_path: Path) -> None:
    """The folder is resolved as any model's is, and its digest covers both files."""
    spec = fitted(tmp_path / "m")
    found = catalogue.resolve(tmp_path / "m")
    assert (found.task, found.dim, found.digest, found.weights_file) == ("embed", 4, spec.digest, WEIGHTS_FILE)
    config = tmp_path / "m" / "config.json"
    config.write_text(config.read_text().replace('"en"', '"de"'))
    assert catalogue.resolve(tmp_path / "m").digest != spec.digest


@pytest.mark.parametrize(
    ("documents", "dim", "message"),
    [
        ([], 2, "add documents first"),
        ([[], []], 2, "0 documents with words"),
        ([[1, 2], [1, 2]], 3, "ask for at most 2"),
        ([[1, 2], [3, 4], [5, 6]], 1, "share 0 terms"),
        ([[1, 2], [1, 2]], 0, "dim is 0"),
    ],
)
def test_fit_is_refused_when_documents_are_too_few(documents: list[list[int]], dim: int, message: str) -> None:
    """Fewer documents, or shared terms, than dimensions: the message has the numbers and what would do."""
    with pytest.raises(InvalidInput, match=message):
        fit(collect(documents), dim=dim, language=None)


def _truncated(folder: Path) -> None:
    path = folder / WEIGHTS_FILE
    path.write_bytes(path.read_bytes()[:200])


def _pickled(folder: Path) -> None:
    np.savez(folder / WEIGHTS_FILE, terms=np.array([{}]), rows=np.zeros((1, 4), np.float32))


def _unsorted(folder: Path) -> None:
    found = read_features(folder)
    np.savez(folder / WEIGHTS_FILE, terms=found.terms[::-1], rows=found.rows)


def _narrower(folder: Path) -> None:
    found = read_features(folder)
    np.savez(folder / WEIGHTS_FILE, terms=found.terms, rows=found.rows[:, 1:])


@pytest.mark.parametrize("damage", [_truncated, _pickled, _unsorted, _narrower])
def test_damaged_file_is_refused(tmp_path: Path, damage: Callable[[Path], None]) -> None:
    """A file that is cut, holds objects, or isn't what the configuration says is an InvalidModel; no pickle is read."""
    spec = fitted(tmp_path / "m")
    damage(tmp_path / "m")
    with pytest.raises(InvalidModel, match=WEIGHTS_FILE):
        FeatureModel(spec)


@pytest.mark.parametrize("config", ["no json", "[" * 100_000, "[]", "{}", '{"model_type": "bert"}', None])
def test_damaged_configuration_is_refused(tmp_path: Path, config: Any) -> None:
    """A configuration that is missing, damaged or another model's is an InvalidModel that names the file."""
    fitted(tmp_path / "m")
    path = tmp_path / "m" / "config.json"
    if config is None:
        path.unlink()
    else:
        path.write_text(config)
    with pytest.raises(InvalidModel, match=r"config\.json"):
        catalogue.resolve(tmp_path / "m")


def test_another_analysis_is_refused(tmp_path: Path) -> None:
    """A model whose analyser cut words otherwise is refused, for its vectors would mean something else."""
    spec = fitted(tmp_path / "m")
    path = tmp_path / "m" / "config.json"
    path.write_text(path.read_text().replace(tokenizer().check, "0" * 16))
    with pytest.raises(InvalidModel, match="another version of the analyser"):
        read_tokenizer(spec)


def test_pairs_and_closed_models_are_refused(tmp_path: Path) -> None:
    """It embeds and doesn't compare; closed, it refuses, and closing again is harmless."""
    spec = fitted(tmp_path / "m")
    with pytest.raises(InvalidInput, match="only embeds"):
        tokenizer().pairs("q", ["a"], 9)
    model = FeatureModel(spec)
    rows = tokenizer().texts(["csv"], 9)
    model.close()
    model.close()
    with pytest.raises(InferenceError, match="closed"):
        model.infer(collate(rows, np.arange(1)))


def test_long_text_is_cut_and_says_so() -> None:
    """S41: what is longer than the model takes keeps its head and counts as truncated."""
    rows = tokenizer().texts(["csv " * 30, "csv"], 20)
    assert [len(ids) for ids in rows.input_ids] == [20, 1]
    assert rows.truncated.tolist() == [True, False]


def test_a_model_of_the_first_release_serves_when_its_words_are_cut_as_before(tmp_path: Path) -> None:
    """Its check knows fewer words; where those are as they were, the model goes on."""
    fitted(tmp_path / "model")
    path = tmp_path / "model" / "config.json"
    config = json.loads(path.read_text())
    early = (
        "the relational databases' generalizations were running, naïve café résumés; 我喜欢苹果 C++ state-of-the-art"
    )
    config["analysis"] = hashlib.sha256(" ".join(Analyzer("en").words(early)).encode()).hexdigest()[:16]
    path.write_text(json.dumps(config))
    assert read_tokenizer(read_spec(tmp_path / "model")).hashes("running")
    path.write_text(json.dumps({**config, "analysis": "0" * 16}))
    with pytest.raises(InvalidModel, match="another version of the analyser"):
        read_tokenizer(read_spec(tmp_path / "model"))
