"""Static embeddings: a table of vectors and a tokenizer. A text's vector is the mean of its tokens' rows; NumPy alone.

Serves what sentence-transformers keeps as a StaticEmbedding, and model2vec's folders, whose table may be indexed (a
`mapping`) and weighted (`weights`).
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import numpy as np

from backends.base import Serves
from backends.errors import InferenceError, InvalidInput, InvalidModel, MissingExtra, TransientBackendError
from backends.running.pooling import l2_normalize, require_finite
from backends.text.tokenizer import FolderTokenizer, TokenRows

if TYPE_CHECKING:
    from collections.abc import Sequence
    from pathlib import Path

    from numpy.typing import NDArray

    from backends.base import LoadedModel, ModelSpec, TokenBatch

# The table as float32, whatever it is stored in, and what is read from the file meanwhile.
_FACTOR = 3
_EMPTY = -1  # stands in the row of a text without tokens, whose vector is zero


def backend() -> StaticBackend:
    """Return this file's backend; the registry calls it on first use."""
    return StaticBackend()


class StaticBackend:
    """Loads tables of token vectors."""

    name = "static"
    priority: int | None = 35
    runtime = ("safetensors", "tokenizers")

    def can_serve(self, spec: ModelSpec) -> Serves:
        """Say yes to a table of vectors; every other model has a pooling, or a graph."""
        if is_static(spec):
            return Serves(ok=True)
        return Serves(ok=False, reason=f"it serves tables of token vectors, and {spec.name!r} is a network")

    def estimate(self, spec: ModelSpec) -> int:
        """Return the table in float32, and a copy while it is loaded, in bytes."""
        return spec.weights_nbytes * _FACTOR

    def load_model(self, spec: ModelSpec) -> LoadedModel:
        """Load the table; see `Backend.load_model`."""
        try:
            return StaticModel(spec, read_table(spec.folder / spec.weights_file))
        except MemoryError as exc:
            raise TransientBackendError(f"no memory to load model {spec.name!r}: {exc}") from exc

    def load_tokenizer(self, spec: ModelSpec) -> StaticTokenizer:
        """Return the `tokenizer.json` beside the table, which adds no special tokens."""
        path = (spec.folder / spec.weights_file).with_name("tokenizer.json")
        return StaticTokenizer(FolderTokenizer(path, lower_case=spec.lower_case))


class StaticTokenizer:
    """A tokenizer whose texts get no special tokens, and may have no tokens at all."""

    def __init__(self, tokenizer: FolderTokenizer) -> None:
        self._tokenizer = tokenizer

    def texts(self, texts: Sequence[str], max_length: int) -> TokenRows:
        """Return one row per text; see `Tokenizer.texts`. A text without tokens has one of no meaning."""
        ids, cut = [], []
        for text in texts:
            row, was_cut = self._tokenizer.plain(text, max_length)
            ids.append(row or [_EMPTY])
            cut.append(was_cut)
        return TokenRows(ids, [[0] * len(row) for row in ids], np.array(cut, np.bool_), _EMPTY)

    def pairs(self, query: str, texts: Sequence[str], max_length: int) -> TokenRows:  # noqa: ARG002  (the protocol's)
        """Refuse: a table embeds.

        Raises:
            InvalidInput: always.
        """
        raise InvalidInput(f"a table of vectors can't compare a query with {len(texts)} texts: it only embeds")


