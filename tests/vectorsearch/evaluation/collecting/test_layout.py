"""Collections are written in one layout, and their folder appears complete or not at all."""

from __future__ import annotations

from typing import TYPE_CHECKING

import pytest

from vectorsearch.evaluation import read_collection
from vectorsearch.evaluation.collecting.layout import whole_folder, write_files

if TYPE_CHECKING:
    from pathlib import Path

DOCUMENTS = [{"_id": "a", "title": "", "text": "one\ntwo"}]


def test_what_is_written_is_a_collection(tmp_path: Path) -> None:
    """It is read back as it was given, and takes the place of what was there."""
    for text in ("first", "second"):
        with whole_folder(tmp_path / "made") as folder:
            write_files(folder, DOCUMENTS, [("q", text)], [("q", "a", 2)])
    read = read_collection(tmp_path / "made")
    assert [document["text"] for document in read.documents()] == ["one\ntwo"]
    assert (read.queries, read.qrels) == ({"q": "second"}, {"q": {"a": 2}})
    assert [path.name for path in tmp_path.iterdir()] == ["made"]


def test_nothing_is_left_when_a_folder_can_not_be_finished(tmp_path: Path) -> None:
    """What was there stays as it was, and what was begun is gone."""
    with whole_folder(tmp_path / "made") as folder:
        write_files(folder, DOCUMENTS, [("q", "text")], [("q", "a", 1)])
    with pytest.raises(ZeroDivisionError), whole_folder(tmp_path / "made") as folder:
        write_files(folder, ({"_id": str(1 // n)} for n in (1, 0)), [], [])
    assert read_collection(tmp_path / "made").queries == {"q": "text"}
    assert [path.name for path in tmp_path.iterdir()] == ["made"]
