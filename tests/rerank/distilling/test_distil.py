"""Distillation: what students are made of, what they are asked, what they learn, and how they are judged."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import numpy as np
import pytest

from backends.errors import InvalidInput
from rerank.cascade import blend, standardize
from rerank.distilling.distil import Recipe, draw_texts
from rerank.distilling.distil_agreement import agreement, fitting_weight, kept_by_query, slope
from rerank.distilling.distil_queries import Pool, draw_queries, without_query
from rerank.distilling.distil_student import evenly_spaced

if TYPE_CHECKING:
    from collections.abc import Iterator

DOCUMENTS = [
    (str(i), f"The title of document number {i}", f"Sentence one of document {i}. Too short. And sentence two, of {i}!")
    for i in range(12)
]


@pytest.mark.parametrize(
    ("n_layers", "wanted", "chosen"), [(12, 2, (0, 11)), (12, 3, (0, 6, 11)), (6, 3, (0, 2, 5)), (3, 2, (0, 2))]
)
def test_first_and_last_layer_are_taken_when_a_student_is_cut(
    n_layers: int, wanted: int, chosen: tuple[int, ...]
) -> None:
    """A student has the first layer, which reads the embeddings, the last, which the head reads, and some between."""
    assert evenly_spaced(n_layers, wanted) == chosen


@pytest.mark.parametrize(("n_layers", "wanted"), [(12, 1), (12, 12), (2, 2)])
def test_number_of_layers_is_refused_when_no_student_has_it(n_layers: int, wanted: int) -> None:
    """A student has at least two layers, and fewer than its teacher; the message says which numbers there are."""
    with pytest.raises(InvalidInput, match=f"{wanted} layers can't be made of {n_layers}"):
        evenly_spaced(n_layers, wanted)


def test_each_document_gives_a_query_when_there_are_as_many() -> None:
    """Queries come from as many documents as possible, titles and sentences; equal seeds draw equal ones."""
    drawn = draw_queries(iter(DOCUMENTS), 12, seed=5)
    assert sorted(query.source or "" for query in drawn) == sorted(doc_id for doc_id, _, _ in DOCUMENTS)
    assert {query.text.split()[0] for query in drawn} > {"The"}
    assert drawn == draw_queries(iter(DOCUMENTS), 12, seed=5)
    assert drawn != draw_queries(iter(DOCUMENTS), 12, seed=6)


def test_documents_give_several_queries_when_they_are_few() -> None:
    """A small corpus gives all that it has, each once, and nothing that is too short."""
    drawn = draw_queries(iter(DOCUMENTS), 1000, seed=0)
    assert len({query.text for query in drawn}) == len(drawn) == 3 * len(DOCUMENTS)


def test_no_more_documents_are_held_than_queries_when_the_corpus_is_large() -> None:
    """Documents are drawn from all of a corpus, which is read once and never listed."""

    def corpus() -> Iterator[tuple[str, str, str]]:
        for i in range(3000):
            yield str(i), f"The title of document number {i}", ""

    sources = [int(query.source or 0) for query in draw_queries(corpus(), 30, seed=1)]
    assert len(sources) == 30
    assert max(sources) > 2000
    assert min(sources) < 1000


@pytest.mark.parametrize(
    ("query", "title", "text", "read"),
    [
        ("A long title", "A long  title", "Its text.", "Its text."),
        ("Taken from it.", "Title", "Before. Taken\nfrom it. After.", "Title Before. After."),
        ("Something else", "Title", "text", "Title text"),
    ],
)
def test_source_is_read_without_the_query_when_it_was_taken_from_it(
    query: str, title: str, text: str, read: str
) -> None:
    """The words of a pseudo-query are not in the document that it was taken from, however they were wrapped."""
    assert without_query(query, title, text) == read


def test_drawn_texts_keep_their_order_and_the_source_when_a_pool_is_large() -> None:
    """Half of what is learned from comes from the head, in the first stage's order, with its scores, and the source."""
    pool = Pool("q", tuple(map(str, range(100))), -np.arange(100, dtype=np.float32), source=99)
    drawn = draw_texts(pool, 16, np.random.default_rng(0))
    ranks = [int(text) for text in drawn.texts]
    assert ranks == sorted(set(ranks))
    assert sum(rank < 30 for rank in ranks) == 8
    assert ranks[-1] == 99
    assert drawn.scores.tolist() == [-rank for rank in ranks]
    assert draw_texts(drawn, 20, np.random.default_rng(0)) is drawn


