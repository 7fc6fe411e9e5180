"""The files of registered models: copied into the store by digest, one copy however many tenants use it.

A copy that no row of the registry names is removed only where a mark beside it says that this store made or dropped it
without a row: others are there because rows are older than the files, as after a restore, and are kept and told.
"""

from __future__ import annotations

import errno
import json
import shutil
import threading
from collections import Counter
from contextlib import ExitStack, contextmanager
from dataclasses import replace
from pathlib import Path
from secrets import token_hex
from typing import TYPE_CHECKING

from backends.catalogue.catalogue import is_same_model
from backends.errors import InvalidModel
from backends.folders.folder import read_folder
from vectorsearch.collection.storage.disk.files import fsync_file, fsync_folder
from vectorsearch.collection.storage.errors import StorageFull, StoreError
from vectorsearch.collection.storage.soundness import Fault
from vectorsearch.models.model_copy import copy_model

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Iterator, Mapping

    from backends.base import ModelSpec
    from vectorsearch.collection.storage.registry import ModelRow, Registry

FOLDER_NAME = "models"
_VOUCHED = ".accept_keys.json"  # no file of that name is ever copied from a model's folder
_NO_ROOM = (errno.ENOSPC, errno.EDQUOT, errno.EFBIG)
_DIGITS = 32  # of the digest, in a folder's name
_MARK = ".unused"  # ends the name of the mark beside a copy that has no row yet, or soon none any more
_LEFT = (".unfinished", ".damaged")  # end the names of what a killed process leaves of a copy


