from __future__ import annotations

import gzip
from typing import TYPE_CHECKING

import pytest
from hypothesis import given
from hypothesis import strategies as st

from backends.errors import InvalidInput
from vectorsearch.evaluation.formats.runs import name_runs, read_run
from vectorsearch.evaluation.outcome import SystemResult

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


def test_it_is_said_when_ranks_are_the_opposite_of_scores(tmp_path: Path) -> None:
    """Distances in place of scores turn a run upside down: trec_eval's order is kept, and told."""
    run = read_run(write(tmp_path, "q Q0 a 1 0.1 t\nq Q0 b 2 0.2 t\np Q0 a 1 1 t\n"))
    assert run.rankings["q"] == ["b", "a"]
    assert "of 1 of 2 queries the ranks say the opposite of the scores" in run.notes[0]
    assert read_run(write(tmp_path, "q Q0 a 0 0.1 t\nq Q0 b 0 0.2 t\n")).notes == ()


MARCO = {
    "three columns": "q\ta\t1\nq\tb\t2\np\tc\t1\n",
    "in another order": "q b 2\nq a 1\np c 1\n",
    "ranks from 0": "q a 0\nq b 1\np c 0\n",
    "with scores": "q a 1 9.5\nq b 2 7\np c 1 -3\n",
}


@pytest.mark.parametrize("shape", MARCO)
def test_runs_of_ms_marco_are_read(tmp_path: Path, shape: str) -> None:
    """F4: query, document and rank, from 0 or 1, and perhaps a score, give the same rankings, and it is said."""
    run = read_run(write(tmp_path, MARCO[shape]))
    assert run.rankings == {"q": ["a", "b"], "p": ["c"]}
    assert run.notes[0].startswith("a.trec: read as a run of MS MARCO")
    assert list(name_runs([run])) == ["a.trec"]


def test_scores_are_kept(tmp_path: Path) -> None:
    """F10: a run holds the scores of its documents, best first, whatever its format."""
    scores = {"q": {"a": 2.5, "b": 1.0}}
    assert read_run(write(tmp_path, "q Q0 b 1 1 t\nq Q0 a 2 2.5 t\n")).scores == scores
    found = read_run(write(tmp_path, '{"q": {"b": 1,\n "a": 2.5}}'))
    assert (found.scores, list(found.rankings["q"]), found.notes) == (scores, ["a", "b"], ())
    assert "are these judgments?" in read_run(write(tmp_path, '{"q": {"b": 1, "a": 2}}')).notes[0]


@pytest.mark.parametrize(
    ("text", "told"),
    [
        ("q 0 d 1\np 0 e 0\n", "line 1: the document is '0': this looks like judgments"),
        ("q d 1\nq e 1\n", "line 2: query 'q' has rank 1 twice"),
        ("q d 1\nq e 7\n", "ranks count from 1, without a gap"),
        ("q d 5\n", "ranks count from 1"),
        ("q d x\n", "line 1: the rank 'x' is no whole number"),
        ("q Q0 d 1 2 t\nq e 2\n", "line 2: 3 columns, and the lines before have 6"),
        ("q Q0 d 1 1_0 t\n", "line 1: the score '1_0' is no number"),
        ('{"q": {"d": "1"}}', "the score is '1', not a number"),
        ('{"q": {"d": NaN}}', "no finite number"),
        ('{"q": [1]}', "not {document: number}"),
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


@given(rankings=RANKINGS, scores=st.lists(st.floats(width=32), max_size=8))
def test_a_run_with_scores_is_read_back_in_its_order(
    tmp_path_factory: pytest.TempPathFactory, rankings: dict, scores: list[float]
) -> None:
    """F10: whatever the scores are, rising, equal, too few or no numbers, what is written falls in the order given."""
    path = tmp_path_factory.mktemp("run") / "r.trec"
    kept = dict.fromkeys(rankings, scores)
    result = SystemResult(name="x", rankings=rankings, metrics={}, scores=kept)
    path.write_text(result.run, encoding="utf-8", newline="")
    run = read_run(path)
    assert (run.rankings, run.ties) == (rankings, 0)


@given(rankings=RANKINGS)
def test_a_run_is_read_back_as_it_was_written(tmp_path_factory: pytest.TempPathFactory, rankings: dict) -> None:
    """S37: exported scores strictly decrease, so that reading gives the order that was written, whatever the ids."""
    path = tmp_path_factory.mktemp("run") / "r.trec"
    path.write_text(SystemResult(name="my system", rankings=rankings, metrics={}).run, encoding="utf-8", newline="")
    run = read_run(path)
    assert run.rankings == rankings
    assert (run.tag, run.ties) == ("mysystem", 0)
