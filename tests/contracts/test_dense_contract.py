"""What every dense index must do, against cosine computed here in float64."""

from __future__ import annotations

import random
import threading
from typing import TYPE_CHECKING, Any

import numpy as np
import pytest

from vectorsearch.types import Document

if TYPE_CHECKING:
    from numpy.typing import NDArray

DIM = 16


def vectors(n: int, seed: int = 0) -> NDArray[np.float32]:
    """Give n vectors around 20 centres, the same for every seed, of different lengths."""
    rng = np.random.default_rng(seed)
    centres = np.random.default_rng(99).standard_normal((20, DIM))
    found = centres[rng.integers(20, size=n)] + 0.5 * rng.standard_normal((n, DIM))
    return (found * rng.uniform(0.1, 10, (n, 1))).astype(np.float32)


def documents(given: NDArray[np.float32], start: int = 0) -> list[Document]:
    """Name each vector after its position."""
    return [Document(f"d{i}", "", vector=vector) for i, vector in enumerate(given, start)]


def oracle(stored: dict[str, NDArray[np.float32]], order: list[str], query: NDArray[np.float32], k: int) -> list[str]:
    """Return the ids of the k best by cosine, ties in the order of insertion."""

    def cosine(vector: NDArray[np.float32]) -> float:
        norms = float(np.linalg.norm(vector.astype(float)) * np.linalg.norm(query.astype(float)))
        return float(vector.astype(float) @ query.astype(float)) / norms if norms else 0.0

    return sorted(order, key=lambda doc_id: -cosine(stored[doc_id]))[:k]


def check(dense: Any, stored: dict[str, NDArray[np.float32]], query: NDArray[np.float32], k: int) -> None:
    """Compare one search with the oracle: the same ids, or nearly all of them for a graph."""
    found = dense.index.search(query, k)
    ids = dense.ids(found)
    wanted = oracle(stored, list(stored), query, k)
    assert len(ids) == len(set(ids)) == min(k, len(stored))
    assert (np.diff(found.scores) <= 0).all()
    if dense.exact:
        assert ids == wanted
    else:
        assert len(set(ids) & set(wanted)) >= 0.9 * len(wanted)


def test_search_equals_brute_force_when_vectors_are_many(dense: Any) -> None:
    """The k best by cosine are found, best first."""
    given = vectors(3000)
    dense.write(*documents(given))
    stored = {f"d{i}": vector for i, vector in enumerate(given)}
    for number, k in enumerate((1, 5, 10, 100)):
        for query in vectors(5, seed=number + 1):
            check(dense, stored, query, k)


def test_all_hits_are_real_when_k_is_larger_than_the_index(dense: Any) -> None:
    """S6: n documents give n hits, none of them row -1, no score beyond 1."""
    dense.write(*documents(vectors(7)))
    found = dense.index.search(vectors(1, seed=9)[0], 1000)
    assert sorted(found.rows.tolist()) == list(range(1, 8))
    assert (np.abs(found.scores) <= 1).all()


def test_nothing_is_found_when_the_index_is_empty(dense: Any) -> None:
    """An empty index, and one whose documents have no vectors, give no hits."""
    assert len(dense.index.search(vectors(1)[0], 5).rows) == 0
    dense.write(Document("a", "words only"))
    assert len(dense.index.search(vectors(1)[0], 5).rows) == 0


def test_nothing_is_found_when_k_is_zero(dense: Any) -> None:
    """S67: k=0 gives no hits."""
    dense.write(*documents(vectors(50)))
    assert len(dense.index.search(vectors(1)[0], 0).rows) == 0


def test_a_hit_is_returned_when_its_cosine_is_negative(dense: Any) -> None:
    """S67: a document on the far side is a hit all the same, with its negative cosine."""
    vector = vectors(1)[0]
    dense.write(*documents(-vector[None, :]))
    found = dense.index.search(vector, 3)
    assert found.scores.tolist() == pytest.approx([-1.0])


def test_order_is_right_when_vectors_are_not_normalised(dense: Any) -> None:
    """S34: cosine, not inner product, orders the hits; scores stay within 1; the caller's arrays are unchanged."""
    long_but_far = np.array([100.0, 100.0] + [0.0] * (DIM - 2), dtype=np.float32)
    short_but_near = np.array([0.02, 0.001] + [0.0] * (DIM - 2), dtype=np.float32)
    query = np.array([3.0, 0.0] + [0.0] * (DIM - 2), dtype=np.float32)
    kept = [array.copy() for array in (long_but_far, short_but_near, query)]
    dense.write(Document("far", "", vector=long_but_far), Document("near", "", vector=short_but_near))
    found = dense.index.search(query, 2)
    assert dense.ids(found) == ["near", "far"]
    assert found.scores.max() <= 1.0
    for array, copy in zip((long_but_far, short_but_near, query), kept, strict=True):
        assert np.array_equal(array, copy)


