"""Models that nobody vouches for, tried in a child process: what is measured, and what is refused."""

from __future__ import annotations

import json
import time
from dataclasses import replace
from typing import TYPE_CHECKING, Any

import pytest
from hostile_folders import grows, panics, write_bert, write_embedder

from backends.errors import BackendError, InferenceError, InvalidModel
from backends.folders.folder import read_folder
from backends.text.tokenizer import FolderTokenizer
from lifecycle.measuring import trial

if TYPE_CHECKING:
    from pathlib import Path

LIMIT_NBYTES = 200 << 20


@pytest.fixture(autouse=True)
def own_cache(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Keep trials where no other test finds them."""
    monkeypatch.setenv("VECTORSEARCH_CACHE", str(tmp_path / "cache"))


def try_out(folder: Path, **options: Any) -> trial.Trial:
    """Try the model of a folder on ONNX Runtime."""
    return trial.try_out(read_folder(folder), "onnx", **{"limit_nbytes": LIMIT_NBYTES, **options})


def test_a_model_is_measured_when_it_behaves(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Its bytes, the time of each part, and no network; the same model is not tried twice."""
    found = try_out(write_embedder(tmp_path / "model"))
    assert 0 < found.nbytes < LIMIT_NBYTES
    assert found.company < 1e-6
    assert found.growth <= 1.5
    assert set(found.seconds) == {"starting", "loading", "tokenizing", "answering", "largest batches"}
    assert not found.network
    monkeypatch.setattr(trial, "run_child", None)
    assert try_out(tmp_path / "model") == found


def test_a_trial_is_none_when_it_was_kept_by_other_versions(tmp_path: Path) -> None:
    """What another version of a package found says nothing of this one; a damaged file is none."""
    found = try_out(write_embedder(tmp_path / "model"))
    (path,) = (tmp_path / "cache" / "trials").iterdir()
    kept = json.loads(path.read_text(encoding="utf-8"))
    kept["packages"]["onnxruntime"] = "0.1"
    path.write_text(json.dumps(kept), encoding="utf-8")
    assert trial._recall(path) is None
    path.write_text("{", encoding="utf-8")
    assert trial._recall(path) is None
    assert trial.from_plain({"nbytes": 3}) is None
    assert trial.from_plain(json.loads(json.dumps(kept["found"]))) == found


def test_a_model_is_refused_when_it_takes_more_memory_than_it_may(tmp_path: Path) -> None:
    """U1: a graph of a kilobyte that holds 600 MiB in a batch; its child is ended long before that harms anybody."""
    folder = write_embedder(tmp_path / "model", "greedy")
    assert read_folder(folder).weights_nbytes < 2_000
    with pytest.raises(InvalidModel, match="took more than 200 MiB of memory"):
        try_out(folder)


def test_a_model_is_charged_its_largest_batch_when_that_is_allowed(tmp_path: Path) -> None:
    """U1: what it held in the largest batch is its charge; a kept trial is judged again by a smaller limit."""
    folder = write_embedder(tmp_path / "model", "greedy", nbytes=64 << 20)
    assert try_out(folder, limit_nbytes=600 << 20).nbytes > 64 << 20
    with pytest.raises(InvalidModel, match="64 MiB are allowed: raise the quota or budget"):
        try_out(folder, limit_nbytes=64 << 20)


def test_a_model_is_refused_when_it_never_ends(tmp_path: Path) -> None:
    """U4: an endless loop costs its registration's time and nothing else."""
    begun = time.monotonic()
    with pytest.raises(InvalidModel, match="took longer than 3 s"):
        try_out(write_embedder(tmp_path / "model", "endless"), timeout_s=3)
    assert time.monotonic() - begun < 600


def test_a_model_is_refused_when_its_answers_depend_on_their_neighbours(tmp_path: Path) -> None:
    """Item 2: the answer to a text is the same alone and in a batch, but for what the arithmetic explains."""
    with pytest.raises(InvalidModel, match=r"alone than beside others, by .*float32 explains 1e-05"):
        try_out(write_embedder(tmp_path / "model", "sociable"))


def test_a_model_is_charged_its_most_crowded_batch_when_it_grows_with_the_rows(tmp_path: Path) -> None:
    """U1: a batch of as many short texts as it holds is run too: 512 rows in pairs, a kilobyte each."""
    assert try_out(write_embedder(tmp_path / "model", "crowded"), limit_nbytes=1 << 30).nbytes > 250 << 20


def test_a_model_is_refused_when_it_draws_random_numbers(tmp_path: Path) -> None:
    """An answer that nobody gets twice is refused by its operators, those of a subgraph too, however small they are."""
    with pytest.raises(InvalidModel, match=r"draws random numbers \(RandomNormalLike\)"):
        try_out(write_embedder(tmp_path / "model", "random"))


def test_a_folder_is_read_apart_when_it_could_do_harm(tmp_path: Path) -> None:
    """U2: a graph of a megabyte that takes a hundred in memory ends a child; what is small or sound is read."""
    folder = write_embedder(tmp_path / "model")
    trial.read_apart(folder, parsed_nbytes=trial.HARMLESS_NBYTES + 1)
    trial.read_apart(tmp_path / "gone", parsed_nbytes=trial.HARMLESS_NBYTES)
    nodes = b"\x0a\x00" * (1 << 20)
    (folder / "model.onnx").write_bytes(b"\x3a\x80\x80\x80\x01" + nodes)
    with pytest.raises(InvalidModel, match=r"reading .* took more than \d+ MiB of memory.*read apart"):
        trial.read_apart(folder, parsed_nbytes=len(nodes))


def test_a_runtimes_own_error_is_an_answer_when_a_model_fails_in_it(tmp_path: Path) -> None:
    """It is one of ours, and names the model."""
    with pytest.raises(BackendError, match="model"):
        try_out(write_embedder(tmp_path / "model", "dying"))


def test_a_model_is_refused_when_its_tokenizer_blows_texts_up(tmp_path: Path) -> None:
    """U2: a normaliser that makes 1,000 characters of a letter is refused by its file alone."""
    with pytest.raises(InvalidModel, match="can make 1000 characters of one, and 64 are allowed"):
        try_out(write_embedder(tmp_path / "model", normalizer=grows("e", 1_000)))


def test_a_model_is_refused_when_its_tokenizer_panics(tmp_path: Path) -> None:
    """U2: what foreign code throws past `Exception` is an inference error, in the child and in this process."""
    folder = write_embedder(tmp_path / "model", splitter=panics())
    with pytest.raises(InferenceError, match="the tokenizer failed: PanicException: Onig"):
        try_out(folder)
    with pytest.raises(InferenceError, match="the tokenizer failed: PanicException: Onig"):
        FolderTokenizer(folder / "tokenizer.json").texts(["a" * 64 + "!"], 32)


def test_a_child_is_followed_when_it_dies(tmp_path: Path) -> None:
    """A process that ends without an answer is an error that says how it ended."""
    spec = replace(read_folder(write_embedder(tmp_path / "model")), folder=tmp_path / "gone")
    with pytest.raises(BackendError, match="gone"):
        trial.try_out(spec, "onnx", limit_nbytes=LIMIT_NBYTES)


@pytest.mark.deep
def test_a_model_is_compared_when_the_reference_reads_it(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Item 2: sentence-transformers' own answers are told; a model that differs by more than is allowed is refused."""
    folder = write_embedder(tmp_path / "model")
    spec = read_folder(folder)
    assert trial.compare(spec, "onnx").startswith("not compared: sentence-transformers reads safetensors")
    write_bert(tmp_path / "bert")
    spec = read_folder(tmp_path / "bert")
    assert trial.compare(spec, "torch").startswith("as sentence-transformers, to ")
    monkeypatch.setattr(trial, "REFERENCE", {"float32": {"embed": -1.0}, "bfloat16": {"embed": -1.0}})
    with pytest.raises(InvalidModel, match=r"otherwise than sentence-transformers does, by .*compare=False"):
        trial.compare(spec, "torch")
