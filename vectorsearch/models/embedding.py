"""Texts to a model's own vectors, for who compares them elsewhere than in this database."""

from __future__ import annotations

from collections.abc import Iterable
from typing import TYPE_CHECKING, get_args

import numpy as np

from backends.errors import InferenceError, InvalidInput
from backends.running.text_model import TextKind

if TYPE_CHECKING:
    from numpy.typing import NDArray

    from backends.running.deadline import Deadline
    from vectorsearch.models.encoder import Encoder


def embed_texts(
    encoder: Encoder,
    texts: Iterable[str],
    *,
    role: TextKind,
    normalize: bool | None = None,
    dimensions: int | None = None,
    deadline: Deadline | None = None,
) -> NDArray[np.float32]:
    """Return the vectors of n texts, float32[n, dim], or float32[n, dimensions]; as `Database.embed`.

    Raises:
        InvalidInput: an argument can't be used.
        InferenceError: the model gave a vector that isn't finite.
        VectorSearchError: as `Encoder.embed`.
    """
    asked = _checked(texts)
    if role not in get_args(TextKind):
        raise InvalidInput(f"role is {role!r}: it is 'query' or 'passage'")
    if not isinstance(normalize, bool | None):
        raise InvalidInput(f"normalize is {normalize!r}: it is True, False, or None for what suits the model")
    spec = encoder.spec
    _check_dimensions(dimensions, spec.dim, spec.name)
    if not asked:
        return np.empty((0, dimensions or spec.dim or 0), np.float32)
    vectors = encoder.embed(asked, role=role, deadline=deadline).vectors
    if not np.isfinite(vectors).all():
        raise InferenceError(f"model {spec.name!r} gave a vector with numbers that aren't finite: nothing is returned")
    _check_dimensions(dimensions, vectors.shape[1], spec.name)
    vectors = vectors[:, :dimensions]
    return _of_length_1(vectors) if (spec.similarity == "cosine" if normalize is None else normalize) else vectors


def _checked(texts: Iterable[str]) -> list[str]:
    if isinstance(texts, str) or not isinstance(texts, Iterable):
        raise InvalidInput(f"texts is {texts!r}: give a list of texts")
    asked = list(texts)
    for at, text in enumerate(asked):
        if not isinstance(text, str):
            raise InvalidInput(f"text {at} is a {type(text).__name__}, not text")
    return asked


def _check_dimensions(dimensions: object, dim: int | None, name: str) -> None:
    if dimensions is None:
        return
    if isinstance(dimensions, bool) or not isinstance(dimensions, int) or dimensions < 1:
        raise InvalidInput(f"dimensions is {dimensions!r}: it is a whole number above 0, or None")
    if dim is not None and dimensions > dim:
        raise InvalidInput(f"dimensions is {dimensions}, and model {name!r} gives {dim}: ask for {dim} or fewer")


def _of_length_1(vectors: NDArray[np.float32]) -> NDArray[np.float32]:
    """Return the vectors brought to length 1; one of zeros has no direction, and stays."""
    lengths = np.linalg.norm(vectors.astype(np.float64), axis=1, keepdims=True)
    return (vectors / np.where(lengths > 0, lengths, 1.0)).astype(np.float32)
