"""An 8-bit ONNX graph in PyTorch: its weights as floats, in an encoder that counts only once it agrees with the graph.

Which weight is which follows from the graph, and what is computed from config.json; if both fit, a few rows of tokens
get the answers that NumPy gives for the graph itself.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np
import torch

from backends.base import TokenBatch
from backends.catalogue.dequantized import float_graph, named_weights
from backends.errors import InvalidModel
from backends.graph.fusing.fuse import fuse
from backends.graph.reading import signature
from backends.graph.rewriting.specialise import specialise
from backends.running.fingerprint import AGREEMENT, agreement
from backends.runtimes.numpy_runtime.numpy_program import Execution, Weights

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping

    from numpy.typing import NDArray

    from backends.base import ModelSpec
    from backends.graph.graph import Graph
    from backends.runtimes.torch_runtime.bert_encoder import BertEncoder

_LENGTH = 16


def encoder_of(
    spec: ModelSpec, make: Callable[[Mapping[str, torch.Tensor]], BertEncoder], device: torch.device
) -> BertEncoder:
    """Return the encoder that `make` makes of the graph's weights.

    Raises:
        InvalidModel: the graph's weights can't be told apart, or the encoder computes something else.
    """
    floats = float_graph(spec.folder / spec.weights_file)
    weights = named_weights(floats)
    encoder = make({name: torch.from_numpy(array) for name, array in weights.items()})
    probe = _probe(spec, encoder)
    ids, mask, types = (torch.from_numpy(getattr(probe, name)).to(device) for name in signature.FED)
    with torch.inference_mode():
        ours = encoder(ids, mask.bool(), types).float().cpu().numpy()
    theirs = _computed(spec, floats, probe)
    if ours.ndim > 1:  # real tokens count; where the encoder gives the first ones only, those
        real = probe.attention_mask[:, : ours.shape[1]] > 0
        ours, theirs = ours[real], theirs[:, : ours.shape[1]][real]
    found = agreement(ours, theirs.reshape(ours.shape))
    if not found >= AGREEMENT:
        raise InvalidModel(
            f"{spec.folder}: what config.json describes is not what {spec.weights_file} computes "
            f"(cosine {found:.4f}, {AGREEMENT:g} is needed): use another backend, such as onnx"
        )
    return encoder


def _probe(spec: ModelSpec, encoder: BertEncoder) -> TokenBatch:
    """Return rows of any tokens: a full one, a padded one, and one token."""
    length = min(_LENGTH, spec.max_length)
    mask = (np.arange(length) < np.array([[length], [length // 2], [1]])).astype(np.int64)
    ids = np.random.default_rng(0).integers(0, encoder.vocabulary, mask.shape) * mask
    has_types = spec.task == "cross-encode" and encoder.type_vocabulary > 1
    types = (np.arange(length) >= length // 4) * mask if has_types else 0 * mask
    return TokenBatch(ids, mask, types)


def _computed(spec: ModelSpec, floats: Graph, probe: TokenBatch) -> NDArray[np.float32]:
    """Return what the graph gives, in NumPy."""
    chosen = signature.choose_output(floats.outputs, task=spec.task, pooling=spec.pooling, model=spec.name)
    rows, length = probe.shape
    program = fuse(specialise(floats, rows=rows, length=length, output=chosen.name))
    feeds = {name: getattr(probe, name) for name in signature.FED}
    return np.asarray(Execution(program, Weights(quantised=False)).run(feeds), np.float32)
