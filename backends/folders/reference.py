"""What sentence-transformers answers: the reference that a model's folder is meant for, asked text by text.

Where it is installed, a registration compares a model with it. It is run in a child process that is confined.
"""

from __future__ import annotations

import importlib.util
from typing import TYPE_CHECKING

import numpy as np

from backends.errors import InvalidModel

if TYPE_CHECKING:
    from collections.abc import Sequence

    from numpy.typing import NDArray

    from backends.base import ModelSpec

_WEIGHTS = ("model.safetensors", "model.safetensors.index.json", "0_StaticEmbedding/model.safetensors")


def why_not(spec: ModelSpec) -> str:
    """Return why a model can't be compared with the reference here; nothing if it can."""
    if importlib.util.find_spec("sentence_transformers") is None:
        return "sentence-transformers is not installed: pip install 'vectorsearch[torch]'"
    if not any((spec.folder / path).is_file() for path in _WEIGHTS):
        return "sentence-transformers reads safetensors, and the model has none"
    return ""


def answers(spec: ModelSpec, query: str, texts: Sequence[str]) -> NDArray[np.float32]:
    """Return float32[1 + n, dim], the query's vector and then the texts'; of a cross-encoder float32[n, 1] logits.

    Raises:
        InvalidModel: the reference can't load the model, or fails on a text; the message is its own.
    """
    try:
        return _embed(spec, query, texts) if spec.task == "embed" else _score(spec, query, texts)
    except Exception as exc:  # (whatever the reference raises, the model is not one that it serves)
        raise InvalidModel(f"sentence-transformers fails on {spec.name!r}: {type(exc).__name__}: {exc}") from exc


def _embed(spec: ModelSpec, query: str, texts: Sequence[str]) -> NDArray[np.float32]:
    from sentence_transformers import SentenceTransformer  # noqa: PLC0415  (heavy, and only where it is installed)

    model = SentenceTransformer(
        str(spec.folder), device="cpu", local_files_only=True, model_kwargs={"use_safetensors": True}
    )
    # Of a model that has a prompt for passages under another name than "document", release 6.2 takes none.
    vectors = [model.encode_query(query), *(model.encode_document(text, prompt=spec.passage_prefix) for text in texts)]
    return np.stack([np.asarray(vector, np.float32) for vector in vectors])


def _score(spec: ModelSpec, query: str, texts: Sequence[str]) -> NDArray[np.float32]:
    import torch  # noqa: PLC0415  (heavy, and only where it is installed)
    from sentence_transformers import CrossEncoder  # noqa: PLC0415  (as above)

    model = CrossEncoder(str(spec.folder), device="cpu", local_files_only=True, model_kwargs={"use_safetensors": True})
    logits = [model.predict([(query, text)], activation_fn=torch.nn.Identity()) for text in texts]
    return np.asarray(logits, np.float32).reshape(len(texts), 1)
