"""The student: the teacher's embeddings, a few evenly spaced layers of it, and its head, as a folder of its own."""

from __future__ import annotations

import json
import re
import shutil
from typing import TYPE_CHECKING

from backends.catalogue.export import SAFETENSORS
from backends.errors import InvalidInput, InvalidModel
from rerank.training.train import read_no_further

if TYPE_CHECKING:
    from collections.abc import Sequence
    from pathlib import Path

    from backends.base import ModelSpec

_LAYER = re.compile(r"(.*\blayers?\.)(\d+)(\..+)")  # encoder.layer.3.output.dense.weight, model.layers.3.mlp.Wi.weight
_LAYER_COUNTS = ("num_hidden_layers", "n_layers")  # config.json's name for it; the second is DistilBERT's
_COPIED = ("config.json", "tokenizer.json", "tokenizer_config.json", "special_tokens_map.json", "vocab.txt")


def evenly_spaced(n_layers: int, wanted: int) -> tuple[int, ...]:
    """Return the numbers of the layers that a student takes: the first, the last, and those between them.

    Raises:
        InvalidInput: the teacher has no more layers than that.
    """
    if not 2 <= wanted < n_layers:  # noqa: PLR2004 -- the first and the last
        raise InvalidInput(f"a student of {wanted} layers can't be made of {n_layers}: take from 2 to {n_layers - 1}")
    return tuple(round(at * (n_layers - 1) / (wanted - 1)) for at in range(wanted))


def write_student(teacher: ModelSpec, folder: Path, layers: int, *, max_length: int) -> tuple[int, ...]:
    """Write a student's folder, in Hugging Face layout, and return which of the teacher's layers it has.

    Unless it is asked for less, it reads `max_length` tokens of query and text together.

    Raises:
        InvalidInput: the teacher has too few layers.
        InvalidModel: it is of an architecture whose layers are not known.
    """
    from safetensors.torch import load_file, save_file  # noqa: PLC0415  (heavy: only where a student is made)

    config = json.loads((teacher.folder / "config.json").read_text(encoding="utf-8"))
    counted = next((name for name in _LAYER_COUNTS if name in config), None)
    weights = load_file(teacher.folder / SAFETENSORS)
    if counted is None or not any(_LAYER.fullmatch(name) for name in weights):
        raise InvalidModel(f"{teacher.folder} has no layers by number: distil from a BERT or one of its kin")
    chosen = evenly_spaced(int(config[counted]), layers)
    folder.mkdir(parents=True)
    for name in _COPIED:
        if (teacher.folder / name).is_file():
            shutil.copyfile(teacher.folder / name, folder / name)
    taken = {new: weights[name] for name in weights if (new := _renumbered(name, chosen)) is not None}
    save_file(taken, folder / SAFETENSORS, metadata={"format": "pt"})
    (folder / "config.json").write_text(json.dumps({**config, counted: layers}, indent=2) + "\n", encoding="utf-8")
    read_no_further(folder, max_length)
    return chosen


def _renumbered(name: str, chosen: Sequence[int]) -> str | None:
    """Return a weight's name in the student, None if its layer was left out."""
    found = _LAYER.fullmatch(name)
    if found is None:
        return name
    before, number, after = found.groups()
    return f"{before}{chosen.index(int(number))}{after}" if int(number) in chosen else None
