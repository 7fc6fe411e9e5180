"""Train a cross-encoder on lists of scored texts, with sentence-transformers' trainer. Imports PyTorch.

Reimers and Gurevych, "Sentence-BERT", EMNLP 2019, wrote the library; the listwise loss is ListNet's: Cao et al.,
"Learning to Rank: From Pairwise Approach to Listwise Approach", ICML 2007.
"""

from __future__ import annotations

import contextlib
import importlib
import logging
import random
import tempfile
import warnings
from typing import TYPE_CHECKING, Any

import numpy as np
import torch
from sentence_transformers.base.evaluation import BaseEvaluator
from sentence_transformers.cross_encoder import CrossEncoder, CrossEncoderTrainer, CrossEncoderTrainingArguments
from sentence_transformers.cross_encoder.evaluation import CrossEncoderRerankingEvaluator
from sentence_transformers.cross_encoder.losses import ListNetLoss
from transformers import EarlyStoppingCallback, PrinterCallback, TrainerCallback
from transformers.utils import logging as transformers_logging

from backends.runtimes.torch_runtime.torch_precision import bfloat16_pays
from rerank.training.soundness import check_scores
from rerank.training.train_plan import Fit, TrainingPlan, TrainingStep

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator, Sequence
    from pathlib import Path

    from numpy.typing import NDArray

    from rerank.training.time_limit import TimeLimit
    from rerank.training.train_plan import ScoredList

# Not by `import`: to whatever reads this file from the repository's root, its folder `datasets` passes for the package.
_datasets: Any = importlib.import_module("datasets")
_PAIRS_AT_ONCE = 16  # of a forward and a backward pass: more fall out of the caches
_CUTOFF = 10  # of the nDCG on the validation lists
_METRIC = f"eval_ndcg@{_CUTOFF}"
_LOOKED_AT = 4  # lists by which it is seen whether the model still tells texts apart


def fit(
    folder: Path,
    made: Path,
    lists: Sequence[ScoredList],
    *,
    validation: Sequence[ScoredList] = (),
    plan: TrainingPlan,
    limit: TimeLimit,
    on_step: Callable[[TrainingStep], object] = lambda _: None,
) -> Fit:
    """Train a folder's cross-encoder on the lists, and write the weights that ranked `validation` best into `made`.

    The folder is in Hugging Face layout and holds safetensors in float32; `made` gets these and config.json. The random
    generators of Python, NumPy and PyTorch are as before when it returns. Without validation lists all epochs are run
    and the last weights taken. `limit` ends it at the next step, with time for a last look at the validation lists.

    Raises:
        InvalidInput: the time is up already.
        InvalidModel: what came out scores all texts alike, or by no numbers.
    """
    with _own_randomness(plan.seed), _quiet(), tempfile.TemporaryDirectory(prefix="training-") as scratch:
        model = CrossEncoder(str(folder), device="cpu", max_length=plan.max_length, local_files_only=True)
        _choose_weights(model, plan)
        check = _Check(validation, limit, enabled=_bfloat16()) if validation else None
        clock = _Clock(limit, check, on_step, lists=plan.lists_per_step)
        trainer = CrossEncoderTrainer(
            model=model,
            args=_arguments(plan, scratch, checked=check is not None),
            train_dataset=_dataset(lists),
            loss=ListNetLoss(model, mini_batch_size=_PAIRS_AT_ONCE),
            evaluator=check,
            callbacks=[clock, *([EarlyStoppingCallback(plan.patience)] if check else [])],
        )
        trainer.remove_callback(PrinterCallback)  # it prints to standard output
        if limit.is_up():
            raise limit.too_short("the training began")
        trainer.train()
        check_scores([_scores(model, each) for each in (*validation, *lists)[:_LOOKED_AT]])
        model.model.save_pretrained(made)
    checks = tuple(float(row[_METRIC]) for row in trainer.state.log_history if _METRIC in row)
    planned = round(trainer.state.max_steps)
    return Fit(trainer.state.global_step, planned, limit.elapsed_s - clock.begun_s, checks, clock.is_late)


def _scores(model: CrossEncoder, each: ScoredList) -> NDArray[np.float32]:
    pairs = [(each.query, text) for text in each.texts]
    return np.asarray(model.predict(pairs, batch_size=_PAIRS_AT_ONCE, activation_fn=torch.nn.Identity()), np.float32)


def _choose_weights(model: CrossEncoder, plan: TrainingPlan) -> None:
    """Freeze the embeddings and the lowest layers, and take out the dropout.

    Attention without dropout runs in one kernel: twice the steps in the same time.
    """
    inner: Any = model.model
    for module in inner.modules():
        if isinstance(module, torch.nn.Dropout):
            module.p = 0.0
    depth = inner.config.num_hidden_layers
    layers = next(each for each in inner.modules() if isinstance(each, torch.nn.ModuleList) and len(each) == depth)
    for module in (inner.get_input_embeddings(), inner.base_model.embeddings, *layers[: plan.frozen_layers]):
        module.requires_grad_(requires_grad=False)