class ModelFiles:
    """The models' folder of a store, shared by its tenants."""

    def __init__(self, store_folder: Path) -> None:
        self._folder = store_folder / FOLDER_NAME
        # Putting copies in place, and removals, are one at a time; protects the count too. A leaf: nothing else is
        # locked inside, and nothing that somebody registers is read or copied while it is held.
        self._lock = threading.Lock()
        self._placed: Counter[Path] = Counter()  # how often a copy was put in its place
        self._held: Counter[Path] = Counter()  # copies that no row of the registry names yet, unfinished ones too

    def path_of(self, digest: str) -> Path:
        """Return the folder of a model's files, which need not exist."""
        return self._folder / digest[:_DIGITS]

    def faults(self, names: Mapping[str, str]) -> Iterator[Fault]:
        """Yield what is wrong with the files of these models, given as names by digest; they are read whole."""
        for digest, name in names.items():
            try:
                self.spec_of(digest, name, anew=True)
            except InvalidModel as exc:
                yield Fault("models", str(exc), mendable=False)

    def spec_of(self, digest: str, name: str, *, anew: bool = False) -> ModelSpec:
        """Return the stored model under a name, read again if a file has changed, or `anew`.

        Raises:
            InvalidModel: its files are missing or damaged, or not those that were registered.
        """
        spec = read_folder(self.path_of(digest), name=name, anew=anew, accept_keys=self.vouched_for(digest))
        if not is_same_model(spec, digest):
            raise InvalidModel(f"the files of model {name!r} have changed since it was registered: register it again")
        # A model of release 0.1.0 keeps the digest by which rows and documents know it.
        return replace(spec, digest=digest, checked=True)

    def is_copy(self, found: str) -> bool:
        """Tell whether this is a copy in the store."""
        return Path(found).parent == self._folder

    def resolve(self, copy: str) -> ModelSpec:
        """Return the model of a stored copy, as `find` gave it.

        Raises:
            InvalidModel: it can't be served any more.
        """
        return read_folder(Path(copy), accept_keys=self.vouched_for(Path(copy).name))

    def vouched_for(self, digest: str) -> tuple[str, ...]:
        """Return the keys of a stored model's configuration that were vouched for when it was registered."""
        try:
            return tuple(map(str, json.loads((self.path_of(digest) / _VOUCHED).read_text(encoding="utf-8"))))
        except (OSError, ValueError, TypeError, RecursionError):
            return ()  # none, or the digest tells that they have changed

    @contextmanager
    def copied(self, spec: ModelSpec) -> Iterator[ModelSpec]:
        """Copy a model's folder into the store, unless it is there undamaged, and give the spec of the copy.

        For the length of the `with` block the copy is kept, whoever cleans up. It appears whole or not at all, and has
        only the regular files that are read; see `model_copy`.

        Raises:
            InvalidModel: the copy is another model than the original: a file changed meanwhile, or can't be read.
            StorageFull: there is no room for the copy.
        """
        target = self.path_of(spec.digest)
        with self._keeping(target):
            placed = self._placed[target]
            if not self.is_whole(spec.digest):
                self._copy(spec, target, placed)
            yield self.spec_of(spec.digest, spec.name)

    @contextmanager
    def _keeping(self, path: Path) -> Iterator[None]:
        """Let nobody who cleans up take a folder away."""
        with self._lock:
            self._held[path] += 1
        try:
            yield
        finally:
            with self._lock:
                self._held[path] -= 1

    def _copy(self, spec: ModelSpec, target: Path, placed: int) -> None:
        """Copy a model and put it in its place, unless somebody else has since it was seen to be `placed` so often."""
        mark = token_hex(4)  # another tenant may copy the same model at the same time
        unfinished, damaged = (target.with_name(f"{target.name}.{mark}{what}") for what in _LEFT)
        self._folder.mkdir(exist_ok=True)
        with self._keeping(unfinished):
            try:
                copy_model(spec, unfinished)
                if spec.accept_keys:
                    (unfinished / _VOUCHED).write_text(json.dumps(spec.accept_keys), encoding="utf-8")
                    fsync_file(unfinished / _VOUCHED)
                if read_folder(unfinished, name=spec.name, accept_keys=spec.accept_keys).digest != spec.digest:
                    raise InvalidModel(f"the files of {spec.folder} changed while they were copied: register it again")
                with self._lock:
                    if self._placed[target] != placed and target.exists():
                        return  # theirs is as good, and may be read already
                    self._placed[target] += 1
                    _mark(target).touch()
                    if target.exists():  # an instance that is loaded has its files open, and keeps them
                        target.rename(damaged)
                    unfinished.replace(target)
                fsync_folder(self._folder)
            except OSError as exc:
                what = f"the files of {spec.folder} can't be copied into the store: {_first_of(exc)}"
                if exc.errno in _NO_ROOM:
                    raise StorageFull(f"{what}: free disk space and register it again; nothing was kept") from exc
                raise InvalidModel(what) from exc
            finally:
                for left in (unfinished, damaged):
                    shutil.rmtree(left, ignore_errors=True)

    def is_whole(self, digest: str) -> bool:
        """Tell whether the stored copy of a model is there and not damaged; it is read whole."""
        try:
            self.spec_of(digest, digest, anew=True)
        except (InvalidModel, OSError):
            return False
        return True

    def copy_into(self, store_folder: Path, copy_rows: Callable[[], Iterable[str]]) -> tuple[Fault, ...]:
        """Copy the models of those digests that `copy_rows()` returns into another store's folder; return what lacks.

        It copies the registry's rows, and what they name is not removed meanwhile. What is damaged is copied and
        returned: each copy is read whole.

        Raises:
            StoreError: a model can't be copied.
        """
        with self._lock:
            copies, faults = ModelFiles(store_folder), []
            try:
                for digest in sorted(set(copy_rows())):
                    there = self.path_of(digest).is_dir()
                    if there:
                        shutil.copytree(self.path_of(digest), copies.path_of(digest))
                    if not there or not copies.is_whole(digest):
                        state = "damaged" if there else "missing"
                        what = f"the files of the registered model of digest {digest} are {state}: register it again"
                        faults.append(Fault("models", what, mendable=False))
            except OSError as exc:
                raise StoreError(f"the registered models can't be copied to {store_folder}: {_first_of(exc)}") from exc
            return tuple(faults)

    def find(self, source: str) -> str:
        """Return where a model lies that was at `source`: a copy in this store is found wherever the store has gone."""
        copy = self._folder / Path(source).name
        return str(copy) if len(copy.name) == _DIGITS and copy.is_dir() else source

    def names(self) -> list[str]:
        """Return the names of the copies that are there, unfinished ones left out."""
        paths = self._folder.iterdir() if self._folder.exists() else ()
        return sorted(path.name for path in paths if path.suffix not in (*_LEFT, _MARK))

    def unowned(self, rows: Iterable[ModelRow]) -> list[str]:
        """Return the names of the copies that belong to no row, and that nobody is making or dropping."""
        owned = {self.path_of(row.digest).name for row in rows}
        return [name for name in self.names() if name not in owned and not _mark(self._folder / name).exists()]

    @contextmanager
    def dropping(self, digests: Iterable[str]) -> Iterator[None]:
        """Say of models that their rows go within the `with` block: `sweep` then removes the files that have none left.

        A process that is killed in between has said so to the next one.
        """
        with ExitStack() as held:
            for path in {self.path_of(digest) for digest in digests}:
                held.enter_context(self._keeping(path))
                if path.exists():
                    _mark(path).touch()
            yield

    def sweep(self, registry: Registry) -> None:
        """Remove the copies that are marked and that no row of the registry names, and what is left of unfinished ones.

        The rows are read while nothing is copied.
        """
        with self._lock:
            held = set(+self._held)
            owned = {self.path_of(row.digest) for row in registry.models()}
            for path in list(self._folder.iterdir()) if self._folder.exists() else ():
                if path.suffix in _LEFT and path not in held:
                    shutil.rmtree(path, ignore_errors=True)
                elif path.suffix == _MARK and (copy := path.with_suffix("")) not in held:
                    if copy not in owned:
                        shutil.rmtree(copy, ignore_errors=True)
                    path.unlink(missing_ok=True)


def _mark(copy: Path) -> Path:
    return copy.with_name(f"{copy.name}{_MARK}")


def _first_of(error: OSError) -> object:
    """Return what went wrong first: `copytree` gathers a list of (from, to, why)."""
    return error.args[0][0][2] if isinstance(error, shutil.Error) and isinstance(error.args[0], list) else error
