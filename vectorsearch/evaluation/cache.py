"""Remember what a system measured, under a digest of everything that the figures depend on."""

from __future__ import annotations

import contextlib
import hashlib
import json
import os
import tempfile
from dataclasses import asdict, replace
from functools import cache
from importlib import metadata
from pathlib import Path
from typing import TYPE_CHECKING, Any

from backends import catalogue
from vectorsearch.collection import content_digest
from vectorsearch.evaluation.experiment import Judged, System, SystemResult, evaluate

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Iterator

    from vectorsearch.database import Database

_PACKAGES = ("backends", "lifecycle", "rerank", "vectorsearch")
_LIBRARIES = ("faiss-cpu", "ir-measures", "numpy", "onnxruntime", "rank-bm25", "tantivy", "tokenizers")


def evaluate_cached(
    db: Database, judged: Judged, system: System, *, on_progress: Callable[[int, int], None] | None = None
) -> SystemResult:
    """Return what an earlier run of the same thing measured, or `evaluate` and remember it.

    Raises:
        VectorSearchError: as `evaluate`.
    """
    path = _folder() / f"{evaluation_digest(db, judged, system)}.json"
    known = _read(path, system)
    if known is not None:
        return known
    result = evaluate(db, judged, system, on_progress=on_progress)
    _write(path, result)
    return result


def evaluation_digest(db: Database, judged: Judged, system: System) -> str:
    """Return the sha256, in hex, of documents, settings, models, queries, judgments, code and libraries."""
    parts = {
        "documents": _documents_digest(db),
        "settings": _settings(db),
        "reranker": catalogue.resolve(system.rerank).digest if system.rerank else None,
        "system": asdict(system),
        "queries": list(judged.queries.items()),
        "qrels": {query: dict(grades) for query, grades in judged.qrels.items()},
        "code": code_digest(),
        "libraries": dict(_library_versions()),
    }
    return hashlib.sha256(json.dumps(parts, sort_keys=True, default=str).encode()).hexdigest()


@cache
def code_digest() -> str:
    """Return the sha256, in hex, of this project's own sources, the command line left out."""
    root = Path(__file__).resolve().parents[2]
    sources = [path for package in _PACKAGES for path in sorted((root / package).rglob("*.py"))]
    return digest_files(path for path in sources if "cli" not in path.parts)


def digest_files(paths: Iterable[Path]) -> str:
    """Return the sha256, in hex, of the files' names and contents, in the order given."""
    digest = hashlib.sha256()
    for path in paths:
        digest.update(path.name.encode() + b"\0")
        with path.open("rb") as file:
            digest.update(hashlib.file_digest(file, "sha256").digest())
    return digest.hexdigest()


def _documents_digest(db: Database) -> str:
    digest = hashlib.sha256()
    for document in db.iter():
        digest.update(f"{document.id}\0{content_digest(document)}\0".encode())
        if document.vector is not None:
            digest.update(document.vector.tobytes())
    return digest.hexdigest()


def _settings(db: Database) -> dict[str, object]:
    db.refresh()
    info = db.info()
    # An index says what it really is (exact, or a graph) once it is up to date.
    kinds = {name: info[name]["kind"] for name in ("lexical", "dense")}
    return {name: info[name] for name in ("embed", "dim", "language")} | kinds


def _library_versions() -> Iterator[tuple[str, str]]:
    for name in _LIBRARIES:
        with contextlib.suppress(metadata.PackageNotFoundError):
            yield name, metadata.version(name)


def _folder() -> Path:
    return catalogue.cache_dir() / "evaluations"


def _read(path: Path, system: System) -> SystemResult | None:
    """Return the result, or None where there is none or the file is damaged: it can be computed again."""
    try:
        values: dict[str, Any] = json.loads(path.read_text(encoding="utf-8"))
        return SystemResult(**{**values, "system": system, "cached": True})
    except (OSError, ValueError, TypeError):
        return None


def _write(path: Path, result: SystemResult) -> None:
    path.parent.mkdir(parents=True, exist_ok=True)
    with tempfile.NamedTemporaryFile("w", dir=path.parent, suffix=".tmp", delete=False, encoding="utf-8") as file:
        json.dump(asdict(replace(result, cached=True)), file)
    os.replace(file.name, path)  # noqa: PTH105 -- the name is a string here
