"""What a model is charged for against what its process holds, in a child of its own, with every program in memory."""

from __future__ import annotations

from concurrent.futures import ProcessPoolExecutor
from multiprocessing import get_context

import numpy as np
import psutil
import pytest

from backends.base import TokenBatch
from backends.catalogue import catalogue
from backends.catalogue.entries import DEFAULT_RERANKER
from backends.choosing import registry
from backends.running.memory import trim
from backends.running.text_model import TextLoader

SMALLEST = "paraphrase-MiniLM-L3-v2"


def charged_and_held(name: str, backend: str) -> tuple[int, int, int]:
    """Return the bytes estimated, charged, and held beyond those of a runtime that has run a model before."""
    spec, loader = catalogue.pull(name), TextLoader(registry.get(backend))
    for round_ in ("the runtime's own", "the model's"):
        trim()
        before = psutil.Process().memory_info().rss
        model = loader.load_model(spec)
        model.warm_up()
        lengths = model.batching.lengths or range(8, spec.max_length + 1, 56)
        for length in lengths if round_ == "the model's" else ():
            for rows in (model.batching.rows(length), 1):
                ids = np.full((rows, length), 5)
                model._model.infer(TokenBatch(ids, np.ones_like(ids), np.zeros_like(ids)))
        held, charged = psutil.Process().memory_info().rss - before, model.nbytes
        model.close()
    return loader.estimate(spec), charged, held


@pytest.mark.models
@pytest.mark.parametrize(
    ("model", "backend"),
    [
        pytest.param(SMALLEST, "jax:float32", id="jax"),
        pytest.param(DEFAULT_RERANKER, "torch:bfloat16", id="torch", marks=pytest.mark.deep),
    ],
)
def test_charge_covers_what_is_held_when_every_program_is_in_memory(model: str, backend: str) -> None:
    """The process holds no more than is charged, and at least two fifths of it; the estimate before was no less."""
    with ProcessPoolExecutor(1, mp_context=get_context("spawn")) as child:
        estimated, charged, held = child.submit(charged_and_held, model, backend).result()
    assert 0.4 * charged <= held <= charged, f"{held >> 20} MiB held, {charged >> 20} charged"
    assert 0.9 * charged <= estimated
