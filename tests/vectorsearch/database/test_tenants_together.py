"""Tenants under many threads: models exchanged, registered and removed while they are searched."""

from __future__ import annotations

import threading
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING

import pytest

import vectorsearch as vs
from backends.engines.fake_backend import Fault
from backends.errors import UnknownModel
from lifecycle import LoadFailed
from vectorsearch.errors import DatabaseClosed

from ..biased_models import TEXTS, BiasedBackend, bias_of, resident, write_model
from ..conftest import MODEL_NBYTES

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

THREADS = 8


@pytest.fixture
def backend() -> BiasedBackend:
    """Give the backend that counts loads."""
    return BiasedBackend()


@pytest.fixture
def store(tmp_path: Path, backend: BiasedBackend) -> Iterator[vs.Database]:
    """Give a store without vectors and with room for three models."""
    with vs.open(
        tmp_path / "db", embed=None, rerank=None, backend=backend.name, budget_nbytes=3 * MODEL_NBYTES
    ) as opened:
        yield opened


def filled(store: vs.Database, name: str) -> vs.Database:
    """Return a tenant with documents."""
    tenant = store.tenant(name)
    tenant.upsert({"id": doc_id, "text": text} for doc_id, text in TEXTS.items())
    return tenant


def search(database: vs.Database) -> int:
    """Search with the tenant's own model, and return which one it was."""
    return bias_of(database.search("apple", rerank="own", on_rerank_error="raise"))


def folder(store: vs.Database) -> Path:
    """Return the store's folder."""
    return Path(str(store.info()["path"]))


def copies(store: vs.Database) -> int:
    """Return how many models' files lie in the store."""
    return len(list((folder(store) / "models").glob("*")))


@contextmanager
def searching(work: Callable[[], None]) -> Iterator[None]:
    """Do the work over and over on eight threads meanwhile, at least once each; their errors are raised at the end."""
    over, begun = threading.Event(), threading.Barrier(THREADS + 1)

    def run() -> None:
        work()
        begun.wait()
        while not over.is_set():
            work()

    with ThreadPoolExecutor(THREADS) as pool:
        runs = [pool.submit(run) for _ in range(THREADS)]
        try:
            begun.wait()
            yield
        finally:
            over.set()
        for done in runs:
            done.result()


def test_every_answer_is_of_a_model_in_force_when_it_is_exchanged_under_searches(
    store: vs.Database, tmp_path: Path
) -> None:
    """No search fails or mixes models; each is of one that its name meant between its begin and its end."""
    acme = filled(store, "acme")
    models = [write_model(tmp_path / f"model{bias}", bias) for bias in range(10, 16)]
    acme.register_model("own", models[0], "cross-encoder")
    exchanges = {"begun": 0, "ended": 0}

    def work() -> None:
        first = exchanges["ended"]
        bias = search(acme)
        assert first <= bias - 10 <= exchanges["begun"]

    with searching(work):
        for model in models[1:]:
            exchanges["begun"] += 1
            acme.register_model("own", model, "cross-encoder")
            exchanges["ended"] += 1
    assert search(acme) == 15
    (model,) = resident(store)
    assert [ref.tenant for ref in model.refs] == ["acme"]
    assert (copies(store), store.models().charged_nbytes) == (1, MODEL_NBYTES)


class Gate(threading.Event):
    """An event that tells when somebody waits for it."""

    def __init__(self) -> None:
        super().__init__()
        self.reached = threading.Event()

    def wait(self, timeout: float | None = None) -> bool:
        """Wait, as an event."""
        self.reached.set()
        return super().wait(timeout)


def test_the_model_before_answers_when_the_new_one_is_not_tried_yet(tmp_path: Path) -> None:
    """A name means the new one once that is loaded, and goes on as before if it can't be; its files are then gone."""
    gate = Gate()
    backend = BiasedBackend(loads=[None, gate, Fault.CRASH])
    first, second, third = (write_model(tmp_path / f"model{bias}", bias) for bias in (10, 11, 12))
    with vs.open(tmp_path / "db", embed=None, rerank=None, backend=backend.name) as store:
        acme = filled(store, "acme")
        acme.register_model("own", first, "cross-encoder")
        with ThreadPoolExecutor(1) as pool:
            registering = pool.submit(acme.register_model, "own", second, "cross-encoder")
            assert gate.reached.wait(600)
            assert search(acme) == 10
            gate.set()
            registering.result()
        assert search(acme) == 11
        with pytest.raises(LoadFailed, match="crashed"):
            acme.register_model("own", third, "cross-encoder")
        assert search(acme) == 11
        assert (copies(store), len(resident(store))) == (1, 1)


