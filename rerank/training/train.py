"""Train a cross-encoder on judged lists, and write it as a folder that every backend serves.

The folder is in Hugging Face layout with float32 weights, and holds the portable ONNX graph that was made of them and
compared with them.
"""

from __future__ import annotations

import importlib
import json
import shutil
import tempfile
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

from backends.catalogue import catalogue
from backends.catalogue.export import SAFETENSORS, export
from backends.errors import InvalidInput, MissingExtra
from backends.folders.folder import read_folder
from rerank.training.time_limit import TimeLimit
from rerank.training.train_plan import TrainingPlan

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence
    from types import ModuleType

    from backends.base import ModelSpec
    from rerank.training.train_plan import Fit, ScoredList, TrainingStep

DEFAULT_PLAN = TrainingPlan()


@dataclass(frozen=True, slots=True)
class Trained:
    """A trained cross-encoder: its folder's spec, the base it started from, and how far graph and weights differ."""

    spec: ModelSpec
    base: str
    fit: Fit
    max_difference: float


def train(
    base: ModelSpec,
    lists: Sequence[ScoredList],
    folder: Path,
    *,
    validation: Sequence[ScoredList] = (),
    plan: TrainingPlan = DEFAULT_PLAN,
    limit: TimeLimit | None = None,
    on_step: Callable[[TrainingStep], object] = lambda _: None,
) -> Trained:
    """Train `base` on the lists and write it into `folder`, which must not be there yet.

    It then reads as many tokens as the plan trains on, and no more. The same lists, plan and seed give the same weights
    on one machine with one number of threads, unless the plan's `minutes` end it. A base that is only a graph, of 8
    bits too, is turned into float32 weights first.

    Args:
        base: a cross-encoder; its own files stay as they are.
        lists: what to learn, in any order.
        folder: put in place as a whole once the graph agrees with the weights.
        validation: lists that are ranked now and then: training ends when that gets no better, and the weights that
            ranked them best are taken.
        plan: how to train.
        limit: by when it is to be written; the plan's minutes if it isn't given.
        on_step: called after each step.

    Raises:
        InvalidInput: the folder is there, there are no lists, the base is no cross-encoder, or the time was up before
            the first step.
        InvalidModel: the base can't be trained, the training has ruined it, or graph and weights differ.
        MissingExtra: what trains is not installed.
    """
    folder = folder.expanduser().absolute()
    if folder.exists():
        raise InvalidInput(f"{folder} is already there: give another folder, or remove it")
    if base.task != "cross-encode":
        raise InvalidInput(f"model {base.name!r} is for {base.task!r}: a reranker is trained from a cross-encoder")
    if not lists:
        raise InvalidInput("there are no lists to learn from: give queries with documents that answer them")
    loop = load_trainer()
    limit = limit or TimeLimit.starting(plan.minutes)
    with tempfile.TemporaryDirectory(prefix="train-") as scratch:
        begun_s = limit.elapsed_s
        floats = with_floats(base, Path(scratch))
        made = Path(scratch) / "trained"
        shutil.copytree(floats.folder, made, ignore=shutil.ignore_patterns("*.onnx", "onnx", SAFETENSORS, ".*"))
        left = limit.keeping(limit.elapsed_s - begun_s)  # what writing the model will take, roughly
        ended = loop.fit(floats.folder, made, lists, validation=validation, plan=plan, limit=left, on_step=on_step)
        read_no_further(made, min(plan.max_length, base.max_length))
        written = export(read_folder(made), folder, form="onnx")
    return Trained(written.spec, base.name, ended, written.max_difference)


def read_no_further(folder: Path, max_length: int) -> None:
    """State what the model was trained on as the longest that it reads: longer input was never learned (README).

    In both files, as this project reads the one for cross-encoders, and sentence-transformers the other. A settings
    file that wasn't there says too that texts are cut as `tokenizer.json` has it, as they were without it.
    """
    _state(folder / "sentence_bert_config.json", {"max_seq_length": max_length}, {})
    _state(
        folder / "tokenizer_config.json",
        {"model_max_length": max_length},
        {"tokenizer_class": "PreTrainedTokenizerFast"},
    )


def _state(file: Path, settings: dict[str, Any], new: dict[str, Any]) -> None:
    stated = json.loads(file.read_text(encoding="utf-8")) if file.is_file() else new
    file.write_text(json.dumps(stated | settings, indent=2) + "\n", encoding="utf-8")


def with_floats(base: ModelSpec, scratch: Path) -> ModelSpec:
    """Return the model with weights that can be trained; what is only a graph is exported into `scratch`.

    Raises:
        InvalidModel: the graph's weights can't be told apart.
        MissingExtra: PyTorch is not installed.
    """
    catalogue.ensure(base)
    if (base.folder / SAFETENSORS).is_file():
        return base
    return export(base, scratch / "base", form="safetensors").spec


def load_trainer() -> ModuleType:
    """Return what trains, so that a long run can fail before it starts.

    Raises:
        MissingExtra: it is not installed.
    """
    try:
        from rerank.training import train_loop  # noqa: PLC0415  (heavy: imports PyTorch)

        importlib.import_module("accelerate")  # which transformers asks for when the training starts
    except ImportError as exc:
        raise MissingExtra("training a reranker needs more: pip install 'vectorsearch[train]'") from exc
    return train_loop
