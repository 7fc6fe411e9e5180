"""Embedding a database again with another model, under searches and writes."""

from __future__ import annotations

import threading
from types import SimpleNamespace
from typing import TYPE_CHECKING, Any

import numpy as np
import pytest

import vectorsearch as vs
from backends.engines.fake_backend import fake_spec
from backends.errors import InferenceError, InvalidInput
from vectorsearch.collection.storage.disk import failpoints
from vectorsearch.collection.storage.sqlite.new_vectors import FILE_NAME, NewVectors
from vectorsearch.errors import SettingsMismatch, VectorSearchError
from vectorsearch.models.space import EmbeddingSpace
from vectorsearch.query.steady import steadily

from ..conftest import EMBEDDER, RERANKER, fake_backend

if TYPE_CHECKING:
    from pathlib import Path

OTHER = fake_spec("other-embedder", dim=32)
WAIT_S = 60


def docs(n: int, start: int = 0) -> list[dict[str, Any]]:
    """Give documents with a word of their own."""
    return [{"id": f"d{i}", "text": f"apple unique{i}"} for i in range(start, start + n)]


def check(db: vs.Database, n: int, dim: int) -> None:
    """All documents are found by their own words in dense search, with vectors of the right length."""
    assert db.count() == n
    assert db.info()["vectors"] == n
    for i in range(0, n, max(1, n // 7)):
        # Words are hashed to few places, so another document may have the same vector: but none comes nearer.
        assert db.search(f"apple unique{i}", mode="dense", k=1)[0].score == pytest.approx(1)
        document = db.get(f"d{i}")
        assert document is not None
        assert document.vector is not None
        assert document.vector.shape == (dim,)


def test_every_vector_is_the_new_models_when_a_database_is_embedded_again(tmp_path: Path) -> None:
    """Documents, searches, later writes and the next opening all use the new model."""
    backend = fake_backend()
    told: list[tuple[int, int]] = []
    with vs.open(tmp_path / "db", embed=EMBEDDER, rerank=RERANKER, backend=backend.name) as db:
        db.add(docs(600))
        check(db, 600, 64)
        assert db.reindex(embed=OTHER, progress=lambda done, total: told.append((done, total))) == 600
        assert told == [(256, 600), (512, 600), (600, 600)]
        assert db.embedder == OTHER
        check(db, 600, 32)
        db.add(docs(10, start=600))
        check(db, 610, 32)
        assert not (tmp_path / "db" / FILE_NAME).exists()
        assert db.verify().ok
    with pytest.raises(SettingsMismatch):
        vs.open(tmp_path / "db", embed=EMBEDDER, backend=backend.name)
    with vs.open(tmp_path / "db", embed=OTHER, backend=backend.name) as db:
        check(db, 610, 32)


def test_a_run_goes_on_where_it_stopped_when_it_was_cut_off(tmp_path: Path) -> None:
    """What was embedded is kept, also if documents were deleted, replaced and added since; the old model serves."""
    with vs.open(tmp_path / "db", embed=EMBEDDER, backend=fake_backend().name) as db:
        db.add(docs(600))
    broken = fake_backend()
    with vs.open(tmp_path / "db", embed=EMBEDDER, backend=broken.name) as db:

        def break_down(done: int, _: int) -> None:
            if done == 512:
                raise InferenceError("the device is gone")

        with pytest.raises(InferenceError, match="the device is gone"):
            db.reindex(embed=OTHER, progress=break_down)
    with vs.open(tmp_path / "db", embed=EMBEDDER, backend=fake_backend().name) as db:
        assert db.embedder == EMBEDDER
        check(db, 600, 64)
        db.delete(["d0", "d599"])
        db.upsert([{"id": "d0", "text": "apple unique0"}, {"id": "d599", "text": "apple unique599"}])
        assert db.reindex(embed=OTHER) == 600
        check(db, 600, 32)


def test_what_is_kept_is_not_embedded_twice_when_a_run_goes_on(tmp_path: Path) -> None:
    """Only the documents that have no new vector yet are embedded by the second run."""
    backend = fake_backend()
    with vs.open(tmp_path / "db", embed=EMBEDDER, backend=backend.name) as db:
        db.add(docs(600))
        seen: list[int] = []

        def stop(done: int, _: int) -> None:
            seen.append(done)
            raise KeyboardInterrupt

        with pytest.raises(KeyboardInterrupt):
            db.reindex(embed=OTHER, progress=stop)
        assert db.reindex(embed=OTHER, progress=lambda done, _: seen.append(done)) == 600
        assert seen == [256, 512, 600]


def test_another_models_vectors_are_thrown_away_when_a_third_model_is_asked_for(tmp_path: Path) -> None:
    """What was collected for one model is of no use for another."""
    with vs.open(tmp_path / "db", embed=EMBEDDER, backend=fake_backend().name) as db:
        db.add(docs(10))
        store = db._collection.upkeep.store
        NewVectors(store, "someone else's").append([1, 2], (np.ones((2, 5), np.float32), np.zeros(2, np.bool_)))
        assert db.reindex(embed=OTHER) == 10
        check(db, 10, 32)


def test_the_new_vectors_count_when_the_exchange_is_interrupted_after_its_commit(tmp_path: Path) -> None:
    """What is stored decides which model queries and documents are embedded with, not that something was raised."""
    with vs.open(tmp_path / "db", embed=EMBEDDER, backend=fake_backend().name) as db:
        db.add(docs(20))

        def interrupt() -> None:
            failpoints.disarm_all()
            raise KeyboardInterrupt

        failpoints.arm("store.after_commit", interrupt)
        with pytest.raises(KeyboardInterrupt):
            db.reindex(embed=OTHER)
        assert db.embedder == OTHER
        db.add(docs(5, start=20))
        check(db, 25, 32)
        assert db.reindex(embed=EMBEDDER) == 25
        check(db, 25, 64)


def test_two_runs_take_turns_when_they_are_asked_for_at_once(tmp_path: Path) -> None:
    """They would share one file: the second begins when the first is done, and its model is the one that stays."""
    third = fake_spec("third-embedder", dim=32)
    with vs.open(tmp_path / "db", embed=EMBEDDER, backend=fake_backend().name) as db:
        db.add(docs(600))
        order: list[str] = []
        second = threading.Thread(
            target=lambda: db.reindex(embed=third, progress=lambda done, _: order.append(f"third {done}")), daemon=True
        )

        def start_the_second(done: int, _: int) -> None:
            order.append(f"other {done}")
            if done == 256:
                second.start()
                second.join(0.05)  # it would be done with its first chunk by then

        db.reindex(embed=OTHER, progress=start_the_second)
        second.join(WAIT_S)
        assert order == [f"{name} {done}" for name in ("other", "third") for done in (256, 512, 600)]
        assert db.embedder == third
        check(db, 600, 32)


def test_the_old_vectors_stay_when_the_exchange_fails(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """A failure in the last transaction leaves the old model, its vectors and its searches as they were."""
    with vs.open(tmp_path / "db", embed=EMBEDDER, backend=fake_backend().name) as db:
        db.add(docs(20))
        with monkeypatch.context() as patch:
            patch.setattr(
                "vectorsearch.collection.storage.sqlite.connections.failpoints.reach",
                lambda name: (_ for _ in ()).throw(OSError("pulled")) if name == "store.before_commit" else None,
            )
            with pytest.raises(OSError, match="pulled"):
                db.reindex(embed=OTHER)
        assert db.embedder == EMBEDDER
        check(db, 20, 64)
        assert db.reindex(embed=OTHER) == 20
        check(db, 20, 32)


def test_writes_and_searches_are_right_when_vectors_are_exchanged_under_them(tmp_path: Path) -> None:
    """Nothing fails, no search compares vectors of two models, and what was written meanwhile has the new model's."""
    failures: list[str] = []
    stop = threading.Event()
    with vs.open(tmp_path / "db", embed=EMBEDDER, backend=fake_backend().name) as db:
        db.add(docs(300))

        def search() -> None:
            while not stop.is_set():
                try:
                    score = db.search("apple unique7", mode="dense", k=1)[0].score
                    if score != pytest.approx(1):
                        failures.append(f"a query and its document compare as {score}")
                except VectorSearchError as exc:
                    failures.append(repr(exc))

        def write() -> None:
            for start in range(300, 340):
                db.add(docs(1, start=start))

        threads = [threading.Thread(target=search), threading.Thread(target=search), threading.Thread(target=write)]
        for thread in threads:
            thread.start()
        for model in (OTHER, EMBEDDER, OTHER):
            db.reindex(embed=model)
        threads[-1].join(WAIT_S)
        stop.set()
        for thread in threads:
            thread.join(WAIT_S)
        assert failures == []
        check(db, 340, 32)


def test_a_reader_is_told_when_another_process_has_exchanged_the_vectors(tmp_path: Path) -> None:
    """A database that is open to read can't compare its model's queries with another model's vectors."""
    with vs.open(tmp_path / "db", embed=EMBEDDER, backend=fake_backend().name) as db:
        db.add(docs(20))
        db.refresh()
        with vs.open(tmp_path / "db", embed=EMBEDDER, backend=fake_backend().name, read_only=True) as reader:
            assert reader.search("apple unique3", mode="dense", k=1)[0].id == "d3"
            db.reindex(embed=fake_spec("same-length", dim=64))
            with pytest.raises(SettingsMismatch, match="open the database again"):
                reader.search("apple unique3", mode="dense", k=1)


def test_only_an_embedder_is_taken_when_a_database_is_embedded_again(tmp_path: Path) -> None:
    """A reranker is refused before anything is done."""
    with vs.open(tmp_path / "db", embed=EMBEDDER, backend=fake_backend().name) as db:
        with pytest.raises(InvalidInput, match="cross-encode"):
            db.reindex(embed=RERANKER)
        assert not (tmp_path / "db" / FILE_NAME).exists()


def test_work_is_done_again_when_the_model_was_exchanged_under_it() -> None:
    """A result, or an error, that two models may have made is thrown away; any other error is raised."""
    space, models = EmbeddingSpace(EMBEDDER), SimpleNamespace(changes=0)
    seen = []

    def work(embedder: object) -> list[Any]:
        seen.append(embedder)
        if len(seen) == 1:
            with space.exchange(OTHER, is_done=lambda: True):
                pass
            raise VectorSearchError("half and half")
        if len(seen) == 2:
            models.changes += 1
            return [SimpleNamespace(number=2, degraded=("rerank:error",))]
        return [SimpleNamespace(number=len(seen), degraded=())]

    assert steadily(space, models, work)[0].number == 3  # type: ignore[arg-type]  # what is asked of it
    assert seen == [EMBEDDER, OTHER, OTHER]
    with pytest.raises(VectorSearchError, match="its own"):
        steadily(space, models, lambda _: (_ for _ in ()).throw(VectorSearchError("its own")))  # type: ignore[arg-type]
