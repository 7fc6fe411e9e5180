"""Remember what a system answered, under a digest of everything that its answers depend on.

Judgments and measures are not among it: another measure, or a corrected judgment, asks no query again.
"""

from __future__ import annotations

import contextlib
import hashlib
import json
from dataclasses import asdict, dataclass, replace
from functools import cache, cached_property
from importlib import metadata
from pathlib import Path
from typing import TYPE_CHECKING, Any

from backends.catalogue import catalogue
from vectorsearch.collection.collection import content_digest
from vectorsearch.collection.storage.sqlite.settings import WORD_SETTINGS
from vectorsearch.evaluation.answers import Answer, ModelUse
from vectorsearch.evaluation.systems import current_defaults
from vectorsearch.query.planning.defaults import leaves_open

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator, Mapping

    from vectorsearch.database.database import Database
    from vectorsearch.evaluation.systems import System

_PACKAGES = ("backends", "lifecycle", "rerank", "vectorsearch")
_LIBRARIES = ("faiss-cpu", "numpy", "rank-bm25", "tantivy", "tokenizers", "coremltools", "jax", "onnxruntime", "torch")
_APART = {"cli", "evaluation", "service", "integrations"}  # what judges or prints answers, and makes none
_ASKING = ("answers.py", "asking.py", "systems.py")


class Journal:
    """Answers by query text, in a file that grows by a line each. Threads and processes may write to one file.

    A line that a kill has torn is skipped when it is read, and ended by the next one.
    """

    def __init__(self, path: Path) -> None:
        self._path = path
        self.answers: dict[str, Answer] = dict(_read(path))

    def record(self, query: str, answer: Answer) -> None:
        """Append one answer.

        Raises:
            OSError: the file can't be written.
        """
        append_line(self._path, {"query": query, **asdict(answer)})
        self.answers[query] = answer


@dataclass(frozen=True)
class Subject:
    """A database as it is now, for the digests of the systems that search it; its documents are read once."""

    db: Database

    def journal(self, system: System) -> Journal | None:
        """Return the journal of what this system answered here before; None if it reranks with what has no name."""
        if len(system.reranker_names) < len(system.rerankers):
            return None
        return Journal(catalogue.cache_dir() / "evaluations" / f"{self.digest(system)}.jsonl")

    def digest(self, system: System) -> str:
        """Return the sha256, in hex, of documents, indexes, models, search options, code and libraries.

        A lexical system depends on no vectors, so the same answers serve whether or not they are there.
        """
        texts, vectors = self._documents
        embedder = self.db.embedder
        dense = system.mode in ("dense", "hybrid") or (system.mode == "auto" and embedder is not None)
        defaults = current_defaults(self.db) if leaves_open(system.search_options()) else None
        names = [*system.reranker_names, *([defaults.rerank] if defaults and defaults.rerank else [])]
        models = [embedder] if dense and embedder else []
        models += [self.db.find_reranker(name) for name in names]
        parts = {
            "texts": texts,
            "vectors": vectors if dense else None,
            "indexes": {kind: self._settings[kind] for kind in ("lexical", *(["dense"] if dense else []))},
            "models": [spec.digest for spec in models],
            "backends": self._backends(system),
            "system": system.options,
            "defaults": asdict(replace(defaults, origin=None)) if defaults else None,
            "code": code_digest(),
            "libraries": dict(_library_versions()),
        }
        return hashlib.sha256(json.dumps(parts, sort_keys=True).encode()).hexdigest()

    def _backends(self, system: System) -> list[tuple[str, str]]:
        """Return the names of the models that a query is planned with, and of the backends that serve them here."""
        plan = self.db.explain("which backends", **system.search_options()).plan
        models = [retriever.model for retriever in plan.retrievers]
        models += [member.model for stage in plan.rerank for member in stage.members]
        return [(model.name, model.backend) for model in models if model is not None]

    @cached_property
    def _documents(self) -> tuple[str, str]:
        texts, vectors = hashlib.sha256(), hashlib.sha256()
        for document in self.db.iter():
            texts.update(f"{document.id}\0{content_digest(document)}\0".encode())
            vectors.update(document.vector.tobytes() if document.vector is not None else b"\0")
        return texts.hexdigest(), vectors.hexdigest()

    @cached_property
    def _settings(self) -> dict[str, dict[str, Any]]:
        self.db.refresh()
        info = self.db.info()
        # An index says what it really is (exact, or a graph) once it is up to date.
        return {
            "lexical": {**{name: info[name] for name in WORD_SETTINGS}, "kind": info["lexical"]["kind"]},
            "dense": {"dim": info["dim"], "kind": info["dense"]["kind"]},
        }


@cache
def code_digest() -> str:
    """Return the sha256, in hex, of this project's own sources that make answers."""
    here = Path(__file__).resolve().parent
    root = here.parents[1]
    sources = [path for package in _PACKAGES for path in sorted((root / package).rglob("*.py"))]
    searching = [path for path in sources if not _APART.intersection(path.relative_to(root).parts)]
    return digest_files([*searching, *(here / name for name in _ASKING)])


def digest_files(paths: Iterable[Path]) -> str:
    """Return the sha256, in hex, of the files' names and contents, in the order given."""
    digest = hashlib.sha256()
    for path in paths:
        digest.update(path.name.encode() + b"\0")
        with path.open("rb") as file:
            digest.update(hashlib.file_digest(file, "sha256").digest())
    return digest.hexdigest()


def _library_versions() -> Iterator[tuple[str, str]]:
    for name in _LIBRARIES:
        with contextlib.suppress(metadata.PackageNotFoundError):
            yield name, metadata.version(name)


def append_line(path: Path, values: Mapping[str, Any]) -> None:
    """Append a line of JSON to a file, which is made if it isn't there.

    Raises:
        OSError: the file can't be written.
    """
    path.parent.mkdir(parents=True, exist_ok=True)
    with path.open("a", encoding="utf-8") as file:
        file.write(f"\n{json.dumps(values)}\n")


def read_lines(path: Path) -> Iterator[dict[str, Any]]:
    """Yield what the lines of a file hold; nothing where there is none, and no line that is damaged."""
    try:
        lines = path.read_text(encoding="utf-8").splitlines()
    except (OSError, UnicodeDecodeError):
        return
    for line in lines:
        with contextlib.suppress(ValueError, RecursionError):
            yield json.loads(line)


def _read(path: Path) -> Iterator[tuple[str, Answer]]:
    """Yield the answers that a file holds; a damaged one can be asked again."""
    for values in read_lines(path):
        with contextlib.suppress(TypeError, KeyError):
            query = values.pop("query")
            models = tuple(ModelUse(**model) for model in values.pop("models"))
            of_documents = {key: tuple(values[key]) for key in ("doc_ids", "scores")}
            yield query, Answer(**{**values, **of_documents, "models": models})
