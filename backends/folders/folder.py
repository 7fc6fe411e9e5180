"""Read a model's folder in Hugging Face layout: which task, which weights, which pooling and prefixes, which digest.

A folder is obeyed whole, or refused with the name of what isn't understood; `folder_keys` has the table.
"""

from __future__ import annotations

import json
from dataclasses import replace
from typing import TYPE_CHECKING

from backends.base import HeadStep, ModelSpec
from backends.catalogue.entries import folder_digests
from backends.catalogue.files import cache_dir, sha256_of, state_key, write_atomically
from backends.errors import InvalidModel
from backends.features import feature_model
from backends.folders import folder_answer, folder_keys, folder_tokenizer
from backends.folders.folder_json import read_list, read_object
from backends.folders.folder_keys import Vouched
from backends.folders.folder_weights import DESCRIBING, Weights, find_weights
from backends.graph.reading import signature
from backends.running import head

if TYPE_CHECKING:
    from collections.abc import Iterable
    from pathlib import Path

    from backends.base import Task

_MOST_PLACES = 16
_places: dict[str, tuple[Path, ...]] = {}  # by digest; each entry is exchanged whole, so that threads may share it


def read_folder(
    folder: Path, *, name: str | None = None, anew: bool = False, accept_keys: Iterable[str] = ()
) -> ModelSpec:
    """Return the model in this folder; what was read is remembered until a file changes.

    With `anew` weights and tokenizer are read whole, and what is remembered counts only if they still are the same.
    `accept_keys` are keys of its configuration that somebody vouches for; they are part of the digest.

    Raises:
        InvalidModel: a file that is needed is missing or damaged, a key isn't understood, or the model can't rank: the
            message says which.
    """
    folder = folder.resolve()
    keys = tuple(sorted(set(accept_keys)))
    if (folder / feature_model.WEIGHTS_FILE).is_file():
        return replace(feature_model.read_spec(folder), name=name or folder.name)
    weights = find_weights(folder)
    memory = cache_dir() / "folders" / f"{_state_of(folder, weights, keys)}.json"
    known = _recall(memory)
    if known is None or (anew and not _is_same(folder, known[1])):
        try:
            known = _examine(folder, weights, Vouched(keys))
        except (
            AttributeError,
            KeyError,
            TypeError,
            ValueError,
            OverflowError,
        ) as exc:  # a list for an object, and such
            raise InvalidModel(f"a JSON file of {folder} has values of another kind than a model's: {exc}") from exc
        _remember(memory, *known)
    _note_place(known[0].digest, folder)
    return replace(known[0], name=name or folder.name, folder=folder)


def known_places(digest: str) -> tuple[Path, ...]:
    """Return the folders in which this process has found a model, the last first; it may be there no more."""
    return tuple(reversed(_places.get(digest, ())))


def _note_place(digest: str, folder: Path) -> None:
    others = (path for path in _places.get(digest, ()) if path != folder)
    _places[digest] = (*others, folder)[-_MOST_PLACES:]


def _examine(folder: Path, weights: Weights, vouched: Vouched) -> tuple[ModelSpec, dict[str, str]]:
    """Return the model, and the hashes of the files that its digest covers."""
    path = folder / "config.json"
    config = read_object(path)
    kind = read_object(folder / "config_sentence_transformers.json").get("model_type")
    pools = any(str(each.get("type", "")).endswith("Pooling") for each in read_list(folder / "modules.json") or ())
    architectures = [str(each) for each in config.get("architectures") or ()]
    is_scorer = any("ForSequenceClassification" in each for each in architectures)
    task: Task = "cross-encode" if is_scorer and not pools and kind in (None, "CrossEncoder") else "embed"
    graph = signature.read(folder / weights.file) if weights.file.endswith(".onnx") else None
    computed = graph is not None and not weights.beside
    model_type = str(config.get("model_type", ""))
    folder_keys.check(path, config, "config.json", vouched, model_type=model_type, computed=computed)
    folder_answer.check_sizes(config, path)
    if task == "cross-encode":
        answer = folder_answer.read_cross_encoder(folder, config, vouched, counted=graph is not None)
    else:
        answer = folder_answer.read_embedder(folder, config, graph, vouched, weights=weights)
    folder_tokenizer.check(folder, weights.tokenizer, vouched)
    if graph is not None:
        answer = folder_answer.as_graph(answer, graph, config, folder)
    vouched.check_used(folder)
    covered = [*weights.files(graph), weights.tokenizer, *_head_files(answer.head)]
    hashes = {file: sha256_of(folder / file) for file in covered}
    # Whoever asks anew compares these too: what is said of the model may have rotted as well.
    describing = (at for pattern in DESCRIBING for at in folder.glob(pattern) if at.is_file())
    read = {
        str(at.relative_to(folder)): sha256_of(at) for at in describing if str(at.relative_to(folder)) not in hashes
    }
    described = {"config": folder_keys.canonical(config), "tokenizer": folder_tokenizer.canonical(folder)}
    digest, former = folder_digests(hashes, answer, described, vouched.keys)
    spec = ModelSpec(
        name=folder.name,
        folder=folder,
        digest=digest,
        former_digest=former,
        weights_file=weights.file,
        weights_nbytes=weights.nbytes(folder, graph) + (graph.unpacked_nbytes if graph else 0),
        accept_keys=vouched.keys,
        **answer.settings,
    )
    return spec, read | hashes


def _head_files(steps: tuple[HeadStep, ...]) -> list[str]:
    return [f"{step.folder}/{head.SAFETENSORS}" for step in steps if step.folder]


def _is_same(folder: Path, hashes: dict[str, str]) -> bool:
    """Tell whether the files that were read still are what they were; what describes them is read with them."""
    try:
        return all(sha256_of(folder / path) == known for path, known in hashes.items())
    except OSError:
        return False


def _state_of(folder: Path, weights: Weights, accept_keys: tuple[str, ...]) -> str:
    """Return a key that changes when any file does that the spec is read from."""
    described = [path for pattern in DESCRIBING for path in sorted(folder.glob(pattern))]
    # External weights lie beside the graph under names that only the graph knows.
    beside = sorted(path for path in (folder / weights.file).parent.iterdir() if path.is_file())
    return state_key((*described, *beside), *accept_keys)


def _recall(memory: Path) -> tuple[ModelSpec, dict[str, str]] | None:
    try:
        stored = json.loads(memory.read_text(encoding="utf-8"))
        return ModelSpec.of_plain(stored["spec"]), dict(stored["hashes"])
    except (OSError, ValueError, TypeError, KeyError, RecursionError):
        return None  # not there, or written by another version: read the folder again


def _remember(memory: Path, spec: ModelSpec, hashes: dict[str, str]) -> None:
    try:
        write_atomically(memory, json.dumps({"spec": spec.plain(), "hashes": hashes}))
    except OSError:
        return  # a cache that can't be written costs time, not answers
