"""The OpenVINO backend: its precisions, its batches, its refusals, and a run that ends at its deadline."""

from __future__ import annotations

from dataclasses import replace
from functools import partial
from typing import TYPE_CHECKING

import numpy as np
import pytest

from backends.base import Stoppable, TokenBatch
from backends.catalogue import catalogue
from backends.catalogue.entries import DEFAULT_EMBEDDER, DEFAULT_RERANKER
from backends.choosing import registry
from backends.engines import openvino_backend
from backends.errors import DeadlineExceeded, InvalidModel, MissingExtra
from backends.running.deadline import Deadline
from backends.running.text_model import TextLoader

if TYPE_CHECKING:
    from collections.abc import Callable
    from pathlib import Path

    from backends.running.text_model import TextModel

pytestmark = pytest.mark.models


@pytest.fixture
def load_openvino(load: Callable[..., TextModel]) -> Callable[..., TextModel]:
    """Return `load` for this backend."""
    return partial(load, backend="openvino")


@pytest.mark.parametrize("precision", ["float32", "bfloat16"])
def test_device_names_the_precision_when_one_is_asked_for(precision: str) -> None:
    """`openvino:bfloat16` computes in bfloat16 and says so."""
    model = TextLoader(registry.get(f"openvino:{precision}")).load_model(catalogue.pull(DEFAULT_RERANKER))
    assert model.device == f"cpu:openvino:{precision}"
    scores = model.score("read a csv file", ["csv.reader reads rows of a csv file", "a dog barks"]).scores
    assert scores[0] > scores[1]
    model.close()


def test_precision_is_float32_when_the_processor_has_no_tiles(
    load_openvino: Callable[..., TextModel], monkeypatch: pytest.MonkeyPatch
) -> None:
    """bfloat16 without a unit for it would cost accuracy and gain no time worth it."""
    monkeypatch.setattr(openvino_backend, "has_bfloat16_tiles", lambda: False)
    assert load_openvino(DEFAULT_EMBEDDER).device == "cpu:openvino:float32"


def test_rows_are_of_few_lengths_when_texts_are_ragged(load_openvino: Callable[..., TextModel]) -> None:
    """A kernel is compiled and kept for every shape, so that memory would grow with their number."""
    batching = load_openvino(DEFAULT_EMBEDDER)._model.batching
    assert batching.lengths[-1] == catalogue.resolve(DEFAULT_EMBEDDER).max_length
    assert {batching.padded(length) for length in range(1, 513)} == set(batching.lengths)


def test_run_ends_when_its_deadline_has_passed(load_openvino: Callable[..., TextModel]) -> None:
    """A batch whose time is up is given up with an error that says so, and the next one is answered."""
    model = load_openvino(DEFAULT_EMBEDDER)._model
    assert isinstance(model, Stoppable)
    ids = np.random.default_rng(0).integers(1000, 2000, (1, 512))
    batch = TokenBatch(ids, np.ones_like(ids), np.zeros_like(ids))
    with pytest.raises(DeadlineExceeded, match="the time was up"):
        model.infer_until(batch, Deadline(0.0, clock=lambda: 1.0))
    assert np.isfinite(model.infer(batch)).all()


def test_damaged_graph_is_refused_by_its_path(tmp_path: Path) -> None:
    """What OpenVINO or the reader can't make out is an InvalidModel that names the file."""
    (tmp_path / "model.onnx").write_bytes(b"\x08\x07garbage")
    spec = replace(catalogue.pull(DEFAULT_EMBEDDER), folder=tmp_path, weights_file="model.onnx")
    with pytest.raises(InvalidModel):
        registry.get("openvino").load_model(spec)


def test_missing_extra_names_the_command(monkeypatch: pytest.MonkeyPatch) -> None:
    """Without the package the model isn't served, and the reason is the pip command."""
    monkeypatch.setattr(openvino_backend.importlib.util, "find_spec", lambda _: None)
    answer = registry.get("openvino").can_serve(catalogue.pull(DEFAULT_EMBEDDER))
    assert not answer
    assert "pip install 'vectorsearch[openvino]'" in answer.reason
    monkeypatch.setitem(__import__("sys").modules, "openvino", None)
    with pytest.raises(MissingExtra, match="pip install 'vectorsearch"):
        registry.get("openvino").load_model(catalogue.pull(DEFAULT_EMBEDDER))
