"""A folder's model on every backend that serves it, compared with sentence-transformers, each text alone."""

from __future__ import annotations

import re
from typing import TYPE_CHECKING

import numpy as np
from kinds import QUERY, TEXTS
from tiny_models import reference

from backends.catalogue import catalogue, export
from backends.choosing import registry
from backends.errors import InvalidModel
from backends.running.text_model import TextLoader

if TYPE_CHECKING:
    from pathlib import Path

    from numpy.typing import NDArray

    from backends.base import ModelSpec

# Vectors by 1 - cosine; logits relative to the largest, or to 1.
EXACT = (1e-4, 1e-4)
LOOSE = (1e-3, 5e-2)  # of bfloat16


def distance(one: NDArray[np.float32], other: NDArray[np.float32]) -> float:
    """Return the largest difference: of vectors 1 - cosine, of logits relative to the largest, or to 1."""
    if one.ndim == 1:
        return float(np.abs(one - other).max() / max(1.0, float(np.abs(other).max())))
    lengths = np.linalg.norm(one, axis=1) * np.linalg.norm(other, axis=1)
    cosines = (one * other).sum(1) / np.where(lengths == 0, 1, lengths)
    return float(np.where((one == other).all(1), 0, 1 - cosines).max())  # two of zeros are equal


def answers(spec: ModelSpec, backend: str, texts: list[str]) -> tuple[NDArray[np.float32], NDArray[np.float32]]:
    """Return a backend's answers to texts together, and to each alone."""
    model = TextLoader(registry.get(backend)).load_model(spec)
    try:

        def ask(texts: list[str]) -> NDArray[np.float32]:
            if spec.task == "embed":
                return model.embed(texts, kind="passage").vectors
            return model.score(QUERY, texts).scores

        return ask(texts), np.concatenate([ask([text]) for text in texts])
    finally:
        model.close()


def check(spec: ModelSpec, backend: str, expected: NDArray[np.float32], texts: list[str]) -> None:
    """Compare a backend's answers, together and alone, with the reference's."""
    together, alone = answers(spec, backend, texts)
    limits = LOOSE if "bfloat16" in backend else EXACT
    limit = limits[spec.task == "cross-encode"]
    assert distance(together, expected) <= limit, backend
    assert distance(alone, expected) <= limit, backend


def expect(folder: Path, *, classify: bool) -> tuple[NDArray[np.float32], list[str]]:
    """Return the reference's answers, and to which texts: a model of no special tokens has none for an empty one."""
    texts = TEXTS
    try:
        return reference(folder, texts, classify=classify), texts
    except RuntimeError:
        texts = [text for text in TEXTS if text]
        return reference(folder, texts, classify=classify), texts


def compare(folder: Path, graph: Path, *, classify: bool, bfloat16: bool = True) -> tuple[str, ...]:
    """Compare each backend that serves a folder, or the graph exported from it, with the reference: return which do."""
    expected, texts = expect(folder, classify=classify)
    assert expected.std(axis=0).mean() > 1e-3, "the model says the same of every text: nothing would be compared"
    spec = catalogue.resolve(folder)
    assert registry.get("torch").can_serve(spec)
    check(spec, "torch:float32", expected, texts)
    try:
        if bfloat16:  # its bound is for usual weights
            check(spec, "torch:bfloat16", expected, texts)
    except InvalidModel as exc:
        assert "fails in torch.bfloat16" in str(exc)  # noqa: PT017  (some architectures do, and say so)
    served = ["torch"]
    try:
        export.export(spec, graph)
    except InvalidModel as exc:
        assert re.search(r"as an ONNX graph|another answer where it is padded", str(exc))  # noqa: PT017  (refused by name)
        return tuple(served)
    (graph / "model.safetensors").unlink()
    of_graph = catalogue.resolve(graph)
    for backend in ("onnx", "jax:float32", "numpy:float32", "openvino:float32"):
        answer = registry.get(backend).can_serve(of_graph)
        if answer:
            check(of_graph, backend, expected, texts)
            served.append(backend.partition(":")[0])
        else:
            assert "uses what it does not know" in answer.reason
    return tuple(served)
