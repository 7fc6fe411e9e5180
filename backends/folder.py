"""Read a model's folder in Hugging Face layout: which task, which weights, which pooling and prefixes, which digest."""

from __future__ import annotations

import json
from dataclasses import fields, replace
from pathlib import Path
from typing import TYPE_CHECKING, Any

from backends import feature_model, signature
from backends.base import ModelSpec
from backends.entries import Answer, digest_of
from backends.errors import InvalidModel
from backends.files import cache_dir, sha256_of, state_key, write_atomically

if TYPE_CHECKING:
    from collections.abc import Iterable

    from backends.base import Pooling, Task

WEIGHTS_FILES = ("model.onnx", "onnx/model.onnx", "model.safetensors")
# Where the file is trusted: what writes safetensors from it.
_UNPICKLE = "if you trust it, load it with transformers and save it again with save_pretrained"
_READ_FILES = (
    "config.json",
    "tokenizer.json",
    "tokenizer_config.json",
    "modules.json",
    "1_Pooling/config.json",
    "sentence_bert_config.json",
    "config_sentence_transformers.json",
    "model.safetensors",
)
# These count positions from the padding token's own on.
_OFFSET_POSITIONS = {"roberta", "xlm-roberta", "camembert", "mpnet"}


def read_folder(folder: Path, *, name: str | None = None, anew: bool = False) -> ModelSpec:
    """Return the model in this folder; what was read is remembered until a file's size or time changes.

    With `anew` weights and tokenizer are read whole, and what is remembered counts only if they still are the same.

    Raises:
        InvalidModel: a file that is needed is missing or damaged, or the model can't rank: the message says which.
    """
    folder = folder.resolve()
    if (folder / feature_model.WEIGHTS_FILE).is_file():
        return replace(feature_model.read_spec(folder), name=name or folder.name)
    missing = [path for path in ("config.json", "tokenizer.json") if not (folder / path).is_file()]
    weights_file = next((path for path in WEIGHTS_FILES if (folder / path).is_file()), None)
    if missing or weights_file is None:
        pickled = next((path.name for path in folder.glob("*.bin")), None) if not missing else None
        raise InvalidModel(
            f"{folder} is not a model in Hugging Face layout: it lacks {', '.join(missing) or 'weights'}; needed are "
            f"config.json, tokenizer.json and one of {', '.join(WEIGHTS_FILES)}"
            + (f". {pickled} is a pickle, which can run code when it is read: {_UNPICKLE}" if pickled else "")
        )
    memory = cache_dir() / "folders" / f"{_state_of(folder, weights_file)}.json"
    known = _recall(memory)
    if known is None or (anew and _digest(folder, known[1], known[0]) != known[0].digest):
        try:
            known = _examine(folder, weights_file)
        except (AttributeError, KeyError, TypeError, ValueError) as exc:  # a list for an object, words for a number
            raise InvalidModel(f"a JSON file of {folder} has values of another kind than a model's: {exc}") from exc
        _remember(memory, *known)
    return replace(known[0], name=name or folder.name, folder=folder)


def _digest(folder: Path, paths: Iterable[str], answer: Answer | ModelSpec) -> str:
    """Return the digest of these files, and of how the model's answers are read."""
    settings = {field.name: getattr(answer, field.name) for field in fields(Answer)}
    return digest_of({path: sha256_of(folder / path) for path in paths}, Answer(**settings))


def _examine(folder: Path, weights_file: str) -> tuple[ModelSpec, list[str]]:
    """Return the model, and the files that its digest covers."""
    config = _json(folder / "config.json")
    graph = signature.read(folder / weights_file) if weights_file.endswith(".onnx") else None
    architectures = config.get("architectures") or []
    task: Task = "cross-encode" if any("ForSequenceClassification" in a for a in architectures) else "embed"
    if task == "cross-encode":
        answer = Answer(task=task, max_length=_max_length(folder, config))
        _check_labels(config, folder, counted=graph is not None)
    else:
        answer = _embedder(folder, config, graph)
    answer = replace(answer, pad_id=_pad_id(config), inputs=_inputs(folder))
    if graph is not None:
        signature.check_inputs(graph.inputs, folder.name)
        output = signature.choose_output(graph.outputs, task=task, pooling=answer.pooling, model=folder.name)
        if task == "embed" and output.shape and output.shape[-1] is not None:
            answer = replace(answer, dim=output.shape[-1])
    beside = Path(weights_file).parent
    weights = [weights_file, *(str(beside / path) for path in (graph.external if graph else ()))]
    # PyTorch serves these where the others serve the graph: both are the model.
    both = [*weights, "model.safetensors"] if graph and (folder / "model.safetensors").is_file() else weights
    covered = [*both, "tokenizer.json"]
    spec = ModelSpec(
        name=folder.name,
        folder=folder,
        digest=_digest(folder, covered, answer),
        weights_file=weights_file,
        weights_nbytes=sum((folder / path).stat().st_size for path in weights)
        + (graph.unpacked_nbytes if graph else 0),
        **answer.settings,
    )
    return spec, covered