@pytest.mark.parametrize("wrong", [{"layers": 1}, {"pairs": 0}, {"held_out": 0}, {"minutes": 0.0}, {"seed": -1}])
def test_recipe_is_refused_when_it_can_not_be_followed(wrong: dict[str, Any]) -> None:
    """A recipe names the value that is out of range."""
    with pytest.raises(InvalidInput, match=next(iter(wrong))):
        Recipe(**wrong)


def test_both_count_alike_when_scores_are_blended() -> None:
    """A blend is of z-scores, so that neither side's units matter, and a constant side changes no order."""
    student, first = np.array([3.0, 1.0, 2.0], np.float32), np.array([0.1, 0.3, 0.2], np.float32)
    np.testing.assert_allclose(blend(student, first, weight=0.5), 0, atol=1e-6)
    assert np.argsort(blend(student, first, weight=0.6)).tolist() == [1, 2, 0]
    alike = np.full(1000, 0.1, np.float32)  # their mean is not quite 0.1
    np.testing.assert_array_equal(blend(alike, alike, weight=0.5), 0)
    assert np.argsort(blend(student, alike[:3], weight=0.1)).tolist() == [1, 2, 0]


def test_a_blend_orders_as_the_teacher_when_the_student_knows_the_rest() -> None:
    """What the first stage's scores don't explain of the teacher's is the student's part, and the weight fits it."""
    rng = np.random.default_rng(3)
    firsts = [standardize(rng.normal(size=50).astype(np.float32)) for _ in range(4)]
    rests = [2.0 * standardize(rng.normal(size=50).astype(np.float32)) for _ in range(4)]
    teachers = [level + 3.0 * first + rest for level, first, rest in zip(range(4), firsts, rests, strict=True)]
    offset = slope(teachers, firsts)
    assert offset == pytest.approx(3.0, abs=0.5)
    students = [teacher - offset * first for teacher, first in zip(teachers, firsts, strict=True)]
    weight = fitting_weight(students, offset)
    assert weight == pytest.approx(0.4, abs=0.05)
    both = [blend(student, first, weight=weight) for student, first in zip(students, firsts, strict=True)]
    assert agreement(both, teachers, keep=15).tau > 0.97 > agreement(students, teachers, keep=15).tau
    assert slope([-first for first in firsts], firsts) == 0.0
    assert fitting_weight(students, 0.0) == 1.0


def test_agreement_is_of_the_best_when_a_student_ranks_by_itself() -> None:
    """What is kept counts the teacher's best ten, its first, and its best n among the student's best n."""
    teacher = np.arange(40, 0, -1, dtype=np.float32)
    student = teacher.copy()
    student[[0, 30]] = student[[30, 0]]  # the teacher's first is far down
    found = agreement([teacher, student], [teacher, teacher], keep=15)
    assert (found.kept, found.first_kept, found.recall) == pytest.approx(((1 + 0.9) / 2, 0.5, (1 + 14 / 15) / 2))
    assert 0.5 < found.tau < 1.0
    assert kept_by_query([teacher, student], [teacher, teacher], keep=15).tolist() == [1.0, 0.9]


def test_agreement_is_no_nan_when_a_side_is_constant() -> None:
    """A teacher that tells nothing apart agrees with nobody, and fewer candidates than ten are all its best."""
    flat = np.zeros(4, np.float32)
    found = agreement([np.arange(4, dtype=np.float32)], [flat], keep=15)
    assert (found.tau, found.kept, found.recall) == (0.0, 1.0, 1.0)


def test_loss_is_of_all_pairs_of_margins_when_scores_differ() -> None:
    """The loss equals the mean squared difference of margins over all pairs, and constants don't count."""
    torch = pytest.importorskip("torch")
    from rerank.distilling.distil_training import margin_error  # noqa: PLC0415  (imports PyTorch)

    rng = np.random.default_rng(0)
    student, teacher = rng.normal(size=(2, 7)).astype(np.float32)
    margins = [np.subtract.outer(side, side) for side in (student, teacher)]
    expected = np.mean((margins[0] - margins[1]) ** 2)
    got = margin_error(torch.from_numpy(student), torch.from_numpy(teacher) + 5.0)
    assert float(got) == pytest.approx(float(expected), rel=1e-4)
