"""Train a student on what its teacher computes of the same tokens. Imports PyTorch.

It learns the teacher's states at evenly spaced depths (Sun, Cheng, Gan and Liu, "Patient knowledge distillation for
BERT model compression", EMNLP 2019), which say far more of each pair than one logit does, and how far a query's texts
are apart: the mean over all pairs of them of the squared difference of margins (MarginMSE: Hofstätter, Althammer,
Schröder, Sertkan and Hanbury, "Improving efficient neural ranking models with cross-architecture knowledge
distillation", 2020), which is twice the variance of student minus teacher. Since it is to be blended with the scores of
the search before it, it is these two together whose margins are to be the teacher's.
"""

from __future__ import annotations

import math
from contextlib import nullcontext
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import numpy as np
import torch
from transformers.utils import logging

from backends.running.batching import collate
from backends.runtimes.torch_runtime.torch_model import find_device
from backends.runtimes.torch_runtime.torch_precision import bfloat16_pays
from backends.runtimes.torch_runtime.transformers_encoder import TransformersEncoder
from backends.text.tokenizer import FolderTokenizer

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence
    from contextlib import AbstractContextManager
    from pathlib import Path

    from numpy.typing import NDArray

    from backends.text.tokenizer import TokenRows
    from rerank.distilling.distil_queries import Pool
    from rerank.training.time_limit import TimeLimit

LEARNING_RATE = 3e-4
WARM_UP = 0.1  # of all steps
MARGINS_WEIGHT = 0.05  # beside the states, whose error is a share of their variance; margins are of some units
CLIPPED_NORM = 1.0


@dataclass(frozen=True, slots=True)
class Training:
    """What a training did: steps run and planned; there are fewer where its time was up."""

    steps: int
    planned: int


