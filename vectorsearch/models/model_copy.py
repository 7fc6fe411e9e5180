"""Copy what makes a model out of a folder that nobody vouches for: regular files that are read, and no others.

A link may lead to a device, to a loop or to somebody else's files, so none is followed, but for those of a hub's cache,
whose snapshots are links to files of the same repository.
"""

from __future__ import annotations

import os
import shutil
import stat
from fnmatch import fnmatch
from pathlib import Path
from typing import TYPE_CHECKING

from backends.errors import InvalidModel
from backends.features import feature_model
from backends.folders.folder_weights import DESCRIBING, find_weights
from backends.graph.reading import signature
from vectorsearch.collection.storage.disk.files import fsync_file

if TYPE_CHECKING:
    from collections.abc import Iterator

    from backends.base import ModelSpec

_READ = ("*.json", "*.txt", "*.model", "*.jinja", "*.safetensors", "*.npz")
_GRAPHS = ("*.onnx",)
_PARSED = frozenset({".json", ".onnx", ".npz"})  # what is read of a folder before it is tried; of others the hash alone
_LICENCES = ("LICENSE*", "NOTICE*", "COPYING*")
_DEPTH = 2  # modules lie in folders of their own, and so do licences
_FILES = 1_000
# All that is beside the weights: the largest published tokenizers take some 35 MiB.
BESIDE_NBYTES = 512 << 20
_PIECE_NBYTES = 1 << 20
_SERVED_SMALLER = 2  # times, at most, than what lies in the file


def check_files(folder: Path, *, limit_nbytes: int) -> int:
    """Insist that whatever may be read of a folder is a regular file, before any is read; return the bytes to parse.

    Raises:
        InvalidModel: one is a link, a device, a pipe or the like, there are too many, or one is larger than the limit.
    """
    root, parsed_nbytes = _hub_root(folder), 0
    for number, path in enumerate(_chosen(folder, frozenset(), also=_GRAPHS)):
        _require_few(number, folder)
        status = _real(path, root).stat()
        _require_regular(status, path)
        if path.suffix in _PARSED:
            if status.st_size > limit_nbytes:
                raise InvalidModel(
                    f"{path} has {status.st_size / 2**20:.0f} MiB, and a model may take {limit_nbytes / 2**20:.0f} MiB "
                    "here: raise the quota or budget, or register a smaller model"
                )
            parsed_nbytes += status.st_size
    return parsed_nbytes


def check_weights(folder: Path, *, limit_nbytes: int) -> None:
    """Insist that a folder's weights can be of a model that takes so much, before they are read whole for its digest.

    A file may say terabytes and hold none. Weights of 32 bits may be served in 16, so twice as much passes.

    Raises:
        InvalidModel: a file is larger, or there are no weights that can be read.
    """
    hashed = [*(folder / name for name in _weight_files(folder)), *(f for p in DESCRIBING for f in folder.glob(p))]
    for path in hashed:
        nbytes = path.stat().st_size if path.is_file() else 0
        if nbytes > _SERVED_SMALLER * limit_nbytes:
            raise InvalidModel(
                f"{path} has {nbytes / 2**20:.0f} MiB, and a model may take {limit_nbytes / 2**20:.0f} MiB "
                "here: raise the quota or budget, or register a smaller model"
            )


def _weight_files(folder: Path) -> tuple[str, ...]:
    if (folder / feature_model.WEIGHTS_FILE).is_file():
        return (feature_model.WEIGHTS_FILE,)
    weights = find_weights(folder)
    return weights.files(signature.read(folder / weights.file) if weights.file.endswith(".onnx") else None)


def copy_model(spec: ModelSpec, target: Path) -> None:
    """Copy the files of a model's folder that are read into a new folder, and make them last.

    Raises:
        InvalidModel: a file that is needed is a link, a device or the like, or there is far more than a model needs.
        OSError: a file can't be read or written.
    """
    root = _hub_root(spec.folder)
    weights = _weights(spec)
    left = BESIDE_NBYTES
    for number, path in enumerate(_chosen(spec.folder, weights)):
        _require_few(number, spec.folder)
        within = path.relative_to(spec.folder)
        made = target / within
        made.parent.mkdir(parents=True, exist_ok=True)
        # Weights have been counted against quota and budget already, by what they say of themselves.
        limit = spec.weights_nbytes if str(within) in weights else left
        copied = _copy_regular(_real(path, root), made, limit)
        left -= 0 if str(within) in weights else copied
        fsync_file(made)


