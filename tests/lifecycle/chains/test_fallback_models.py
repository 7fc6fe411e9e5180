"""The default models through real chains: another runtime answers in the same space, and deadlines are kept."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import numpy as np
import pytest

from backends.catalogue import catalogue
from backends.catalogue.entries import DEFAULT_EMBEDDER, DEFAULT_RERANKER
from backends.errors import DeadlineExceeded, TransientBackendError
from backends.running.deadline import Deadline
from lifecycle import ModelManager
from lifecycle.chains.text_chain import text_chain

if TYPE_CHECKING:
    from collections.abc import Iterator

    from lifecycle import Lease

pytestmark = pytest.mark.models
FAR_S = 800.0
QUERY = "how do I read a csv file"


@pytest.fixture
def manager() -> Iterator[ModelManager]:
    """Give a manager with room for two models."""
    with ModelManager(400 << 20) as made:
        yield made


@pytest.mark.parametrize("name", [DEFAULT_EMBEDDER, DEFAULT_RERANKER])
def test_numpy_answers_in_the_same_space_when_onnx_runtime_fails(manager: ModelManager, name: str) -> None:
    """L45: the int8 graph in ONNX Runtime and its dequantised weights in NumPy agree, so that one may stand in."""
    spec = catalogue.pull(name)
    chain = text_chain(manager, spec, ["onnx", "numpy"])
    failures = [TransientBackendError("lost"), None, None]

    def ask(model: Any, lease: Lease) -> tuple[str, Any]:
        if error := failures.pop(0):
            raise error
        if spec.task == "embed":
            return lease.backend, model.embed([QUERY], kind="query").vectors[0]
        texts = ["csv.reader reads rows", "the weather is fine", "json.loads parses a text"]
        return lease.backend, model.score(QUERY, texts).scores

    (where, stand_in), (home, usual) = chain.run(ask, timeout_s=FAR_S), chain.run(ask, timeout_s=FAR_S)
    assert (where, home) == ("numpy", "onnx")
    cosine = stand_in @ usual / np.linalg.norm(stand_in) / np.linalg.norm(usual)
    assert cosine >= 0.99


def test_reranker_comes_back_when_its_time_is_up(manager: ModelManager) -> None:
    """Fifty long passages can't be scored in 20 ms: the caller is told, and the model serves the next call.

    The time runs from when the model is there: on a busy machine the way to it may take as long.
    """
    chain = text_chain(manager, catalogue.pull(DEFAULT_RERANKER), ["onnx"])
    texts = ["rows of a csv file are read one by one " * 40] * 50

    def score(model: Any, _lease: Lease) -> Any:
        return model.score(QUERY, texts, deadline=Deadline.after(limit_s))

    with manager.lease(chain.ref, FAR_S) as model:
        assert model.stops
    limit_s = 0.02
    with pytest.raises(DeadlineExceeded):
        chain.run(score, deadline=Deadline.after(FAR_S))
    texts, limit_s = texts[:1], FAR_S
    assert np.isfinite(chain.run(score, deadline=Deadline.after(FAR_S)).scores).all()
    assert manager.status(chain.ref).leases == 0