class Student:
    """A student's module in training, and its teacher's; both read `max_length` tokens, query included."""

    def __init__(self, folder: Path, teacher: Path, *, max_length: int) -> None:
        self._folder = folder
        self._max_length = max_length
        self._tokenizer = FolderTokenizer(folder / "tokenizer.json")
        device = find_device()
        self._fast = bfloat16_pays(device)
        like = torch.empty(0, device=device)
        # Plain attention: the gradient of the fused one took nearly half of a step in bfloat16 (profiled once).
        # No dropout: what the teacher computes is no label that could be learned by heart.
        self._module: Any = TransformersEncoder(folder, like=like, classify=True, plain=True).module
        like = like.to(torch.bfloat16) if self._fast else like
        self._teacher: Any = TransformersEncoder(teacher, like=like, classify=True).module
        self._module.base_model.embeddings.requires_grad_(requires_grad=False)  # they are the teacher's
        self._parameters = [p for p in self._module.parameters() if p.requires_grad]
        depth, layers = (int(each.config.num_hidden_layers) for each in (self._teacher, self._module))
        self._copied = [round((at + 1) * depth / layers) for at in range(layers)]  # states[0] are the embeddings

    def score(self, pools: Sequence[Pool]) -> list[NDArray[np.float32]]:
        """Return the student's logits of each query's texts, float32[n]."""
        with torch.inference_mode(), self._precision():
            return [self._run(self._module, self._rows(pool)).logits[:, 0].float().cpu().numpy() for pool in pools]

    def train(
        self,
        pools: Sequence[Pool],
        *,
        offset: float,
        pairs: int,
        seed: int,
        limit: TimeLimit,
        progress: Callable[[int, int], None],
    ) -> Training:
        """Train on about `pairs` of query and text, a query a step.

        The pools are read over and over, each time in another order. What is learned is the teacher's logits less
        `offset` times a pool's scores. By the end of `limit` the learning rate has fallen to 0 as it has after the
        last step; no step is taken after it, and none at all where it is up already. `progress(done, total)` counts
        steps.
        """
        rng = np.random.default_rng(seed)
        steps = -(-pairs // max(len(pool.texts) for pool in pools))
        optimizer = torch.optim.AdamW(self._parameters)
        waiting: list[int] = []
        has_s, step = limit.left_s, 0
        for step in range(1, steps + 1):
            if limit.is_up():
                return Training(step - 1, steps)
            done = max((step - 1) / steps, 1 - limit.left_s / has_s if math.isfinite(has_s) else 0.0)
            waiting = waiting or rng.permutation(len(pools)).tolist()
            for group in optimizer.param_groups:
                group["lr"] = LEARNING_RATE * _rate(done, 1 / steps)
            self._step(pools[waiting.pop()], optimizer, offset)
            progress(step, steps)
        return Training(step, steps)

    def save(self) -> None:
        """Write the weights into the student's folder."""
        talk: Any = logging  # its functions carry no types
        talk.disable_progress_bar()  # it would draw across the caller's own
        try:
            self._module.save_pretrained(self._folder)
        finally:
            talk.enable_progress_bar()

    def _step(self, pool: Pool, optimizer: torch.optim.Optimizer, offset: float) -> None:
        rows = self._rows(pool)
        with torch.inference_mode():
            told = self._run(self._teacher, rows, output_hidden_states=True)
        with self._precision():
            ours = self._run(self._module, rows, output_hidden_states=True)
        first = torch.from_numpy(pool.scores).to(ours.logits.device)
        # What inference mode made can't be kept for a gradient; a copy can.
        margins = margin_error(ours.logits[:, 0].float() + offset * first, told.logits[:, 0].float().clone())
        real = torch.from_numpy(np.arange(told.hidden_states[0].shape[1]) < rows.lengths[:, None])
        real = real.to(margins.device)
        states = torch.stack(
            [
                state_error(student[real], told.hidden_states[at][real].clone())
                for student, at in zip(ours.hidden_states[1:], self._copied, strict=True)
            ]
        ).mean()
        (states + MARGINS_WEIGHT * margins).backward()  # type: ignore[no-untyped-call]  # PyTorch types it not
        torch.nn.utils.clip_grad_norm_(self._parameters, CLIPPED_NORM)
        optimizer.step()
        optimizer.zero_grad(set_to_none=True)

    def _run(self, module: Any, rows: TokenRows, **options: Any) -> Any:  # noqa: ANN401  (transformers' module and answer)
        batch = collate(rows, np.arange(len(rows.input_ids)))
        given = {name: torch.from_numpy(getattr(batch, name)).to(module.device) for name in self._takes(module)}
        return module(**given, **options)

    def _takes(self, module: Any) -> list[str]:  # noqa: ANN401  (as above)
        has_types = getattr(module.config, "type_vocab_size", 0) > 0
        return ["input_ids", "attention_mask", *(["token_type_ids"] if has_types else [])]

    def _rows(self, pool: Pool) -> TokenRows:
        return self._tokenizer.pairs(pool.query, pool.texts, self._max_length)

    def _precision(self) -> AbstractContextManager[object]:
        """Return what products are computed in: bfloat16 where that is faster, over weights in float32."""
        return torch.autocast(self._module.device.type, torch.bfloat16) if self._fast else nullcontext()


def margin_error(student: torch.Tensor, teacher: torch.Tensor) -> torch.Tensor:
    """Return the mean over all pairs of texts of the squared difference of margins, of logits float32[n] each."""
    return 2.0 * torch.var(student - teacher, correction=0)


def state_error(student: torch.Tensor, teacher: torch.Tensor) -> torch.Tensor:
    """Return the squared error of states [n, dim], as a share of the teacher's variance."""
    return torch.nn.functional.mse_loss(student.float(), teacher.float()) / teacher.float().var()


def _rate(done: float, least: float) -> float:
    """Return the share of the learning rate, rising to 1, then falling to 0, in straight lines; `least` at first."""
    return max(least, done / WARM_UP) if done < WARM_UP else max(0.0, 1 - done) / (1 - WARM_UP)
