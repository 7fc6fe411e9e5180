"""Databases over the fake backend: real storage, indexes, planner and lifecycle; no model files."""

from __future__ import annotations

import itertools
from typing import TYPE_CHECKING, Any, Protocol

import pytest

import vectorsearch as vs
from backends.choosing import registry
from backends.engines.fake_backend import FakeBackend, fake_spec

if TYPE_CHECKING:
    from collections.abc import Iterator
    from pathlib import Path

MODEL_NBYTES = 1_000_000
EMBEDDER = fake_spec("test-embedder", dim=64)
RERANKER = fake_spec("test-reranker", task="cross-encode")
DOCS = [
    {"id": "csv", "title": "csv.reader", "text": "process lines of a comma separated file", "metadata": {"kind": "f"}},
    {"id": "json", "title": "json.loads", "text": "deserialize a document to an object", "metadata": {"kind": "f"}},
    {"id": "re", "title": "re.sub", "text": "replace every match of a pattern", "metadata": {"kind": "m"}},
    {"id": "glob", "title": "glob.glob", "text": "list the files that match a pattern", "metadata": {"kind": "m"}},
]

_numbers = itertools.count()


class OpenDatabase(Protocol):
    """Open a database on a fake backend."""

    def __call__(self, *args: Any, fake: FakeBackend | None = None, **options: Any) -> vs.Database:
        """Take the arguments of `vectorsearch.open`, and the fake backend to use."""


def fake_backend(**scripts: Any) -> FakeBackend:
    """Register a fake backend under a name of its own, so that tests can't see each other's."""
    backend = FakeBackend(f"fake-{next(_numbers)}", nbytes=MODEL_NBYTES, **scripts)
    registry.register(backend)
    return backend


@pytest.fixture(autouse=True)
def own_registry(monkeypatch: pytest.MonkeyPatch) -> None:
    """Take back the fake backends that a test registers."""
    registry.available()
    monkeypatch.setattr(registry, "_known", dict(registry._known))


@pytest.fixture
def open_database() -> Iterator[OpenDatabase]:
    """Give a function that opens databases, and close them all at the end."""
    opened: list[vs.Database] = []

    def call(*args: Any, fake: FakeBackend | None = None, **options: Any) -> vs.Database:
        options.setdefault("embed", EMBEDDER)
        options.setdefault("rerank", RERANKER)
        backend = fake or fake_backend()
        database = vs.open(*args, backend=backend.name, **options)
        opened.append(database)
        return database

    yield call
    for database in opened:
        database.close()


@pytest.fixture
def db(open_database: OpenDatabase) -> vs.Database:
    """Give a database in memory with four documents."""
    database = open_database()
    database.add(DOCS)
    return database


@pytest.fixture
def store(tmp_path: Path) -> Iterator[vs.Database]:
    """Give a store without vectors, in which any backend may serve."""
    with vs.open(tmp_path / "db", embed=None, rerank=None, backend="onnx") as opened:
        yield opened
