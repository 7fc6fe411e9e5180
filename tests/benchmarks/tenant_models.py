"""A reranker for each of many tenants: two layers of the public default one, each with weights of its own.

`make(folder, count)` writes what is not there yet: `base`, a portable export of the truncated model, and from it
`tenant-00`, `tenant-01`, … as if each had been fine-tuned: every matrix of its layers differs a little from the base's.
`true_scores(folder, …)` is what such a model answers, by ONNX Runtime and the tokenizer alone.
"""

from __future__ import annotations

import json
import shutil
import tempfile
from pathlib import Path
from typing import TYPE_CHECKING

import numpy as np

from backends.catalogue import catalogue
from backends.catalogue.dequantized import float_model, named_weights
from backends.catalogue.entries import DEFAULT_RERANKER
from backends.catalogue.export import export
from backends.folders.folder import read_folder
from backends.graph import graph

if TYPE_CHECKING:
    from collections.abc import Sequence

    from numpy.typing import NDArray

LAYERS = 2
DRIFT = 0.05  # standard deviations of each matrix


def make(folder: Path, count: int) -> list[Path]:
    """Return the folders of this many tenants' models, made if need be; each appears whole or not at all."""
    folder.mkdir(parents=True, exist_ok=True)
    base = folder / "base"
    if not base.exists():
        with tempfile.TemporaryDirectory(dir=folder) as scratch:
            export(read_folder(_truncated(Path(scratch))), base, form="onnx")
    tenants = [folder / f"tenant-{number:02}" for number in range(count)]
    for number, tenant in enumerate(tenants):
        if not tenant.exists():
            unfinished = tenant.with_suffix(".unfinished")
            shutil.rmtree(unfinished, ignore_errors=True)
            shutil.copytree(base, unfinished, ignore=shutil.ignore_patterns("*.safetensors", "*.onnx"))
            _write_drifted(base / "model.onnx", unfinished / "model.onnx", seed=number)
            unfinished.rename(tenant)
    return tenants


def true_scores(folder: Path, queries: Sequence[str], texts: Sequence[str]) -> NDArray[np.float32]:
    """Return the model's logits for each query and text, float32[queries, texts]."""
    import onnxruntime  # noqa: PLC0415 - heavy
    from tokenizers import Tokenizer  # noqa: PLC0415 - as above

    session = onnxruntime.InferenceSession(str(folder / "model.onnx"), providers=["CPUExecutionProvider"])
    tokenizer = Tokenizer.from_file(str(folder / "tokenizer.json"))
    tokenizer.enable_padding()
    rows = tokenizer.encode_batch([(query, text) for query in queries for text in texts])
    feeds = {
        "input_ids": np.array([row.ids for row in rows]),
        "attention_mask": np.array([row.attention_mask for row in rows]),
        "token_type_ids": np.array([row.type_ids for row in rows]),
    }
    logits: NDArray[np.float32] = session.run(None, feeds)[0].reshape(len(queries), len(texts))
    return logits


def _truncated(scratch: Path) -> Path:
    """Write the first layers of the public model as safetensors."""
    from safetensors.numpy import save_file  # noqa: PLC0415 - heavy

    whole, made = catalogue.pull(DEFAULT_RERANKER), scratch / "truncated"
    shutil.copytree(whole.folder, made, ignore=shutil.ignore_patterns("*.onnx"))
    floats = scratch / "float.onnx"
    floats.write_bytes(float_model(whole.folder / whole.weights_file).SerializeToString())
    weights = dict(named_weights(graph.load(floats)))
    dropped = tuple(f".layer.{layer}." for layer in range(LAYERS, 100))
    kept = {name: array for name, array in weights.items() if not any(part in name for part in dropped)}
    save_file(kept, made / "model.safetensors", metadata={"format": "pt"})
    config = json.loads((made / "config.json").read_text(encoding="utf-8")) | {"num_hidden_layers": LAYERS}
    (made / "config.json").write_text(json.dumps(config), encoding="utf-8")
    return made


def _write_drifted(base: Path, path: Path, *, seed: int) -> None:
    """Write the graph with each matrix moved at random; tables of words and positions stay."""
    import onnx  # noqa: PLC0415 - heavy

    rng = np.random.default_rng(seed)
    model = onnx.load(str(base))
    products = {name for node in model.graph.node if node.op_type in ("MatMul", "Gemm") for name in node.input}
    for tensor in model.graph.initializer:
        if tensor.name in products and len(tensor.dims) == 2:
            matrix = onnx.numpy_helper.to_array(tensor)
            moved = matrix + rng.normal(scale=DRIFT * matrix.std(), size=matrix.shape).astype(np.float32)
            tensor.CopyFrom(onnx.numpy_helper.from_array(moved, tensor.name))
    onnx.save(model, str(path))