def test_scores_are_finite_when_components_are_extreme(dense: Any) -> None:
    """A vector near float32's limits, a subnormal one and a zero one have cosines, not infinities."""
    ones = np.ones(DIM, dtype=np.float32)
    sizes = (3e38, 1e-44, 0.0)
    dense.write(*documents(np.stack([ones * np.float32(size) for size in sizes])))
    found = dense.index.search(ones, 3)
    assert np.isfinite(found.scores).all()
    assert found.rows.tolist()[-1] == 3
    assert found.scores[-1] == 0


def test_every_score_is_zero_when_the_query_is_zero(dense: Any) -> None:
    """A zero query is as near to everything: hits come by row, with score 0."""
    dense.write(*documents(vectors(30)))
    found = dense.index.search(np.zeros(DIM, dtype=np.float32), 4)
    assert found.rows.tolist() == [1, 2, 3, 4]
    assert not found.scores.any()


def test_ties_are_ordered_by_row_when_vectors_are_equal(dense: Any) -> None:
    """Equal vectors come in the order of insertion, wherever in the index each of them is."""
    same = vectors(1)[0]
    dense.write(*documents(np.concatenate([vectors(400, seed=1), np.tile(same, (40, 1))])))
    dense.write(*documents(np.tile(same, (40, 1)), start=440))
    for k in (5, 60):
        found = dense.index.search(same, k)
        assert found.rows.tolist() == list(range(401, 401 + k))
        assert len(set(found.scores.tolist())) == 1


def test_a_vector_scores_the_same_when_it_moves_within_the_index(dense: Any) -> None:
    """A score depends on the two vectors alone, not on the part of the index or on a filter."""
    given = np.random.default_rng(5).standard_normal((2500, 384)).astype(np.float32)
    query = given[0] + given[1]
    dense.write(*documents(given[:100]))
    before = dense.index.search(query, 100)
    dense.write(*documents(given[100:], start=100))
    after = dense.index.search(query, 100, np.arange(1, 101, dtype=np.int64))
    alone = [dense.index.search(query, 1, before.rows[i : i + 1]) for i in range(100)]
    assert after.rows.tolist() == before.rows.tolist() == [int(found.rows[0]) for found in alone]
    assert after.scores.tolist() == before.scores.tolist() == [float(found.scores[0]) for found in alone]


def test_only_allowed_rows_are_found_when_a_filter_is_selective(dense: Any) -> None:
    """S10: of 5,000 documents 20 match, and k=10 gives the 10 best of those."""
    given = vectors(5000)
    dense.write(*documents(given))
    allowed = np.sort(np.random.default_rng(1).choice(np.arange(1, 5001), 20, replace=False))
    for query in vectors(20, seed=2):
        found = dense.index.search(query, 10, allowed)
        stored = {f"d{row - 1}": given[row - 1] for row in allowed}
        assert dense.ids(found) == oracle(stored, list(stored), query, 10)


def test_k_hits_come_when_a_filter_allows_half(dense: Any) -> None:
    """A filter that allows every second row gives k hits, all allowed, as good as a scan's."""
    given = vectors(3000)
    dense.write(*documents(given))
    allowed = np.arange(1, 3001, 2)
    stored = {f"d{row - 1}": given[row - 1] for row in allowed}
    shared = 0
    for query in vectors(20, seed=3):
        found = dense.index.search(query, 10, allowed)
        assert len(found.rows) == 10
        assert (found.rows % 2 == 1).all()
        shared += len(set(dense.ids(found)) & set(oracle(stored, list(stored), query, 10)))
    assert shared == 200 if dense.exact else shared >= 190


def test_nothing_is_found_when_no_row_is_allowed(dense: Any) -> None:
    """A filter without rows, or with rows that were deleted, gives no hits."""
    dense.write(*documents(vectors(300)))
    dense.delete("d4")
    assert len(dense.index.search(vectors(1)[0], 5, np.empty(0, dtype=np.int64)).rows) == 0
    assert len(dense.index.search(vectors(1)[0], 5, np.array([5], dtype=np.int64)).rows) == 0


def test_survivors_keep_their_ids_when_others_are_deleted(dense: Any) -> None:
    """S12: after deleting a third, each survivor is found by its own vector under its own id, and no deleted one is."""
    given = vectors(900)
    dense.write(*documents(given))
    dense.delete(*(f"d{i}" for i in range(0, 900, 3)))
    for i in range(0, 900, 10):
        found = dense.ids(dense.index.search(given[i], 5))
        assert not any(int(doc_id[1:]) % 3 == 0 for doc_id in found)
        if i % 3:
            assert found[0] == f"d{i}"


