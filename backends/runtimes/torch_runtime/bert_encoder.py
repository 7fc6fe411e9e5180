"""BERT and RoBERTa written out for PyTorch: few fused operators, over weights laid out as oneDNN multiplies fastest.

transformers' own module runs the same products; what it adds (a mask per layer, three products for q, k and v, sums and
GELU as passes of their own) is a fifth of its time in bfloat16 on a processor with matrix units (README.md).
"""

from __future__ import annotations

import functools
from typing import TYPE_CHECKING, Any, NamedTuple

import torch
import torch.nn.functional as F  # noqa: N812  (its name everywhere)

from backends.errors import InvalidModel
from backends.folders.architectures import OFFSET_POSITIONS, padding_of, unread

if TYPE_CHECKING:
    from collections.abc import Mapping

    from torch import Tensor

_FIRST = "embeddings.word_embeddings.weight"


class BertEncoder:
    """Token ids to token vectors, or to logits where the weights hold a classifier.

    With `first_only`, the last layer computes the first token alone: all that a classifier or CLS pooling reads.

    Raises:
        InvalidModel: a weight is missing that config.json's architecture has, or is there that it hasn't, or one is of
            another size than it says.
    """

    pad_id = None
    sees_padding = False

    def __init__(
        self,
        config: Mapping[str, Any],
        weights: Mapping[str, Tensor],
        *,
        like: Tensor,
        classify: bool,
        first_only: bool,
    ) -> None:
        self.first_only = first_only or classify
        self._heads = int(config["num_attention_heads"])
        self._epsilon = float(config.get("layer_norm_eps", 1e-12))
        self._offset_by = padding_of(config)
        if self._offset_by is None and config["model_type"] in OFFSET_POSITIONS:
            raise InvalidModel(
                "config.json gives no pad_token_id, which positions are counted from in its architecture"
            )
        take = _Taken(weights, like)
        kinds = ("word", "position", "token_type")
        self._words, self._positions, self._types = (
            take.table(f"embeddings.{kind}_embeddings.weight") for kind in kinds
        )
        self._norm = take.norm("embeddings.LayerNorm")
        self._layers = [_Layer.read(take, f"encoder.layer.{i}") for i in range(int(config["num_hidden_layers"]))]
        self._head = take.head() if classify else None
        take.check_rest(classify=classify)
        self._check_sizes(config)
        self.vocabulary, self.type_vocabulary = len(self._words), len(self._types)
        self.nbytes = take.nbytes

    def __call__(self, ids: Tensor, mask: Tensor | None, types: Tensor) -> Tensor:
        """Return [n, length, dim], [n, 1, dim] with `first_only`, or logits [n]; see `torch_model.Encoder`."""
        x = F.embedding(ids, self._words) + F.embedding(self._position_ids(ids), self._positions)
        x += F.embedding(types, self._types)
        x = F.layer_norm(x, x.shape[-1:], *self._norm, self._epsilon)
        bias = None
        if mask is not None:
            bias = torch.zeros(mask.shape, dtype=x.dtype, device=x.device).masked_fill_(~mask, torch.finfo(x.dtype).min)
            bias = bias[:, None, None, :]
        for layer in self._layers:
            rows = 1 if self.first_only and layer is self._layers[-1] else x.shape[1]
            x = layer(x, bias, heads=self._heads, rows=rows, epsilon=self._epsilon)
        if self._head is None:
            return x
        dense, out = self._head
        logits: Tensor = F.linear(torch.tanh(F.linear(x[:, 0].float(), *dense)), *out)
        return logits[:, 0]

    def _check_sizes(self, config: Mapping[str, Any]) -> None:
        """Compare the weights with what config.json says of their sizes, as far as it does."""
        found = {
            "vocab_size": len(self._words),
            "max_position_embeddings": len(self._positions),
            "type_vocab_size": len(self._types),
            "hidden_size": self._words.shape[1],
        }
        differing = {key: (config[key], size) for key, size in found.items() if config.get(key, size) != size}
        if differing:
            raise InvalidModel(
                "; ".join(
                    f"config.json says {key} {said}, the weights have {size}" for key, (said, size) in differing.items()
                )
            )

    def _position_ids(self, ids: Tensor) -> Tensor:
        if self._offset_by is None:
            return torch.arange(ids.shape[1], device=ids.device)
        real = ids != self._offset_by
        positions: Tensor = real.cumsum(1) * real + self._offset_by
        return positions