def _embedder(folder: Path, config: dict[str, Any], graph: signature.Signature | None) -> Answer:
    modules = _json(folder / "modules.json", default=None)
    kinds = [str(module.get("type", "")).rpartition(".")[2] for module in modules or ()]
    if unknown := sorted({*kinds} - {"Transformer", "Pooling", "Normalize"}):
        raise InvalidModel(f"{folder / 'modules.json'} has {', '.join(unknown)} after the model, which is not served")
    prompts = _json(folder / "config_sentence_transformers.json").get("prompts") or {}
    dim = config.get("hidden_size") or config.get("dim")
    return Answer(
        task="embed",
        max_length=_max_length(folder, config),
        dim=int(dim) if dim else None,
        pooling=_pooling(folder, graph),
        # Without modules.json nothing says how vectors compare; length 1 makes inner product and cosine agree.
        normalize=modules is None or "Normalize" in kinds,
        query_prefix=prompts.get("query", ""),
        passage_prefix=prompts.get("passage", prompts.get("document", "")),
    )


def _pooling(folder: Path, graph: signature.Signature | None) -> Pooling:
    if graph and not any(len(out.shape) == 3 for out in graph.outputs if out.is_float):  # noqa: PLR2004  (token vectors)
        return "none"
    path = folder / "1_Pooling" / "config.json"
    config = _json(path)
    modes = {mode for mode, on in config.items() if mode.startswith("pooling_mode_") and on is True}
    modes |= {f"pooling_mode_{config['pooling_mode']}"} if isinstance(config.get("pooling_mode"), str) else set()
    known: dict[str, Pooling] = {
        "pooling_mode_cls_token": "cls",
        "pooling_mode_cls": "cls",
        "pooling_mode_mean_tokens": "mean",
        "pooling_mode_mean": "mean",
        "pooling_mode_lasttoken": "last",
    }
    if not modes:
        return "mean"  # as sentence-transformers does for a folder that says nothing
    if len(modes) > 1 or not modes <= known.keys():
        raise InvalidModel(f"{path} asks for {', '.join(sorted(modes))}; served are cls, mean and last, one at a time")
    return known[modes.pop()]


def _pad_id(config: dict[str, Any]) -> int | None:
    stated = config.get("pad_token_id")
    return None if stated is None else int(stated)


def _inputs(folder: Path) -> tuple[str, ...] | None:
    stated = _json(folder / "tokenizer_config.json").get("model_input_names")
    return None if stated is None else tuple(map(str, stated))


def _check_labels(config: dict[str, Any], folder: Path, *, counted: bool) -> None:
    # transformers' own default is two labels; a graph that was read has been counted instead.
    labels = config.get("num_labels") or len(config.get("id2label") or ()) or (1 if counted else 2)
    if labels != 1:
        raise InvalidModel(
            f"{folder / 'config.json'} gives {labels} labels (two labels or more); a cross-encoder for ranking gives "
            "one: use a model trained with a single label"
        )


def _max_length(folder: Path, config: dict[str, Any]) -> int:
    positions = config.get("max_position_embeddings") or 512
    if config.get("model_type") in _OFFSET_POSITIONS:
        positions -= int(config.get("pad_token_id") or 0) + 1
    asked = _json(folder / "sentence_bert_config.json").get("max_seq_length")
    stated = _json(folder / "tokenizer_config.json").get("model_max_length")
    return int(min(positions, asked or positions, stated or positions))


def _json(path: Path, default: Any = {}) -> Any:  # noqa: ANN401, B006  (any JSON; the default is never changed)
    try:
        return json.loads(path.read_text(encoding="utf-8"))
    except FileNotFoundError:
        return default
    except (OSError, ValueError, RecursionError) as exc:
        raise InvalidModel(f"can't read {path}: {exc}") from exc


def _state_of(folder: Path, weights_file: str) -> str:
    """Return a key that changes when any file does that the spec is read from."""
    paths: Iterable[Path] = (folder / path for path in (*_READ_FILES, weights_file))
    # External weights lie beside the graph under names that only the graph knows.
    beside = sorted(path for path in (folder / weights_file).parent.iterdir() if path.is_file())
    return state_key((*paths, *beside))


def _recall(memory: Path) -> tuple[ModelSpec, list[str]] | None:
    try:
        stored = json.loads(memory.read_text(encoding="utf-8"))
        return ModelSpec.of_plain(stored["spec"]), stored["covered"]
    except (OSError, ValueError, TypeError, KeyError, RecursionError):
        return None  # not there, or written by another version: read the folder again


def _remember(memory: Path, spec: ModelSpec, covered: list[str]) -> None:
    stored = {"spec": spec.plain(), "covered": covered}
    try:
        write_atomically(memory, json.dumps(stored))
    except OSError:
        return  # a cache that can't be written costs time, not answers