def test_next_nearest_is_found_when_the_nearest_is_deleted(dense: Any) -> None:
    """S15: with k=1, deleting each nearest in turn walks down the oracle's order."""
    given = vectors(600)
    query = vectors(1, seed=4)[0]
    dense.write(*documents(given))
    stored = {f"d{i}": vector for i, vector in enumerate(given)}
    for wanted in oracle(stored, list(stored), query, 8):
        assert dense.ids(dense.index.search(query, 1)) == [wanted]
        dense.delete(wanted)


def test_each_document_is_found_by_its_own_vector_when_the_index_has_churned(dense: Any) -> None:
    """S16: after rounds of upserts and deletes, every document's own vector finds it first."""
    rng = random.Random(7)  # noqa: S311 -- a repeatable test, no secret
    stored: dict[str, NDArray[np.float32]] = {}
    for round_number in range(6):
        given = vectors(400, seed=100 + round_number)
        ids = [f"d{rng.randrange(1500)}" for _ in given]
        batch = dict(zip(ids, given, strict=True))
        dense.write(*(Document(doc_id, "", vector=vector) for doc_id, vector in batch.items()), replace=True)
        for doc_id in batch:
            stored.pop(doc_id, None)
        stored.update(batch)
        gone = rng.sample(sorted(stored), 100)
        dense.delete(*gone)
        for doc_id in gone:
            del stored[doc_id]
    for doc_id, vector in stored.items():
        assert dense.ids(dense.index.search(vector, 1)) == [doc_id]


def test_index_equals_brute_force_when_changes_are_random(dense: Any) -> None:
    """S13: after each of 200 seeded adds, upserts and deletes the index equals a brute-force model."""
    rng = random.Random(13)  # noqa: S311 -- a repeatable test, no secret
    pool = vectors(400, seed=13)
    stored: dict[str, NDArray[np.float32]] = {}
    for step in range(200):
        action = rng.random()
        doc_id = f"d{rng.randrange(120)}"
        if action < 0.7 or not stored:
            dense.write(Document(doc_id, "", vector=pool[step]), replace=True)
            stored.pop(doc_id, None)
            stored[doc_id] = pool[step]
        else:
            doc_id = rng.choice(sorted(stored))
            dense.delete(doc_id)
            del stored[doc_id]
        if stored:
            query = pool[200 + step]
            assert dense.ids(dense.index.search(query, 5)) == oracle(stored, list(stored), query, 5)


def test_index_is_the_same_when_it_is_opened_again(dense: Any) -> None:
    """Saved, opened and caught up, an index answers as it did; changes since the file was written are applied."""
    given = vectors(3000)
    dense.write(*documents(given[:2500]))
    dense.delete("d7", "d2000")
    dense.index.save(durable=True)
    dense.write(*documents(given[2500:], start=2500))
    dense.delete("d11")
    query = vectors(1, seed=6)[0]
    before = dense.index.search(query, 50)
    dense.index.close()
    dense.index = dense.reopen()
    dense.catch_up()
    after = dense.index.search(query, 50)
    assert after.rows.tolist() == before.rows.tolist()
    assert after.scores.tolist() == before.scores.tolist()


def test_a_search_sees_one_moment_when_a_writer_works_beside_it(dense: Any) -> None:
    """Readers on other threads always get a whole state: k distinct rows whose scores are right, at any time."""
    given = vectors(3000)
    dense.write(*documents(given[:200]))
    query = vectors(1, seed=8)[0]
    unit = given / np.linalg.norm(given, axis=1, keepdims=True)
    cosines = unit @ (query / np.linalg.norm(query))
    # Rows count from 1, and below one is deleted after every 200: its number is left out.
    truth = np.zeros(len(given) + 20)
    truth[[i + 1 + max(0, (i - 200) // 200) for i in range(len(given))]] = cosines
    faults: list[str] = []
    done = threading.Event()

    def read() -> None:
        while not done.is_set():
            found = dense.index.search(query, 20)
            if len(set(found.rows.tolist())) != 20:
                faults.append(f"rows {found.rows}")
            if not np.allclose(found.scores, truth[found.rows], atol=1e-5):
                faults.append(f"scores {found.scores}")

    readers = [threading.Thread(target=read) for _ in range(2)]
    for reader in readers:
        reader.start()
    for start in range(200, 3000, 200):
        dense.write(*documents(given[start : start + 200], start=start))
        dense.delete(f"d{start}")
    done.set()
    for reader in readers:
        reader.join()
    assert faults == []
