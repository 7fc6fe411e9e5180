"""Files of two stores' moments, mixed at random: every answer is what brute force finds, and nothing is lost."""

from __future__ import annotations

import sys
from pathlib import Path

import pytest

from vectorsearch.collection.storage.disk import manifest

sys.path.insert(0, str(Path(__file__).parents[1] / "benchmarks"))

from random_files import run


def test_answers_are_right_or_refused_when_files_are_mixed_at_random(tmp_path: Path) -> None:
    """14.1: a dozen mixtures of a fixed seed; the command tries as many as one has time for."""
    tried, seen, wrong = run(tmp_path, 22, moments=6, goes_on=lambda number: number < 12)
    assert not wrong
    assert tried == seen["answered"] + seen["refused"] == 12


def test_the_check_notices_when_index_files_are_believed(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """A positive control: where index files of any history are believed, the fifth of the same mixtures is wrong."""
    monkeypatch.setattr(manifest, "_stray", lambda *_: "")
    assert run(tmp_path, 22, moments=6, goes_on=lambda number: number < 5)[2]


@pytest.mark.deep
@pytest.mark.timeout(7200)
def test_answers_are_right_or_refused_when_many_files_are_mixed_at_random(tmp_path: Path) -> None:
    """14.1: the same of another seed, with longer histories."""
    assert not run(tmp_path, 12, moments=12, goes_on=lambda number: number < 600)[2]
