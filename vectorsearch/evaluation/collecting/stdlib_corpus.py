"""Build the standard-library collection: documents from the running interpreter, questions from `datasets/stdlib`."""

from __future__ import annotations

import json
import platform
import site
import subprocess
import sys
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

from backends.errors import InvalidInput, VectorSearchError
from vectorsearch.evaluation.collecting import stdlib_objects
from vectorsearch.evaluation.collecting.collections import read_qrels, read_queries
from vectorsearch.evaluation.collecting.layout import whole_folder, write_files, write_lines

_BUILT = "build.json"

Progress = Callable[[int, int], None]


def build_corpus() -> Iterator[dict[str, Any]]:
    """Yield one BEIR row for each documented public object of the standard library, sorted by `_id`.

    Rows are `{"_id": "csv.reader", "title": name and signature, "text": docstring, "metadata": {"module", "kind",
    "aliases"}}`; `aliases` is there only where the object has other public names. A fresh, isolated interpreter
    builds them, so that they depend on the Python version, the platform and the optional parts of the build, and on
    nothing that this process has imported or patched; nor is anything imported here.

    Raises:
        VectorSearchError: The interpreter can't be started, or fails; the message holds its last line.
    """
    # -I: no environment variables, no current folder; -S: no site-packages, whose .pth files may patch the library.
    command = [sys.executable, "-I", "-S", stdlib_objects.__file__]
    try:
        done = subprocess.run(command, stdin=subprocess.DEVNULL, capture_output=True, text=True, check=False)  # noqa: S603 - this interpreter and a file of this package
    except OSError as exc:
        raise VectorSearchError(f"can't start {sys.executable!r} to build the stdlib corpus: {exc}") from exc
    if done.returncode != 0:
        reason = (done.stderr.strip().splitlines() or ["no message"])[-1]
        raise VectorSearchError(f"{sys.executable} failed to build the stdlib corpus ({done.returncode}): {reason}")
    return map(json.loads, done.stdout.splitlines())


def write_collection(folder: Path, progress: Progress | None = None) -> Path:
    """Write the collection to `folder` in BEIR layout and return the folder; a folder it wrote before is replaced.

    Judgments of names that this interpreter doesn't have are left out, and questions left without any are too;
    `build.json` says how many and which. The folder appears complete or not at all. `progress(done, total)` is
    called after each document.

    Raises:
        InvalidInput: `folder` holds something else.
        VectorSearchError: The questions were not installed, or `build_corpus` failed.
    """
    source = find_questions()
    if folder.exists() and (not folder.is_dir() or not _is_replaceable(folder)):
        raise InvalidInput(f"{folder} is no collection of this command: name a new or an empty folder")
    with whole_folder(folder) as partial:
        _write(partial, source, list(build_corpus()), progress)
    return folder


def find_questions() -> Path:
    """Return the folder with the questions and judgments: beside the checkout, or where the wheel's data went.

    Raises:
        VectorSearchError: There is none; the message names the places.
    """
    installed = Path("share", "vectorsearch", "datasets", "stdlib")
    places = [Path(__file__).resolve().parents[3] / "datasets" / "stdlib", Path(sys.prefix) / installed]
    places.append(Path(site.getuserbase()) / installed)
    for place in places:
        if (place / "queries.jsonl").is_file():
            return place
    raise VectorSearchError(f"no questions of the stdlib collection in {', '.join(map(str, places))}: reinstall")


def _is_replaceable(folder: Path) -> bool:
    return not any(folder.iterdir()) or (folder / _BUILT).is_file()


def _write(folder: Path, source: Path, rows: list[dict[str, Any]], progress: Progress | None) -> None:
    known = {row["_id"] for row in rows}
    queries, qrels = read_queries(source / "queries.jsonl"), read_qrels(source / "qrels" / "test.tsv")
    judgments = [(query, name, grade) for query, grades in qrels.items() for name, grade in grades.items()]
    kept = [judgment for judgment in judgments if judgment[1] in known]
    answerable = {query for query, _, _ in kept}
    asked = ((key, text) for key, text in queries.items() if key in answerable)
    write_files(folder, _reporting(rows, progress), asked, kept)
    report = {
        "python": platform.python_version(),
        "platform": sys.platform,
        "documents": len(rows),
        "queries": len(answerable),
        "judgments": len(kept),
        "dropped_judgments": len(judgments) - len(kept),
        "dropped_names": sorted({name for _, name, _ in judgments} - known),
        "dropped_queries": sorted(set(qrels) - answerable),
    }
    write_lines(folder / _BUILT, [json.dumps(report, indent=2)])


def _reporting(rows: list[dict[str, Any]], progress: Progress | None) -> Iterator[dict[str, Any]]:
    for done, row in enumerate(rows, 1):
        yield row
        if progress is not None:
            progress(done, len(rows))
