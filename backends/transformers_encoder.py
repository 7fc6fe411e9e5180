"""Any other architecture: transformers' own module, as token ids to token vectors or logits."""

from __future__ import annotations

import inspect
import warnings
from typing import TYPE_CHECKING, Any

import torch
from transformers import AutoModel, AutoModelForSequenceClassification
from transformers.utils import logging

from backends.errors import InvalidModel

if TYPE_CHECKING:
    from pathlib import Path

    from torch import Tensor


class TransformersEncoder:
    """Run the module that transformers has for a folder; code in the folder is never run, and pickles never read.

    `plain` attention is slower, and can be exported.

    Raises:
        InvalidModel: transformers can't load it, or the file lacks weights that would be left at random values.
    """

    def __init__(self, folder: Path, *, like: Tensor, classify: bool, plain: bool = False) -> None:
        kind = AutoModelForSequenceClassification if classify else AutoModel
        talk: Any = logging  # its functions carry no types
        loudness = talk.get_verbosity()
        talk.disable_progress_bar()  # it would draw on the terminal of whoever searches
        talk.set_verbosity_error()  # what is missing is reported below
        try:
            module, found = kind.from_pretrained(
                str(folder),
                dtype=like.dtype,
                local_files_only=True,
                trust_remote_code=False,
                use_safetensors=True,
                output_loading_info=True,
                **({"attn_implementation": "eager"} if plain else {}),
            )
        except (OSError, ValueError, RuntimeError, ImportError, KeyError) as exc:
            raise InvalidModel(f"transformers can't load {folder}: {exc}") from exc
        finally:
            talk.enable_progress_bar()
            talk.set_verbosity(loudness)
        # An embedder's pooler is often not stored, and never read here.
        random = sorted(name for name in found["missing_keys"] if classify or "pooler" not in name)
        if random:
            raise InvalidModel(f"{folder} lacks the weights {random[:3]} of its architecture ({len(random)} in all)")
        self.module: Any = module.eval().to(like.device)  # public, so that it can be trained
        self.vocabulary = int(module.config.vocab_size)
        self._typed = "token_type_ids" in inspect.signature(module.forward).parameters
        self._classify = classify
        self.nbytes = sum(tensor.nbytes for tensor in (*module.parameters(), *module.buffers()))

    def __call__(self, ids: Tensor, mask: Tensor | None, types: Tensor) -> Tensor:
        """Return [n, length, dim], or logits [n]; ids int64[n, length], mask bool or None."""
        seen = torch.ones_like(ids) if mask is None else mask.long()
        answer = self.module(input_ids=ids, attention_mask=seen, **({"token_type_ids": types} if self._typed else {}))
        made: Tensor = answer.logits if self._classify else answer.last_hidden_state
        return made.flatten() if self._classify else made

    def to_onnx(self, path: Path, *, opset: int) -> None:
        """Write the module as an ONNX graph with free batch size and length.

        Raises:
            InvalidModel: PyTorch can't express it.
        """
        names = ["input_ids", "attention_mask", *(["token_type_ids"] if self._typed else [])]
        output = "logits" if self._classify else "last_hidden_state"
        free = {name: {0: "n", 1: "length"} for name in names} | {
            output: {0: "n"} if self._classify else {0: "n", 1: "length"}
        }
        ids = torch.ones(2, 16, dtype=torch.long)
        mask = ids * (torch.arange(16) < torch.tensor([[16], [9]]))
        usual = self.module.forward

        def forward(*given: Tensor) -> Tensor:
            made: Tensor = getattr(usual(**dict(zip(names, given, strict=True))), output)
            return made

        # On the module itself: a module around it would put its own name before that of each weight.
        self.module.forward = forward
        try:
            with warnings.catch_warnings():
                warnings.simplefilter("ignore")  # the exporter is the older one, and says so; parity is checked
                torch.onnx.export(
                    self.module,
                    (ids, mask, 0 * ids)[: len(names)],
                    str(path),
                    dynamo=False,
                    opset_version=opset,
                    input_names=names,
                    output_names=[output],
                    dynamic_axes=free,
                )
        except (RuntimeError, ValueError, TypeError, ImportError) as exc:
            raise InvalidModel(f"PyTorch can't express {path.parent.name} as an ONNX graph: {exc}") from exc
        finally:
            del self.module.forward
