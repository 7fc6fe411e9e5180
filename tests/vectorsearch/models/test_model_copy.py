"""What is copied of a model that somebody registers: regular files inside its folder that are read, and no others."""

from __future__ import annotations

import os
from pathlib import Path

import pytest

import vectorsearch as vs
from backends.errors import InvalidModel
from backends.folders.folder import read_folder
from vectorsearch.models import model_copy
from vectorsearch.models.model_copy import copy_model

from ..biased_models import BiasedBackend, write_model


def files_in(folder: Path) -> set[str]:
    """Return the paths of all files in a folder."""
    return {str(path.relative_to(folder)) for path in folder.rglob("*") if path.is_file()}


def test_only_what_is_read_is_copied_when_a_folder_holds_more(tmp_path: Path) -> None:
    """U3: pickles, hidden files, code, other formats' weights and deep folders stay; licences go along."""
    folder = write_model(tmp_path / "model", 1)
    wanted = {"config.json", "tokenizer.json", "model.safetensors", "LICENSE", "1_Pooling/config.json"}
    others = {
        "pytorch_model.bin",
        ".git/config.json",
        "modeling.py",
        "tf_model.h5",
        "a/b/c/deep.json",
        "openvino/x.xml",
    }
    for path in (wanted | others) - files_in(folder):
        (folder / path).parent.mkdir(parents=True, exist_ok=True)
        (folder / path).write_text("{}", encoding="utf-8")
    copy_model(read_folder(folder), tmp_path / "copy")
    assert files_in(tmp_path / "copy") == wanted


@pytest.mark.parametrize("target", ["/dev/zero", "/etc/hostname", "loop.json", "gone.json", "../outside.json"])
def test_a_link_is_refused_when_a_model_is_registered(tmp_path: Path, target: str) -> None:
    """U3: to a device, to a file outside, to itself, to nothing: it says which; nothing of it is in the store."""
    (tmp_path / "outside.json").write_text("{}", encoding="utf-8")
    folder = write_model(tmp_path / "model", 1)
    (folder / "loop.json").symlink_to(target)
    with vs.open(tmp_path / "db", embed=None, rerank=None, backend=BiasedBackend().name) as store:
        with pytest.raises(InvalidModel, match=r"loop.json is a link"):
            store.register_model("own", folder, "cross-encoder")
        assert list((tmp_path / "db").glob("models/*")) == []


def test_a_link_to_a_folder_is_not_entered_when_it_leads_in_a_circle(tmp_path: Path) -> None:
    """U3: a folder that links to itself is copied once."""
    folder = write_model(tmp_path / "model", 1)
    (folder / "again").symlink_to(folder)
    copy_model(read_folder(folder), tmp_path / "copy")
    assert files_in(tmp_path / "copy") == {"config.json", "tokenizer.json", "model.safetensors"}


def test_the_links_of_a_hub_cache_are_followed_when_they_stay_in_the_repository(tmp_path: Path) -> None:
    """A snapshot of a hub's cache is made of links to its blobs; one that leads out of it is refused like any other."""
    repository = tmp_path / "models--org--name"
    real = write_model(repository / "blobs", 1)
    snapshot = repository / "snapshots" / "abc"
    snapshot.mkdir(parents=True)
    for name in files_in(real):
        (snapshot / name).symlink_to(Path("../../blobs") / name)
    copy_model(read_folder(snapshot), tmp_path / "copy")
    assert files_in(tmp_path / "copy") == files_in(real)
    assert not any(path.is_symlink() for path in (tmp_path / "copy").iterdir())
    (snapshot / "more.json").symlink_to("/etc/hostname")
    with pytest.raises(InvalidModel, match=r"more\.json is a link"):
        copy_model(read_folder(snapshot), tmp_path / "other")


@pytest.mark.parametrize("name", ["tokenizer_config.json", "modules.json", "sentence_bert_config.json", "model.onnx"])
def test_a_pipe_is_refused_before_anything_is_read_when_it_has_a_name_that_is_read(tmp_path: Path, name: str) -> None:
    """U3: nobody waits for a writer that never comes; a file larger than what a model may take isn't read either."""
    folder = write_model(tmp_path / "model", 1)
    os.mkfifo(folder / name)
    with vs.open(tmp_path / "db", embed=None, rerank=None, backend=BiasedBackend().name) as store:
        with pytest.raises(InvalidModel, match=rf"{name} is no regular file"):
            store.register_model("own", folder, "cross-encoder")
        (folder / name).unlink()
        os.truncate(folder / "config.json", 1 << 40)
        with pytest.raises(InvalidModel, match=r"config.json has 1048576 MiB, and a model may take"):
            store.register_model("own", folder, "cross-encoder")


def test_a_pipe_or_a_huge_file_is_refused_when_it_lies_in_the_folder(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """U3: nobody waits for a writer that never comes, and what lies beside the weights has a size limit in all."""
    folder = write_model(tmp_path / "model", 1)
    os.mkfifo(folder / "vocab.txt")
    with pytest.raises(InvalidModel, match=r"vocab\.txt is no regular file"):
        copy_model(read_folder(folder), tmp_path / "copy")
    (folder / "vocab.txt").unlink()
    (folder / "vocab.txt").write_bytes(b"x" * 5_000)
    monkeypatch.setattr(model_copy, "BESIDE_NBYTES", 4_000)
    with pytest.raises(InvalidModel, match=r"vocab.txt has 0 MiB, and .* left for what a model has there"):
        copy_model(read_folder(folder), tmp_path / "other")
    monkeypatch.setattr(model_copy, "_FILES", 2)
    with pytest.raises(InvalidModel, match="more than 2 files"):
        copy_model(read_folder(folder), tmp_path / "third")