def test_a_search_is_whole_or_says_that_it_is_closed_when_its_tenant_is_removed(
    store: vs.Database, backend: BiasedBackend, tmp_path: Path
) -> None:
    """No answer lacks hits; who shares the model goes on with it, and nothing of the tenant is left."""
    model = write_model(tmp_path / "model", 10)
    globex = filled(store, "globex")
    globex.register_model("own", model, "cross-encoder")
    for _ in range(3):
        acme = filled(store, "acme")
        acme.register_model("own", model, "cross-encoder")
        closed = threading.Event()

        def work(acme: vs.Database = acme, closed: threading.Event = closed) -> None:
            assert search(globex) == 10
            try:
                assert search(acme) == 10
            except DatabaseClosed:
                closed.set()

        with searching(work):
            store.remove_tenant("acme")
            assert closed.wait(600)
        with pytest.raises(DatabaseClosed):
            search(acme)
        assert [str(ref) for ref in store.models().models[0].refs] == ["globex/own"]
        assert not (folder(store) / "tenants" / "acme").exists()
    assert filled(store, "acme").registered_models() == ()
    assert (backend.loaded, copies(store), len(resident(store))) == (1, 1, 1)


def test_one_model_is_left_when_many_threads_register_one_name(store: vs.Database, tmp_path: Path) -> None:
    """All succeed, one after the other; the files and the memory of the others are gone."""
    acme = filled(store, "acme")
    models = [write_model(tmp_path / f"model{bias}", bias) for bias in range(16)]
    with ThreadPoolExecutor(16) as pool:
        done = list(pool.map(lambda model: acme.register_model("own", model, "cross-encoder"), models))
    (kept,) = acme.registered_models()
    assert kept in done
    assert search(acme) == int((folder(store) / "models" / kept.digest[:32] / "model.safetensors").read_text())
    assert (copies(store), len(resident(store))) == (1, 1)


def test_weights_are_loaded_once_when_tenants_register_them_at_once(
    store: vs.Database, backend: BiasedBackend, tmp_path: Path
) -> None:
    """One copy and one instance serve all; as tenants forget them at once, who still has them isn't disturbed."""
    model = write_model(tmp_path / "model", 10)
    tenants = [filled(store, f"tenant{number}") for number in range(8)]
    with ThreadPoolExecutor(8) as pool:
        list(pool.map(lambda tenant: tenant.register_model("own", model, "cross-encoder"), tenants))
        assert list(pool.map(search, tenants)) == [10] * 8
        assert (backend.loaded, copies(store)) == (1, 1)
        with searching(lambda: _is_ten(tenants[0])):
            list(pool.map(lambda tenant: tenant.unregister_model("own"), tenants[1:]))
            list(pool.map(lambda tenant: tenant.register_model("own", model, "cross-encoder"), tenants[1:4]))
    assert (backend.loaded, copies(store)) == (1, 1)
    for tenant in tenants[:4]:
        tenant.unregister_model("own")
    with pytest.raises(UnknownModel):
        search(tenants[0])
    assert (copies(store), resident(store)) == (0, [])


def _is_ten(tenant: vs.Database) -> None:
    assert search(tenant) == 10


def test_a_sure_model_stays_when_another_tenant_loads_many(
    store: vs.Database, backend: BiasedBackend, tmp_path: Path
) -> None:
    """L51: through databases and by eight threads at once: a guaranteed model is loaded once and for all."""
    quiet = filled(store, "quiet")
    store.tenant("quiet", guaranteed_nbytes=MODEL_NBYTES)
    quiet.register_model("own", write_model(tmp_path / "quiet", 5), "cross-encoder")
    noisy = filled(store, "noisy")
    for bias in range(10, 30):
        noisy.register_model(f"model{bias}", write_model(tmp_path / f"model{bias}", bias), "cross-encoder")

    def search_noisy(bias: int) -> int:
        return bias_of(noisy.search("apple", rerank=f"model{bias}", on_rerank_error="raise"))

    with ThreadPoolExecutor(THREADS) as pool:
        assert list(pool.map(search_noisy, range(10, 30))) == list(range(10, 30))
    assert search(quiet) == 5
    (own,) = quiet.models().models
    assert (own.loads, own.resident) == (1, True)
    assert backend.loaded > 20
    assert store.models().charged_nbytes <= 3 * MODEL_NBYTES


def test_a_tenant_is_opened_once_when_many_threads_ask_for_it(store: vs.Database) -> None:
    """All get the same database, and one that was closed is opened again, once."""
    for _ in range(5):
        with ThreadPoolExecutor(16) as pool:
            found = set(pool.map(lambda _: store.tenant("acme"), range(16)))
        (acme,) = found
        acme.close()


def test_a_tenants_models_leave_when_its_database_is_closed(store: vs.Database, tmp_path: Path) -> None:
    """Their memory is free at once, the registration stays, and a search of the closed database loads nothing."""
    acme = filled(store, "acme")
    acme.register_model("own", write_model(tmp_path / "model", 10), "cross-encoder")
    acme.close()
    for _ in range(2):
        assert resident(store) == []
        with pytest.raises(DatabaseClosed):
            search(acme)
    assert search(store.tenant("acme")) == 10