def _weights(spec: ModelSpec) -> frozenset[str]:
    """Return the files of weights, as paths in the folder: the graph and what it keeps beside itself."""
    if not spec.weights_file.endswith(".onnx"):
        # A feature model has a file of its own kind; what is in safetensors may be in several.
        is_apart = not spec.weights_file.endswith((".safetensors", ".json"))
        return frozenset({spec.weights_file} if is_apart else find_weights(spec.folder).files(None))
    graph = signature.read(spec.folder / spec.weights_file)
    beside = Path(spec.weights_file).parent
    return frozenset({spec.weights_file, *(str(beside / name) for name in (graph.external if graph else ()))})


def _chosen(folder: Path, weights: frozenset[str], *, also: tuple[str, ...] = ()) -> Iterator[Path]:
    """Yield the paths that are a model's, without following a link to a folder; `also` are patterns of more names."""
    for here, folders, names in os.walk(folder, followlinks=False):
        place = Path(here).relative_to(folder)
        if len(place.parts) >= _DEPTH:
            folders.clear()
        folders[:] = sorted(name for name in folders if not name.startswith("."))
        for name in sorted(names):
            is_read = any(fnmatch(name, pattern) for pattern in (*_READ, *also)) and not name.startswith(".")
            is_licence = place.name == "licenses" or any(fnmatch(name, pattern) for pattern in _LICENCES)
            if is_read or is_licence or str(place / name) in weights:
                yield Path(here) / name


def _hub_root(folder: Path) -> Path | None:
    """Return the folder of a hub's cache that holds all of a repository, if this is one of its snapshots."""
    folder = folder.resolve()
    is_snapshot = folder.parent.name == "snapshots" and (folder.parents[1] / "blobs").is_dir()
    return folder.parents[1].resolve() if is_snapshot else None


def _real(path: Path, root: Path | None) -> Path:
    """Return the file to read for a path.

    Raises:
        InvalidModel: it is a link that leads anywhere but to a file of the same hub repository.
    """
    if not path.is_symlink():
        return path
    try:
        real = path.resolve(strict=True)
    except (OSError, RuntimeError) as exc:
        raise InvalidModel(f"{path} is a link that leads nowhere: copy the file there instead") from exc
    if root is None or root / "blobs" not in real.parents:
        raise InvalidModel(f"{path} is a link, which is not followed when a model is registered: copy the file there")
    return real


def _require_few(number: int, folder: Path) -> None:
    if number >= _FILES:
        raise InvalidModel(f"{folder} has more than {_FILES} files that could be a model's: copy the model alone")


def _require_regular(status: os.stat_result, path: Path) -> None:
    if not stat.S_ISREG(status.st_mode):
        raise InvalidModel(f"{path} is no regular file: leave it out of the model's folder")


def _copy_regular(source: Path, made: Path, limit_nbytes: int) -> int:
    """Copy a regular file of at most so many bytes, and return how many there were."""
    flags = os.O_RDONLY | getattr(os, "O_NOFOLLOW", 0) | getattr(os, "O_NONBLOCK", 0) | getattr(os, "O_BINARY", 0)
    with open(os.open(source, flags), "rb") as read, made.open("wb") as write:  # noqa: PTH123 - of a descriptor
        status = os.fstat(read.fileno())
        _require_regular(status, source)
        if status.st_size > limit_nbytes:
            raise InvalidModel(
                f"{source} has {status.st_size / 2**20:.0f} MiB, and {limit_nbytes / 2**20:.0f} MiB are left for what "
                "a model has there: leave it out of the model's folder"
            )
        shutil.copyfileobj(read, write, _PIECE_NBYTES)
        return write.tell()
