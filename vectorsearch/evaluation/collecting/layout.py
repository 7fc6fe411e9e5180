"""Write a collection as a folder in BEIR's layout, which appears complete or not at all."""

from __future__ import annotations

import json
import os
import shutil
import tempfile
from contextlib import contextmanager
from itertools import chain
from pathlib import Path
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator, Mapping


@contextmanager
def whole_folder(folder: Path) -> Iterator[Path]:
    """Give an empty folder to write, which takes the place of `folder`, there or not, if the block ends well."""
    folder.parent.mkdir(parents=True, exist_ok=True)
    partial = Path(tempfile.mkdtemp(prefix=f".{folder.name}.", dir=folder.parent))
    try:
        yield partial
        partial.chmod(0o755)
        if folder.exists():
            # A folder can't be renamed over another, so for an instant there is none.
            folder.rename(partial / "replaced")
        partial.rename(folder)
        shutil.rmtree(folder / "replaced", ignore_errors=True)
    finally:
        shutil.rmtree(partial, ignore_errors=True)


def write_files(
    folder: Path,
    documents: Iterable[Mapping[str, Any]],
    queries: Iterable[tuple[str, str]],
    judgments: Iterable[tuple[str, str, int]],
) -> None:
    """Write the corpus, the queries as (id, text), and the judgments as (query id, document id, grade)."""
    write_lines(folder / "corpus.jsonl", map(json.dumps, documents))
    write_lines(folder / "queries.jsonl", (json.dumps({"_id": key, "text": text}) for key, text in queries))
    rows = ("\t".join(map(str, judgment)) for judgment in judgments)
    write_lines(folder / "qrels" / "test.tsv", chain(["query-id\tcorpus-id\tscore"], rows))


def write_lines(path: Path, lines: Iterable[str]) -> None:
    """Write a file that lasts, its folder too."""
    path.parent.mkdir(exist_ok=True)
    with path.open("w", encoding="utf-8", newline="\n") as file:
        file.writelines(f"{line}\n" for line in lines)
        file.flush()
        os.fsync(file.fileno())