class _Layer(NamedTuple):
    """One layer: attention and feed-forward, each with its sum and norm."""

    qkv: _Linear
    attended: _Linear
    attended_norm: tuple[Tensor, Tensor]
    up: _Linear
    down: _Linear
    norm: tuple[Tensor, Tensor]

    @classmethod
    def read(cls, take: _Taken, name: str) -> _Layer:
        return cls(
            qkv=take.linear(*(f"{name}.attention.self.{part}" for part in ("query", "key", "value"))),
            attended=take.linear(f"{name}.attention.output.dense"),
            attended_norm=take.norm(f"{name}.attention.output.LayerNorm"),
            up=take.linear(f"{name}.intermediate.dense"),
            down=take.linear(f"{name}.output.dense"),
            norm=take.norm(f"{name}.output.LayerNorm"),
        )

    def __call__(self, x: Tensor, bias: Tensor | None, *, heads: int, rows: int, epsilon: float) -> Tensor:
        """Return the layer's output for the first `rows` tokens."""
        n, length, dim = x.shape
        q, k, v = self.qkv(x).view(n, length, 3, heads, dim // heads).permute(2, 0, 3, 1, 4)
        a = F.scaled_dot_product_attention(q[:, :, :rows], k, v, attn_mask=bias)
        a = a.transpose(1, 2).reshape(n, rows, dim)
        x = F.layer_norm(self.attended.plus(a, x[:, :rows].contiguous()), (dim,), *self.attended_norm, epsilon)
        return F.layer_norm(self.down.plus(self.up.gelu(x), x), (dim,), *self.norm, epsilon)


class _Linear:
    """x·Wᵀ + b by PyTorch's public operators."""

    def __init__(self, weight: Tensor, bias: Tensor) -> None:
        self._weight, self._bias = weight, bias

    def __call__(self, x: Tensor) -> Tensor:
        return F.linear(x, self._weight, self._bias)

    def gelu(self, x: Tensor) -> Tensor:
        return F.gelu(self(x))

    def plus(self, x: Tensor, other: Tensor) -> Tensor:
        return self(x).add_(other)


class _PackedLinear(_Linear):
    """The same by oneDNN over a weight packed once, with GELU and sums done while the product is in the cache."""

    def __init__(self, weight: Tensor, bias: Tensor) -> None:
        super().__init__(_onednn("_reorder_linear_weight")(weight), bias)

    def __call__(self, x: Tensor) -> Tensor:
        return self._product(x, "none", "")

    def gelu(self, x: Tensor) -> Tensor:
        return self._product(x, "gelu", "none")

    def plus(self, x: Tensor, other: Tensor) -> Tensor:
        made: Tensor = _onednn("_linear_pointwise").binary(x, other, self._weight, self._bias, "add")
        return made

    def _product(self, x: Tensor, then: str, algorithm: str) -> Tensor:
        made: Tensor = _onednn("_linear_pointwise")(x, self._weight, self._bias, then, [], algorithm)
        return made


@functools.cache
def _onednn(name: str) -> Any:  # noqa: ANN401  (an operator, of which PyTorch knows no type)
    return getattr(torch.ops.mkldnn, name)


@functools.cache
def _packs(dtype: torch.dtype) -> bool:
    """Return whether this build has oneDNN's packed operators, which aren't public, and they compute as expected."""
    weight, bias = torch.linspace(-1, 1, 64 * 32).view(64, 32).to(dtype), torch.linspace(-1, 1, 64).to(dtype)
    x, other = torch.linspace(-1, 1, 4 * 32).view(4, 32).to(dtype), torch.ones(4, 64, dtype=dtype)
    plain = _Linear(weight, bias)
    try:
        packed = _PackedLinear(weight, bias)
        pairs = [(packed.gelu(x), plain.gelu(x)), (packed.plus(x, other), plain.plus(x, other))]
    except (AttributeError, RuntimeError):  # another version of PyTorch, or a build without oneDNN
        return False
    return all(torch.allclose(ours, theirs, rtol=0.02, atol=0.02) for ours, theirs in pairs)


class _Taken:
    """Reads weights by name, in the type and on the device of `like`, and counts their bytes."""

    def __init__(self, weights: Mapping[str, Tensor], like: Tensor) -> None:
        self._weights = weights
        self._like = like
        self._linear = _PackedLinear if like.device.type == "cpu" and _packs(like.dtype) else _Linear
        # A classifier's file has the encoder's weights under the family's name.
        self._prefix = next((p for p in ("", "bert.", "roberta.") if f"{p}{_FIRST}" in weights), "")
        self._read: set[str] = set()
        self.nbytes = 0

    def check_rest(self, *, classify: bool) -> None:
        """Raise `InvalidModel` if weights that the encoder must read were not read."""
        rest = (name.removeprefix(self._prefix) for name in self._weights.keys() - self._read)
        if unused := unread(rest, classify=classify):
            raise InvalidModel(
                f"the weights {unused[:3]} ({len(unused)} in all) are not used by the architecture of config.json: "
                "they belong to another model than it describes"
            )

    def table(self, name: str) -> Tensor:
        return self._take(f"{self._prefix}{name}")

    def norm(self, name: str) -> tuple[Tensor, Tensor]:
        # Checkpoints older than PyTorch 1.0 have gamma and beta.
        old = f"{self._prefix}{name}.gamma" in self._weights
        scale, shift = ("gamma", "beta") if old else ("weight", "bias")
        return self.table(f"{name}.{scale}"), self.table(f"{name}.{shift}")

    def linear(self, *names: str) -> _Linear:
        """Return one product for several layers of the same input."""
        parts = [[self.table(f"{name}.{kind}") for name in names] for kind in ("weight", "bias")]
        weight, bias = (torch.cat(part) if len(part) > 1 else part[0] for part in parts)
        return self._linear(weight, bias)

    def head(self) -> tuple[tuple[Tensor, Tensor], tuple[Tensor, Tensor]]:
        """Return the classifier's two layers, in float32: BERT's pooler and classifier, or RoBERTa's own."""
        own = "classifier.dense.weight" in self._weights
        names = ("classifier.dense", "classifier.out_proj") if own else (f"{self._prefix}pooler.dense", "classifier")
        first, second = ((self._exact(f"{name}.weight"), self._exact(f"{name}.bias")) for name in names)
        return first, second

    def _exact(self, name: str) -> Tensor:
        return self._take(name, torch.float32)

    def _take(self, name: str, dtype: torch.dtype | None = None) -> Tensor:
        if name not in self._weights:
            raise InvalidModel(f"the weights hold no tensor {name!r}, which config.json's architecture has")
        self._read.add(name)
        # A copy, not a view of the mapped file: a file that shrinks below a map ends the process.
        made = self._weights[name].to(self._like.device, dtype or self._like.dtype, copy=True)
        self.nbytes += made.nbytes
        return made
