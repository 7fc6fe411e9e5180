"""Which files of a folder hold a model's weights: one file, several with an index, a graph, or a table of vectors."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path, PurePosixPath
from typing import TYPE_CHECKING

from backends.errors import InvalidModel
from backends.folders.folder_json import read_list, read_object

if TYPE_CHECKING:
    from backends.graph.reading.signature import Signature

SAFETENSORS = "model.safetensors"
INDEX = f"{SAFETENSORS}.index.json"
WEIGHTS_FILES = ("model.onnx", "onnx/model.onnx", SAFETENSORS, INDEX)
# What describes a model; read anew when one of them changes.
DESCRIBING = (
    "config.json",
    "tokenizer.json",
    "tokenizer_config.json",
    "modules.json",
    "sentence_*_config.json",
    "config_sentence_transformers.json",
    "*/config.json",
    "*/sentence_*_config.json",
    "*/tokenizer.json",
    f"*/{SAFETENSORS}",
    INDEX,
    "adapter_config.json",
    "artifact.metadata",
)
# Where the file is trusted: what writes safetensors from it.
_UNPICKLE = "if you trust it, load it with transformers and save it again with save_pretrained"


@dataclass(frozen=True, slots=True)
class Weights:
    """`file` is what a backend is given: the weights, or the index of `shards`. Paths are inside the folder."""

    file: str
    shards: tuple[str, ...] = ()
    beside: tuple[str, ...] = ()  # safetensors beside a graph: both are the model, one backend reads these
    tokenizer: str = "tokenizer.json"
    static: bool = False

    def files(self, graph: Signature | None) -> tuple[str, ...]:
        """Return all files that hold weights, external ones of a graph too."""
        place = Path(self.file).parent
        return (
            self.file,
            *self.shards,
            *self.beside,
            *(str(place / path) for path in (graph.external if graph else ())),
        )

    def nbytes(self, folder: Path, graph: Signature | None) -> int:
        """Return the bytes of what a backend reads."""
        read = self.shards or (path for path in self.files(graph) if path not in self.beside)
        return sum((folder / path).stat().st_size for path in read)


def find_weights(folder: Path) -> Weights:
    """Return the weights of a folder.

    Raises:
        InvalidModel: there are none, several without one that comes first, or a part is missing.
    """
    static = _static(folder)
    if static is not None:
        return static
    missing = [path for path in ("config.json", "tokenizer.json") if not (folder / path).is_file()]
    file = next((path for path in WEIGHTS_FILES if (folder / path).is_file()), None) or _only_graph(folder)
    if missing or file is None:
        pickled = next((path.name for path in folder.glob("*.bin")), None) if not missing else None
        raise InvalidModel(
            f"{folder} is not a model in Hugging Face layout: it lacks {', '.join(missing) or 'weights'}; needed are "
            f"config.json, tokenizer.json and one of {', '.join(WEIGHTS_FILES)}"
            + (f". {pickled} is a pickle, which can run code when it is read: {_UNPICKLE}" if pickled else "")
        )
    if file == INDEX:
        return Weights(file, _shards(folder / INDEX))
    if not file.endswith(".onnx"):
        return Weights(file)
    if (folder / SAFETENSORS).is_file():
        return Weights(file, beside=(SAFETENSORS,))
    return Weights(file, beside=(INDEX, *_shards(folder / INDEX)) if (folder / INDEX).is_file() else ())


def _shards(index: Path) -> tuple[str, ...]:
    """Return the files that an index names.

    Raises:
        InvalidModel: it names none, one outside the folder, or one that is missing.
    """
    names = read_object(index).get("weight_map")
    if not isinstance(names, dict) or not names or not all(isinstance(name, str) for name in names.values()):
        raise InvalidModel(f"{index} names no files of weights: a weight_map of weights and files is needed")
    files = sorted(set(names.values()))
    for name in files:
        if PurePosixPath(name).name != name or not name.endswith(".safetensors"):
            raise InvalidModel(f"{index} names {name!r}, which is no safetensors file beside it")
        if not (index.parent / name).is_file():
            raise InvalidModel(f"{index} names {name!r}, which is missing: copy all parts of the model")
    return tuple(files)


def _only_graph(folder: Path) -> str | None:
    """Return the graph of a folder that has it under another name than the usual ones.

    Raises:
        InvalidModel: there are several.
    """
    found = sorted(
        str(path.relative_to(folder)) for pattern in ("*.onnx", "onnx/*.onnx") for path in folder.glob(pattern)
    )
    if len(found) > 1:
        raise InvalidModel(
            f"{folder} has the graphs {', '.join(found)}, and none is model.onnx: keep the one to serve, or name it so"
        )
    return found[0] if found else None


def _static(folder: Path) -> Weights | None:
    """Return the table of a StaticEmbedding or a model2vec model; None if the folder is of another kind."""
    modules = read_list(folder / "modules.json")
    if modules:
        kind, place = str(modules[0].get("type", "")), PurePosixPath(str(modules[0].get("path", "")))
        if kind.rpartition(".")[2] != "StaticEmbedding" or place.is_absolute() or ".." in place.parts:
            return None
    elif modules is None and read_object(folder / "config.json").get("model_type") == "model2vec":
        place = PurePosixPath()
    else:
        return None
    file, tokenizer = str(place / SAFETENSORS), str(place / "tokenizer.json")
    for path in (file, tokenizer):
        if not (folder / path).is_file():
            raise InvalidModel(f"{folder} is a StaticEmbedding without {path}: pickles are never read; copy it there")
    return Weights(file, tokenizer=tokenizer, static=True)