class StaticModel:
    """A table in memory. Threads may share it."""

    def __init__(self, spec: ModelSpec, table: NDArray[np.float32]) -> None:
        self._spec = spec
        self._table: NDArray[np.float32] | None = table
        self._nbytes = table.nbytes

    @property
    def nbytes(self) -> int:
        """Return the bytes of the table."""
        return self._nbytes

    @property
    def device(self) -> str:
        """Return `cpu:numpy:float32`."""
        return "cpu:numpy:float32"

    def infer(self, batch: TokenBatch) -> NDArray[np.float32]:
        """Return float32[n, dim]: the mean of each row's vectors; see `LoadedModel.infer`."""
        table = self._table
        if table is None:
            raise InferenceError(f"model {self._spec.name!r} is closed")
        known = (batch.attention_mask > 0) & (batch.input_ids != _EMPTY)
        if (batch.input_ids[known] >= len(table)).any():
            raise InferenceError(
                f"model {self._spec.name!r} has {len(table)} vectors, and its tokenizer gave token "
                f"{batch.input_ids[known].max()}: its files don't belong together"
            )
        sums = np.zeros((batch.shape[0], table.shape[1]), np.float32)
        for row, kept in enumerate(known):
            if kept.any():
                sums[row] = table[batch.input_ids[row, kept]].mean(axis=0, dtype=np.float32)
        require_finite(sums, self._spec.name)
        return l2_normalize(sums) if self._spec.normalize else sums

    def close(self) -> None:
        """Drop the table. Closing again is harmless."""
        self._table = None


def is_static(spec: ModelSpec) -> bool:
    """Return whether the spec is of a table of vectors: safetensors that need no pooling."""
    return spec.task == "embed" and spec.pooling == "none" and spec.weights_file.endswith(".safetensors")


def read_table(path: Path) -> NDArray[np.float32]:
    """Return the vector of each token, float32[n, dim].

    Raises:
        InvalidModel: the file is missing or damaged, or holds no such table.
        MissingExtra: safetensors is not installed.
    """
    weights = _weights(path)
    if "embedding.weight" in weights:
        table, known = weights["embedding.weight"], {"embedding.weight"}
    elif "embeddings" in weights:
        table, known = weights["embeddings"], {"embeddings", "mapping", "weights"}
    else:
        found = f"{sorted(weights)[:3]} ({len(weights)} in all)"
        raise InvalidModel(f"{path} has the weights {found}: a table is named embedding.weight or embeddings")
    if table.ndim != 2 or weights.keys() - known:  # noqa: PLR2004  (a matrix)
        raise InvalidModel(
            f"{path} has {sorted(weights.keys() - known) or table.shape}: only a table of vectors is read"
        )
    try:
        made = np.asarray(table if "mapping" not in weights else table[weights["mapping"].astype(np.int64)], np.float32)
        if "weights" in weights:
            made = made * np.asarray(weights["weights"], np.float32)[:, None]
    except (IndexError, ValueError) as exc:
        raise InvalidModel(f"{path}: the table, its mapping and its weights don't fit together: {exc}") from exc
    return np.ascontiguousarray(made)


def width_of(path: Path) -> int | None:
    """Return the numbers of a table's vectors by its header, None if there is no table, or no safetensors package."""
    try:
        from safetensors import SafetensorError, safe_open  # noqa: PLC0415  (heavy: only where a model is read)
    except ImportError:
        return None
    try:
        with safe_open(path, "np") as file:
            name = next((name for name in ("embedding.weight", "embeddings") if name in file.keys()), None)  # noqa: SIM118  (no mapping)
            shape = file.get_slice(name).get_shape() if name else []
    except (OSError, SafetensorError) as exc:
        raise InvalidModel(f"can't read the weights {path}: {exc}") from exc
    return int(shape[1]) if len(shape) == 2 else None  # noqa: PLR2004  (a matrix)


def _weights(path: Path) -> dict[str, NDArray[Any]]:
    try:
        from safetensors import SafetensorError  # noqa: PLC0415  (heavy: only where a model is loaded)
        from safetensors.numpy import load_file  # noqa: PLC0415  (as above)
    except ImportError as exc:
        raise MissingExtra("this model needs the safetensors package: pip install safetensors") from exc
    try:
        return dict(load_file(path))
    except (OSError, SafetensorError, TypeError, KeyError) as exc:
        raise InvalidModel(f"can't read the weights {path}: {exc}") from exc
