"""The manifest that vouches for derived files."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import pytest

from vectorsearch.collection.storage.disk import files, manifest

if TYPE_CHECKING:
    from pathlib import Path


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    """Give a folder with two derived files and their manifest."""
    (tmp_path / "a").write_bytes(b"alpha" * 100)
    (tmp_path / "b").write_bytes(b"beta" * 100)
    marks = manifest.mark_files(tmp_path, ["a", "b"], {})
    manifest.Manifest("db:7", "layout", 7, marks, {"dead": 3}).save(tmp_path / "manifest", durable=True)
    return tmp_path


@dataclass(frozen=True)
class History:
    """A store at change `seq`, whose changes have marks that begin with its name."""

    name: str = "db"
    seq: int = 9

    def mark(self, seq: int) -> str:
        """Name a change."""
        return f"{self.name}:{seq}"


OWN = History()


def load(folder: Path, lineage: History = OWN, layout: str = "layout") -> manifest.Manifest | str:
    """Load the folder's manifest."""
    return manifest.load(folder / "manifest", lineage=lineage, layout=layout)


def test_the_manifest_comes_back_when_nothing_changed(folder: Path) -> None:
    """What was saved is loaded, fields and all."""
    found = load(folder)
    assert isinstance(found, manifest.Manifest)
    assert (found.seq, sorted(found.files), found.fields) == (7, ["a", "b"], {"dead": 3})


@pytest.mark.parametrize("options", [{"lineage": History("x")}, {"layout": "x"}, {"lineage": History(seq=6)}])
def test_the_manifest_is_refused_when_it_is_not_of_this_state(folder: Path, options: dict[str, Any]) -> None:
    """Another history, another layout, or a change that the store doesn't have: a reason, never a manifest."""
    assert isinstance(load(folder, **options), str)


@pytest.mark.parametrize("name", ["a", "b", "manifest"])
def test_the_manifest_is_refused_when_a_byte_was_flipped(folder: Path, name: str) -> None:
    """Any flipped byte, in a file or in the manifest itself, is noticed."""
    whole = (folder / name).read_bytes()
    for position in {0, 33, len(whole) // 2, len(whole) - 1}:
        damaged = bytearray(whole)
        damaged[position] ^= 0x10
        (folder / name).write_bytes(damaged)
        assert isinstance(load(folder), str)
    (folder / name).write_bytes(whole)
    assert isinstance(load(folder), manifest.Manifest)


@pytest.mark.parametrize("name", ["a", "b", "manifest"])
def test_the_manifest_is_refused_when_a_file_is_cut_or_gone(folder: Path, name: str) -> None:
    """A truncated, emptied or missing file is noticed."""
    whole = (folder / name).read_bytes()
    for kept in (len(whole) - 1, 0):
        (folder / name).write_bytes(whole[:kept])
        assert isinstance(load(folder), str)
    (folder / name).unlink()
    assert isinstance(load(folder), str)


def test_a_file_of_several_pieces_is_refused_when_any_of_it_changed(
    folder: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The digest of a large file tells a flipped byte in any piece, pieces exchanged, and one that is gone."""
    monkeypatch.setattr(files, "_PIECE_NBYTES", 64)
    monkeypatch.setattr(files, "_CHUNK_NBYTES", 16)
    whole = bytes(range(200))
    path = folder / "large"
    path.write_bytes(whole)
    digest = files.digest_file(path)
    assert digest == files.digest_file(path)
    flipped = [whole[:at] + bytes([whole[at] ^ 1]) + whole[at + 1 :] for at in (0, 63, 64, 130, 199)]
    for changed in (*flipped, whole[64:128] + whole[:64] + whole[128:], whole[:192], whole[:128], b""):
        path.write_bytes(changed)
        assert files.digest_file(path) != digest


def test_an_earlier_manifest_is_no_fault_and_is_not_loaded(folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Files of an earlier release are built again without a word of damage."""
    monkeypatch.setattr(manifest, "_VERSION", 4)
    assert manifest.faults(folder / "manifest", OWN) == []
    assert load(folder) == "manifest is of format 3, now 4"