def _arguments(plan: TrainingPlan, scratch: str, *, checked: bool) -> CrossEncoderTrainingArguments:
    checking = {
        "eval_strategy": "steps",
        "save_strategy": "steps",
        "eval_steps": plan.check_share,
        "save_steps": plan.check_share,
        "save_total_limit": 1,
        "save_only_model": True,
        "load_best_model_at_end": True,
        "metric_for_best_model": _METRIC,
        "greater_is_better": True,
    }
    return CrossEncoderTrainingArguments(
        output_dir=scratch,
        num_train_epochs=plan.epochs,
        per_device_train_batch_size=plan.lists_per_step,
        learning_rate=plan.learning_rate,
        warmup_steps=plan.warmup_share,
        seed=plan.seed,
        bf16=_bfloat16(),
        use_cpu=True,
        disable_tqdm=True,
        report_to="none",
        logging_steps=1,
        **(checking if checked else {"eval_strategy": "no", "save_strategy": "no"}),
    )


def _bfloat16() -> bool:
    """Return whether products in bfloat16 are clearly faster here; weights and sums stay in float32."""
    return bfloat16_pays(torch.device("cpu"))


def _dataset(lists: Sequence[ScoredList]) -> Any:  # noqa: ANN401 -- see `_datasets`
    rows = {
        "query": [each.query for each in lists],
        "texts": [list(each.texts) for each in lists],
        "labels": [list(map(float, each.targets)) for each in lists],
    }
    return _datasets.Dataset.from_dict(rows)


class _Check(BaseEvaluator):
    """The nDCG of the validation lists, computed in the precision of the training."""

    def __init__(self, lists: Sequence[ScoredList], limit: TimeLimit, *, enabled: bool) -> None:
        super().__init__()  # type: ignore[no-untyped-call]  # the library's
        self._limit = limit
        self.seconds = 0.0  # of the last look
        self.n_lists = len(lists)
        self._bfloat16 = enabled
        samples: list[dict[str, str | list[str]]] = [
            {
                "query": each.query,
                "positive": [text for text, target in zip(each.texts, each.targets, strict=True) if target > 0],
                "negative": [text for text, target in zip(each.texts, each.targets, strict=True) if target <= 0],
            }
            for each in lists
        ]
        self._inner = CrossEncoderRerankingEvaluator(samples, at_k=_CUTOFF, batch_size=_PAIRS_AT_ONCE, write_csv=False)
        self.primary_metric = self._inner.primary_metric

    def __call__(
        self,
        model: Any,  # noqa: ANN401 -- a cross-encoder, which is more than the library's base class promises
        output_path: str | None = None,
        epoch: int = -1,
        steps: int = -1,
    ) -> dict[str, float]:
        begun_s = self._limit.elapsed_s
        with torch.autocast("cpu", torch.bfloat16, enabled=self._bfloat16):
            found = self._inner(model, output_path, epoch, steps)
        self.seconds = self._limit.elapsed_s - begun_s
        return found


class _Clock(TrainerCallback):
    """Tells how far it is, and ends the training when its time is up, but for a last look at the validation lists.

    Before the first look it is taken to cost as much of each of its lists as a step of each of its own.
    """

    def __init__(
        self, limit: TimeLimit, check: _Check | None, on_step: Callable[[TrainingStep], object], *, lists: int
    ) -> None:
        self._limit = limit
        self._check = check
        self._lists = lists
        self._on_step = on_step
        self.begun_s = self._step_began_s = limit.elapsed_s
        self.is_late = False

    def on_step_begin(self, *_: object, **__: object) -> None:
        """Note the time."""
        self._step_began_s = self._limit.elapsed_s

    def on_step_end(self, args: Any, state: Any, control: Any, **_: Any) -> None:  # noqa: ANN401 -- the library's
        """Count, and stop if it is late; the last weights are looked at as well."""
        now_s = self._limit.elapsed_s
        self.is_late = self._limit.is_up(keeping_s=self._look_s(now_s - self._step_began_s))
        control.should_training_stop |= self.is_late
        if control.should_training_stop and args.load_best_model_at_end:
            control.should_evaluate = control.should_save = True
        self._on_step(TrainingStep(state.global_step, state.max_steps, now_s - self.begun_s, _last(state.log_history)))

    def _look_s(self, step_s: float) -> float:
        if self._check is None:
            return 0.0
        return self._check.seconds or step_s * self._check.n_lists / self._lists


def _last(history: list[dict[str, Any]]) -> float | None:
    return next((float(row[_METRIC]) for row in reversed(history) if _METRIC in row), None)


@contextlib.contextmanager
def _own_randomness(seed: int) -> Iterator[None]:
    """Seed the process's random generators, and leave them as they were."""
    of_python, of_numpy = random.getstate(), np.random.get_state()  # noqa: NPY002 -- what transformers seeds
    try:
        with torch.random.fork_rng(devices=[]):
            torch.manual_seed(seed)
            yield
    finally:
        random.setstate(of_python)
        np.random.set_state(of_numpy)  # noqa: NPY002 -- as above


@contextlib.contextmanager
def _quiet() -> Iterator[None]:
    """Keep the libraries' bars and notes from the terminal; errors are raised."""
    talk: Any = transformers_logging  # its functions carry no types
    loudness = talk.get_verbosity()
    talk.disable_progress_bar()
    talk.set_verbosity_error()
    _datasets.disable_progress_bars()
    library = logging.getLogger("sentence_transformers")
    level = library.level
    library.setLevel(logging.ERROR)
    try:
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")
            yield
    finally:
        library.setLevel(level)
        talk.enable_progress_bar()
        talk.set_verbosity(loudness)
