"""Any other architecture: transformers' own module, as token ids to token vectors or logits."""

from __future__ import annotations

import inspect
import warnings
from contextlib import contextmanager
from typing import TYPE_CHECKING, Any

import torch
import transformers
from safetensors import SafetensorError
from transformers import masking_utils
from transformers.utils import logging

from backends.errors import InvalidModel
from backends.folders.architectures import ENCODERS, depends_on_length, unread
from backends.runtimes.torch_runtime.torch_memory import is_out_of_memory
from backends.text.tokenizer_settings import TokenizerSettings

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping
    from pathlib import Path

    from torch import Tensor

_PROBE = (5, 11)  # tokens of two rows, tried alone and beside each other
_PADDED = 16
# How far padding may move an answer: 1 - cosine of a token's vector, a logit relative to its size or to 1.
_NEUTRAL = {torch.float32: (1e-5, 1e-4), torch.bfloat16: (2e-3, 5e-2)}


class TransformersEncoder:
    """Run the module that transformers has for a folder; code in the folder is never run, and pickles never read.

    `plain` attention is slower, and can be exported. `longest` is how many tokens it may be tried with.

    Raises:
        InvalidModel: transformers can't load or run it, the file lacks weights that would be left at random values, or
            has weights that the architecture doesn't use.
    """

    def __init__(self, folder: Path, *, like: Tensor, classify: bool, plain: bool = False, longest: int = 512) -> None:
        module, found = _load(folder, like=like, classify=classify, plain=plain)
        # An embedder's pooler is often not stored, and never read here.
        random = sorted(name for name in found["missing_keys"] if classify or "pooler" not in name)
        if random:
            raise InvalidModel(f"{folder} lacks the weights {random[:3]} of its architecture ({len(random)} in all)")
        unused = unread(found["unexpected_keys"], classify=classify)
        if unused:
            raise InvalidModel(
                f"{folder} has the weights {unused[:3]} ({len(unused)} in all), which the architecture of its "
                "config.json doesn't use: they belong to another model than it describes"
            )
        self.module: Any = module.eval().to(like.device)  # public, so that it can be trained
        config = module.config.get_text_config()
        self.vocabulary = _vocabulary(module, config)
        self.pad_id: int | None = getattr(config, "pad_token_id", None)
        self.type_vocabulary = int(getattr(config, "type_vocab_size", 0) or 0)
        parameters = inspect.signature(module.forward).parameters
        self._takes = {name for name in ("attention_mask", "token_type_ids") if name in parameters}
        self._has_types = "token_type_ids" in self._takes
        if not TokenizerSettings.read(folder).has_types:
            self._takes.discard("token_type_ids")
        self._classify = classify
        self.nbytes = sum(tensor.nbytes for tensor in (*module.parameters(), *module.buffers()))
        with torch.inference_mode():
            self.sees_padding = self._sees_padding(folder, like, longest)

    def __call__(self, ids: Tensor, mask: Tensor | None, types: Tensor) -> Tensor:
        """Return [n, length, dim], or logits [n]; ids int64[n, length], mask bool or None."""
        seen = torch.ones_like(ids) if mask is None else mask.long()
        given = {"attention_mask": seen, "token_type_ids": types}
        answer = self.module(input_ids=ids, return_dict=True, **{name: given[name] for name in self._takes})
        made: Tensor = answer.logits if self._classify else answer.last_hidden_state
        return made.flatten() if self._classify else made

    def _sees_padding(self, folder: Path, like: Tensor, longest: int) -> bool:
        """Return whether a row gets another answer beside a longer one than alone; run a few rows to find out.

        Raises:
            InvalidModel: as `_answers_alone`; or running it changed its own settings, so that order would matter.
        """
        settings = _settings(self.module)
        padded = min(_PADDED, longest)
        lengths = [min(n, padded) for n in _PROBE]
        drawn = torch.Generator().manual_seed(0)
        rows = [torch.randint(self.vocabulary, (n,), generator=drawn).to(like.device) for n in lengths]
        if self.pad_id is not None:
            for row in rows:
                row[row == self.pad_id] = (self.pad_id + 1) % self.vocabulary
        alone = self._answers_alone(rows, folder, like)
        if changed := sorted(_settings(self.module) - settings):
            where, key, value = changed[0]
            raise InvalidModel(
                f"{type(self.module).__name__} of {folder} sets {where}.{key} to {value} as it runs, so that an answer "
                f"depends on those before it: set {key} so in config.json"
            )
        if depends_on_length(self.module.config):
            return True
        ids = torch.full((len(rows), padded), self.pad_id or 0, device=like.device)
        mask = torch.arange(padded, device=like.device) < torch.tensor(lengths, device=like.device)[:, None]
        ids[mask] = torch.cat(rows)
        try:
            together = self(ids, mask, torch.zeros_like(ids))
        except Exception as exc:
            if is_out_of_memory(exc):
                raise
            return True  # such as "Cannot handle batch sizes > 1 if no padding token is defined."
        beside = [answer if self._classify else answer[:n] for answer, n in zip(together, lengths, strict=True)]
        return not all(self._agrees(one[0], other) for one, other in zip(alone, beside, strict=True))

    def _answers_alone(self, rows: list[Tensor], folder: Path, like: Tensor) -> list[Tensor]:
        """Return the answer to each row by itself.

        Raises:
            InvalidModel: it fails, gives something else than a vector a token or one logit a row, or gives the same
                row another answer the second time.
        """
        kind = f"{type(self.module).__name__} of {folder}"
        try:
            alone = [self(row[None], None, torch.zeros_like(row)[None]) for row in (*rows, rows[0])]
        except Exception as exc:
            if is_out_of_memory(exc):
                raise
            raise InvalidModel(f"{kind} fails in {like.dtype}: {type(exc).__name__}: {exc}") from exc
        again = alone.pop()
        wanted = [(1,) if self._classify else (1, len(row)) for row in rows]
        if [tuple(answer.shape if self._classify else answer.shape[:-1]) for answer in alone] != wanted:
            raise InvalidModel(
                f"{kind} gives {[tuple(answer.shape) for answer in alone]} for rows of {[*map(len, rows)]} tokens: "
                f"what is served gives {'one logit a row' if self._classify else 'one vector a token'}"
            )
        if not torch.equal(alone[0], again):
            raise InvalidModel(f"{kind} gives the same tokens different answers from one run to the next")
        return alone

    def _agrees(self, one: Tensor, other: Tensor) -> bool:
        of_vectors, of_logits = _NEUTRAL.get(one.dtype, _NEUTRAL[torch.bfloat16])
        one, other = one.double(), other.double()
        if self._classify:
            return bool((one - other).abs() <= of_logits * one.abs().clamp_min(1))
        return bool((torch.cosine_similarity(one, other, dim=-1) >= 1 - of_vectors).all())

    def to_onnx(self, path: Path, *, opset: int) -> None:
        """Write the module as an ONNX graph with free batch size and length.

        Raises:
            InvalidModel: PyTorch can't express it, or each row has to be computed alone.
        """
        if self.sees_padding:
            raise InvalidModel(
                f"{type(self.module).__name__} of {path.parent.name} gives a row another answer where it is padded, as "
                "rows of a graph are: serve its safetensors with PyTorch"
                + (", or set pad_token_id in config.json" if self.pad_id is None else "")
            )
        names = ["input_ids", *(name for name in ("attention_mask", "token_type_ids") if name in self._takes)]
        output = "logits" if self._classify else "last_hidden_state"
        free = {name: {0: "n", 1: "length"} for name in names} | {
            output: {0: "n"} if self._classify else {0: "n", 1: "length"}
        }
        ids = torch.ones(2, 16, dtype=torch.long)
        mask = ids * (torch.arange(16) < torch.tensor([[16], [9]]))
        sample = {"input_ids": ids, "attention_mask": mask, "token_type_ids": 0 * ids}
        usual = self.module.forward

        # Types that aren't fed are looked up by position where a module makes them itself: plain zeros are simpler, and
        # that they are the same is checked with everything else.
        adds_types = self._has_types and "token_type_ids" not in names and self.type_vocabulary > 0

        def forward(*given: Tensor) -> Tensor:
            types = {"token_type_ids": torch.zeros_like(given[0])} if adds_types else {}
            made: Tensor = getattr(usual(return_dict=True, **dict(zip(names, given, strict=True)), **types), output)
            return made

        # On the module itself: a module around it would put its own name before that of each weight.
        self.module.forward = forward
        try:
            with warnings.catch_warnings(), _masks_as_products():
                warnings.simplefilter("ignore")  # the exporter is the older one, and says so; parity is checked
                torch.onnx.export(
                    self.module,
                    tuple(sample[name] for name in names),
                    str(path),
                    dynamo=False,
                    opset_version=opset,
                    input_names=names,
                    output_names=[output],
                    dynamic_axes=free,
                )
        except Exception as exc:  # an architecture's own code, and the exporter's, raise anything
            if is_out_of_memory(exc):
                raise
            raise InvalidModel(f"PyTorch can't express {path.parent.name} as an ONNX graph: {exc}") from exc
        finally:
            del self.module.forward


