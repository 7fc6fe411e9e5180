"""Any other architecture: transformers' own module, as token ids to token vectors or logits."""

from __future__ import annotations

import inspect
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

    Raises:
        InvalidModel: transformers can't load it, or the file lacks weights that would be left at random values.
    """

    def __init__(self, folder: Path, *, like: Tensor, classify: bool) -> None:
        kind = AutoModelForSequenceClassification if classify else AutoModel
        bars: Any = logging  # its functions carry no types
        bars.disable_progress_bar()  # it would draw on the terminal of whoever searches
        try:
            module, found = kind.from_pretrained(
                str(folder),
                dtype=like.dtype,
                local_files_only=True,
                trust_remote_code=False,
                use_safetensors=True,
                output_loading_info=True,
            )
        except (OSError, ValueError, RuntimeError, ImportError, KeyError) as exc:
            raise InvalidModel(f"transformers can't load {folder}: {exc}") from exc
        finally:
            bars.enable_progress_bar()
        # An embedder's pooler is often not stored, and never read here.
        random = sorted(name for name in found["missing_keys"] if classify or "pooler" not in name)
        if random:
            raise InvalidModel(f"{folder} lacks the weights {random[:3]} of its architecture ({len(random)} in all)")
        self._module: Any = module.eval().to(like.device)
        self._typed = "token_type_ids" in inspect.signature(module.forward).parameters
        self._classify = classify
        self.nbytes = sum(tensor.nbytes for tensor in (*module.parameters(), *module.buffers()))

    def __call__(self, ids: Tensor, mask: Tensor | None, types: Tensor) -> Tensor:
        """Return [n, length, dim], or logits [n]; ids int64[n, length], mask bool or None."""
        seen = torch.ones_like(ids) if mask is None else mask.long()
        answer = self._module(input_ids=ids, attention_mask=seen, **({"token_type_ids": types} if self._typed else {}))
        made: Tensor = answer.logits if self._classify else answer.last_hidden_state
        return made.flatten() if self._classify else made
