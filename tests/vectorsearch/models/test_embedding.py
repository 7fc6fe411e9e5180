"""Vectors and scores for who searches elsewhere: `Database.embed` and `Database.score`."""

from __future__ import annotations

from dataclasses import replace
from typing import TYPE_CHECKING, Any

import numpy as np
import pytest

from backends.errors import DeadlineExceeded, InferenceError, InvalidInput
from lifecycle import LeaseTimeout
from vectorsearch.errors import UnknownTenant

from ..conftest import EMBEDDER, RERANKER

if TYPE_CHECKING:
    from pathlib import Path

    import vectorsearch as vs

    from ..conftest import OpenDatabase

PREFIXED = replace(EMBEDDER, name="prefixed", digest="f" * 64, query_prefix="alpha beta ")


def test_vectors_are_those_that_a_search_compares(db: vs.Database) -> None:
    """A passage's vector finds, as a query's, the document that is stored with the same text."""
    vector = db.embed(["glob.glob\nlist the files that match a pattern"], role="passage")[0]
    assert db.search(vector=vector, k=1)[0].id == "glob"
    assert db.embed([], role="query").shape == (0, EMBEDDER.dim)


def test_role_says_which_prefix_is_read(open_database: OpenDatabase) -> None:
    """A model with a prefix for queries gives a query the vector of prefix and text; a passage has none."""
    db = open_database(embed=PREFIXED)
    query, passage = (db.embed(["gamma"], role=role)[0] for role in ("query", "passage"))
    spelled_out = db.embed(["alpha beta gamma"], role="passage")[0]
    assert np.array_equal(query, spelled_out)
    assert not np.array_equal(query, passage)


@pytest.mark.parametrize(("normalize", "length_is_1"), [(None, True), (True, True), (False, False)])
def test_shortened_vectors_are_the_first_numbers(
    db: vs.Database,
    normalize: bool | None,  # noqa: FBT001 -- parameters of the test
    length_is_1: bool,  # noqa: FBT001
) -> None:
    """`dimensions` keeps the first numbers, in their proportions; only `normalize=False` leaves them shorter than 1."""
    texts = ["list the files that match a pattern", "replace what a pattern matches"]
    whole = db.embed(texts, role="passage")
    half = (EMBEDDER.dim or 0) // 2
    cut = db.embed(texts, role="passage", dimensions=half, normalize=normalize)
    lengths = np.linalg.norm(whole[:, :half], axis=1, keepdims=True)
    assert (lengths < 0.999).all()
    np.testing.assert_allclose(cut, whole[:, :half] / (lengths if length_is_1 else 1.0), rtol=1e-5)


@pytest.mark.parametrize(
    "options",
    [
        {"texts": "a text"},
        {"texts": None},
        {"text": ["a", 5]},
        {"role": "document"},
        {"normalize": 1},
        {"dimensions": 0},
        {"dimensions": True},
        {"dimensions": 2.0},
        {"dimensions": 10**6},
        {"timeout_s": 0},
        {"timeout_s": float("nan")},
    ],
    ids=str,
)
def test_argument_is_named_when_it_cannot_be_used(db: vs.Database, options: dict[str, Any]) -> None:
    """What can't be used is an `InvalidInput` that names it."""
    (name, value) = next(iter(options.items()))
    given = {"texts": ["a"], "role": "query", "texts" if name == "text" else name: value}
    with pytest.raises(InvalidInput, match=name):
        db.embed(given.pop("texts"), **given)


def test_time_that_is_up_is_an_error(db: vs.Database) -> None:
    """Neither vectors nor scores are made up in place of late ones."""
    calls = (
        lambda **late: db.embed(["a"], role="query", **late),
        lambda **late: db.score("a", ["b"], **late),
    )
    for call in calls:
        with pytest.raises((LeaseTimeout, DeadlineExceeded)):  # it isn't loaded yet
            call(timeout_s=1e-9)
        call()
        with pytest.raises((LeaseTimeout, DeadlineExceeded)):
            call(timeout_s=1e-9)
    with pytest.raises(InvalidInput, match="timeout_s"):
        db.score("a", ["b"], timeout_s=-1)


def test_models_are_the_tenants_own(open_database: OpenDatabase, tmp_path: Path) -> None:
    """With `tenant` the work is charged to that tenant alone, and an unknown one is an error."""
    db = open_database(tmp_path / "db")
    db.tenant("acme")
    assert db.score("a", ["a", "b"], rerank=RERANKER, tenant="acme").shape == (2,)
    assert db.embed(["a"], role="query", tenant="acme").shape == (1, EMBEDDER.dim)
    used = {(ref.tenant, ref.name) for model in db.models().models for ref in model.refs if model.loads}
    assert used == {("acme", EMBEDDER.name), ("acme", RERANKER.name)}
    for call in (lambda: db.embed(["a"], role="query", tenant="b"), lambda: db.score("a", ["a"], tenant="b")):
        with pytest.raises(UnknownTenant):
            call()


def test_model_is_named_when_the_vectors_are_the_callers_own(open_database: OpenDatabase) -> None:
    """A database without an embedder embeds with a model by name, and says so where none is named."""
    db = open_database(embed=None)
    with pytest.raises(InvalidInput, match="name a model"):
        db.embed(["a"], role="query")
    assert db.embed(["a"], role="query", model=EMBEDDER).shape == (1, EMBEDDER.dim)


def test_vector_that_is_not_finite_is_an_error(db: vs.Database, monkeypatch: pytest.MonkeyPatch) -> None:
    """A model that gives NaN gives no vector."""
    import backends.running.text_model as running  # noqa: PLC0415 -- what is broken here alone

    honest = running.TextModel.embed

    def broken(self: Any, *args: Any, **options: Any) -> Any:
        answer = honest(self, *args, **options)
        return replace(answer, vectors=answer.vectors * np.float32("nan"))

    monkeypatch.setattr(running.TextModel, "embed", broken)
    with pytest.raises(InferenceError):
        db.embed(["a"], role="query")
