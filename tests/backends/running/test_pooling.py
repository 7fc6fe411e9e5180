"""Pooling: each kind reads the tokens that it should, and never the padding."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
from module_files import pooled as files_of

from backends.catalogue import catalogue
from backends.choosing import registry
from backends.errors import InferenceError
from backends.running import text_model
from backends.running.pooling import l2_normalize, pool, require_finite

HIDDEN = np.array([[[1, 0], [3, 2], [99, 99]], [[4, 4], [5, 5], [6, 9]]], np.float32)
MASK = np.array([[1, 1, 0], [1, 1, 1]])


@pytest.mark.parametrize(
    ("pooling", "expected"), [("cls", [[1, 0], [4, 4]]), ("mean", [[2, 1], [5, 6]]), ("last", [[3, 2], [6, 9]])]
)
def test_padding_is_not_read_when_rows_are_padded(pooling: str, expected: list[list[float]]) -> None:
    """Each pooling takes its own tokens out of those whose mask is 1."""
    pooled = pool(HIDDEN, MASK, pooling)
    assert pooled.dtype == np.float32
    assert pooled.tolist() == expected


def test_vectors_pass_unchanged_when_the_graph_pools() -> None:
    """With pooling none the graph's own vectors are the answer."""
    assert pool(HIDDEN[:, 0], MASK, "none").tolist() == HIDDEN[:, 0].tolist()


def test_zero_vector_stays_zero_when_normalised() -> None:
    """A zero row is not divided by its length; the others get length 1."""
    normal = l2_normalize(np.array([[0, 0], [3, 4]], np.float32))
    assert normal.dtype == np.float32
    assert normal.tolist() == [[0, 0], [pytest.approx(0.6), pytest.approx(0.8)]]


@pytest.mark.parametrize("values", [[1.0, np.nan, np.inf], [[0.0, 1.0], [np.nan, 0.0], [0.0, -np.inf]]])
def test_rows_are_named_when_values_are_not_finite(values: list[object]) -> None:
    """NaN and infinity are errors that name the rows."""
    with pytest.raises(InferenceError, match=r"rows \[1, 2\] of a batch of 3"):
        require_finite(np.array(values, np.float32), "m")


@pytest.mark.parametrize("pooling", ["cls+mean", "max+weightedmean", "mean_sqrt_len", "last+max+cls"])
@pytest.mark.parametrize("backend", ["numpy:float32", "jax:float32"])
def test_every_backend_pools_alike_when_several_modes_are_asked_for(
    make_folder: Any, pooling: str, backend: str
) -> None:
    """M5: the modes are the same wherever they are computed, and ragged rows don't see their padding."""
    names = {"mean_sqrt_len": "mean_sqrt_len_tokens", "last": "lasttoken"}
    files = files_of([names.get(mode, mode) for mode in pooling.split("+")])
    spec = catalogue.resolve(make_folder(files=files))
    assert (spec.pooling, spec.dim) == (pooling, 8 * len(pooling.split("+")))
    texts = ["dog", "how read a csv file", "a b c a b c dog cat"]
    vectors = []
    for name in ("onnx", backend):
        model = text_model.TextLoader(registry.get(name)).load_model(spec)
        vectors.append(model.embed(texts, kind="query").vectors)
        model.close()
    np.testing.assert_allclose(*vectors, atol=1e-6)