def _vocabulary(module: Any, config: Any) -> int:  # noqa: ANN401  (transformers' own)
    """Return how many token ids a module knows, as its table has it, or as its configuration says."""
    try:
        return len(module.get_input_embeddings().weight)
    except (AttributeError, NotImplementedError, TypeError):  # ids are hashed, or the table is of a kind of its own
        return int(getattr(config, "vocab_size", None) or 256)


def _settings(module: Any) -> set[tuple[str, str, str]]:  # noqa: ANN401  (transformers' own)
    """Return the plain public values that a module and its parts keep: (part, name, value)."""
    return {
        (where, key, repr(value))
        for where, part in module.named_modules()
        for key, value in vars(part).items()
        if isinstance(value, str | int | float | None) and not key.startswith("_")
    }


@contextmanager
def _masks_as_products() -> Iterator[None]:
    """Let masks be made by broadcasting while a graph is traced: `torch.vmap`, by which some are, can't be exported."""
    masks: Any = masking_utils.ALL_MASK_ATTENTION_FUNCTIONS
    usual = masks["eager"]
    masks["eager"] = lambda *args, **options: usual(*args, **(options | {"use_vmap": False}))
    try:
        yield
    finally:
        del masks["eager"]  # what was set anew: the usual one shows again


def _load(folder: Path, *, like: Tensor, classify: bool, plain: bool) -> tuple[Any, Mapping[str, Any]]:
    """Return transformers' module for a folder, and what it says of the weights that it found."""
    talk: Any = logging  # its functions carry no types
    loudness = talk.get_verbosity()
    talk.disable_progress_bar()  # it would draw on the terminal of whoever searches
    talk.set_verbosity_error()  # what is missing is reported by whoever asks
    try:
        config = transformers.AutoConfig.from_pretrained(str(folder), local_files_only=True, trust_remote_code=False)
        usual = "AutoModelForSequenceClassification" if classify else ENCODERS.get(config.model_type, "AutoModel")
        module, found = getattr(transformers, usual).from_pretrained(
            str(folder),
            config=config,
            dtype=like.dtype,
            local_files_only=True,
            trust_remote_code=False,
            use_safetensors=True,
            output_loading_info=True,
            **({"attn_implementation": "eager"} if plain else {}),
        )
    except Exception as exc:  # an architecture's own code raises anything
        if isinstance(exc, SafetensorError) or is_out_of_memory(exc):
            raise
        raise InvalidModel(f"transformers can't load {folder}: {type(exc).__name__}: {exc}") from exc
    finally:
        talk.enable_progress_bar()
        talk.set_verbosity(loudness)
    return module, found
