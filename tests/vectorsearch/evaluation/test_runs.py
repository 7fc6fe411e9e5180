from __future__ import annotations

import gzip
from typing import TYPE_CHECKING

import pytest
from hypothesis import given
from hypothesis import strategies as st

from backends.errors import InvalidInput
from vectorsearch.evaluation.results import SystemResult
from vectorsearch.evaluation.runs import name_runs, read_run

if TYPE_CHECKING:
    from pathlib import Path

IDS = st.text(st.characters(categories=["L", "N", "P", "S"]), min_size=1, max_size=6)
RANKINGS = st.dictionaries(IDS, st.lists(IDS, unique=True, min_size=1, max_size=8), min_size=1, max_size=4)


def write(folder: Path, text: str, name: str = "a.trec") -> Path:
    """Write a run file."""
    path = folder / name
    path.write_text(text, encoding="utf-8")
    return path


def test_the_score_orders_a_run_when_ranks_say_otherwise(tmp_path: Path) -> None:
    """As for trec_eval, the rank column counts for nothing, and lines may come in any order."""
    run = read_run(write(tmp_path, "q1 Q0 b 1 0.5 t\nq2 Q0 z 7 -1e3 t\n\nq1 Q0 a 2 0.75 t\nq1\tQ0\tc\t3\t0.1\tt\n"))
    assert run.rankings == {"q1": ["a", "b", "c"], "q2": ["z"]}
    assert (run.tag, run.ties) == ("t", 0)


def test_ties_are_ordered_as_trec_eval_orders_them(tmp_path: Path) -> None:
    """S37: equal scores are ordered by document id, descending, and counted."""
    run = read_run(write(tmp_path, "q Q0 d1 1 2 t\nq Q0 d10 2 2 t\nq Q0 d9 3 2.0 t\nq Q0 top 4 3 t\n"))
    assert run.rankings == {"q": ["top", "d9", "d10", "d1"]}
    assert run.ties == 2


def test_scores_are_equal_when_they_are_as_float32(tmp_path: Path) -> None:
    """trec_eval holds scores as float32, so what differs by less is a tie, as is all that lies beyond."""
    run = read_run(write(tmp_path, "q Q0 a 1 20.0000003 t\nq Q0 b 2 20.0000001 t\nq Q0 c 3 1e40 t\nq Q0 d 4 1e39 t\n"))
    assert run.rankings == {"q": ["d", "c", "b", "a"]}
    assert run.ties == 2


def test_ids_are_text_when_they_look_like_numbers(tmp_path: Path) -> None:
    """`007` and `7` are two documents."""
    assert read_run(write(tmp_path, "1 Q0 007 1 2 t\n1 Q0 7 2 1 t\n")).rankings == {"1": ["007", "7"]}


def test_a_zipped_run_is_read(tmp_path: Path) -> None:
    """A file called .gz is unzipped, and its name without .gz can name it."""
    path = tmp_path / "a.trec.gz"
    path.write_bytes(gzip.compress(b"q Q0 d 1 1 t\n"))
    assert read_run(path).rankings == {"q": ["d"]}
    assert list(name_runs([read_run(path), read_run(write(tmp_path, "q Q0 d 1 1 t\n", "b"))])) == ["a.trec", "b"]


@pytest.mark.parametrize(
    ("text", "told"),
    [
        ("q Q0 d 1 2 t\nq Q0 d 2 1 t\n", r"line 2: query 'q' has document 'd' twice"),
        ("q Q0 d 1 2\n", "line 1: 5 columns"),
        ("q Q0 d 1 two t\n", "line 1: the score 'two' is no number"),
        ("q Q0 d 1 nan t\n", "no finite number"),
        ("q Q0 d 1 inf t\n", "no finite number"),
        ("", "holds no run"),
    ],
)
def test_a_run_is_refused_when_it_is_malformed(tmp_path: Path, text: str, told: str) -> None:
    """Duplicates, wrong columns and scores that are no numbers are errors with file, line and reason."""
    with pytest.raises(InvalidInput, match=told) as error:
        read_run(write(tmp_path, text))
    assert str(tmp_path / "a.trec") in str(error.value)


def test_a_run_that_isnt_there_is_an_error(tmp_path: Path) -> None:
    """A missing file is told as such."""
    with pytest.raises(InvalidInput, match="can't be read"):
        read_run(tmp_path / "none.trec")


def test_runs_are_called_by_their_tags_unless_these_are_alike(tmp_path: Path) -> None:
    """Tags name runs; alike, the files do; and alike in both they can't be told apart."""
    a, b = write(tmp_path, "q Q0 d 1 1 bm25\n", "a"), write(tmp_path, "q Q0 d 1 1 dense\n", "b")
    assert list(name_runs([read_run(a), read_run(b)])) == ["bm25", "dense"]
    with pytest.raises(InvalidInput, match="several"):
        name_runs([read_run(a), read_run(a)])


@given(rankings=RANKINGS)
def test_a_run_is_read_back_as_it_was_written(tmp_path_factory: pytest.TempPathFactory, rankings: dict) -> None:
    """S37: exported scores strictly decrease, so that reading gives the order that was written, whatever the ids."""
    path = tmp_path_factory.mktemp("run") / "r.trec"
    path.write_text(SystemResult(name="my system", rankings=rankings, metrics={}).run, encoding="utf-8", newline="")
    run = read_run(path)
    assert run.rankings == rankings
    assert (run.tag, run.ties) == ("mysystem", 0)
