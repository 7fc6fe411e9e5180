"""Find a test collection: a folder in BEIR's or TREC's layout, or a name that the package ir_datasets knows.

What isn't in BEIR's layout is written in it, once, into the cache; everything else reads one layout.
"""

from __future__ import annotations

import hashlib
import importlib
from itertools import chain
from pathlib import Path
from typing import TYPE_CHECKING, Any

from backends import catalogue
from backends.errors import InvalidInput, MissingExtra
from vectorsearch.evaluation.collections import read_collection, read_qrels
from vectorsearch.evaluation.journal import digest_files
from vectorsearch.evaluation.layout import whole_folder, write_files
from vectorsearch.evaluation.lines import open_binary
from vectorsearch.evaluation.trec import parse_documents, parse_topics

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator, Mapping

    from vectorsearch.evaluation.collections import TestCollection

IR_DATASETS = "ir_datasets:"

_TOPICS = ("topics.txt", "topics.xml", "topics")
_QRELS = ("qrels.txt", "qrels")
_DOCUMENTS = ("documents", "docs")


def find_collection(source: str | Path, *, split: str = "test") -> TestCollection:
    """Return the collection of a folder, or of `ir_datasets:NAME`.

    A folder is BEIR's (`corpus.jsonl`, `queries.jsonl`, `qrels/SPLIT.tsv`) or TREC's: `topics.txt`, `qrels.txt`, and
    SGML documents in a folder `documents`; each file may be gzipped.

    Raises:
        InvalidInput: there is no such collection, or a file of it is malformed.
        MissingExtra: ir_datasets is not installed.
    """
    if str(source).startswith(IR_DATASETS):
        return _from_ir_datasets(str(source).removeprefix(IR_DATASETS))
    folder = Path(source)
    if not folder.is_dir():
        raise InvalidInput(f"no collection {str(source)!r}: give a folder, or {IR_DATASETS}NAME")
    topics = _first(folder, _TOPICS)
    if topics is None or any(folder.glob("corpus.jsonl*")):
        return read_collection(folder, split=split)
    return _from_trec(folder.resolve(), topics)


def _from_trec(folder: Path, topics: Path) -> TestCollection:
    qrels = _first(folder, _QRELS)
    documents = [path for name in _DOCUMENTS for path in sorted((folder / name).rglob("*")) if path.is_file()]
    if qrels is None or not documents:
        raise InvalidInput(f"{folder} has topics, but lacks {_QRELS[0]} or documents in {_DOCUMENTS[0]}/")
    target = _folder(folder.name, digest_files([topics, qrels, *documents]))
    if not target.exists():
        rows = chain.from_iterable(_read_documents(path) for path in documents)
        try:
            queries = parse_topics(_text(topics))
        except InvalidInput as exc:
            raise InvalidInput(f"{topics}: {exc}") from exc
        _write(target, rows, queries.items(), read_qrels(qrels))
    return read_collection(target)


def _from_ir_datasets(name: str) -> TestCollection:
    try:
        dataset = importlib.import_module("ir_datasets").load(name)
    except ImportError as exc:
        raise MissingExtra(f"{IR_DATASETS}{name} needs ir_datasets: pip install ir_datasets") from exc
    except KeyError as exc:
        raise InvalidInput(f"ir_datasets knows no {name!r}") from exc
    if not (dataset.has_docs() and dataset.has_queries() and dataset.has_qrels()):
        raise InvalidInput(f"ir_datasets' {name!r} has no documents, no queries or no judgments: name a part that has")
    target = _folder(name.replace("/", "-"), name)
    if not target.exists():
        documents = (_row(document.doc_id, document) for document in dataset.docs_iter())
        queries = ((query.query_id, _default_text(query)) for query in dataset.queries_iter())
        qrels: dict[str, dict[str, int]] = {}
        for judgment in dataset.qrels_iter():
            qrels.setdefault(judgment.query_id, {})[judgment.doc_id] = judgment.relevance
        _write(target, documents, queries, qrels)
    return read_collection(target)


def _row(doc_id: str, document: Any) -> dict[str, str]:  # noqa: ANN401 -- a named tuple, of each collection's own kind
    title = getattr(document, "title", "") or ""
    text = getattr(document, "text", None)
    return {"_id": doc_id, "title": title, "text": _default_text(document) if text is None else text}


def _default_text(value: Any) -> str:  # noqa: ANN401 -- as above
    if hasattr(value, "default_text"):
        return str(value.default_text())
    return str(getattr(value, "text", None) or getattr(value, "title", ""))


def _read_documents(path: Path) -> Iterator[dict[str, Any]]:
    try:
        with open_binary(path) as file:
            yield from parse_documents(raw.decode(errors="replace") for raw in file)
    except (InvalidInput, OSError, EOFError) as exc:
        raise InvalidInput(f"{path}: {exc}") from exc


def _text(path: Path) -> str:
    with open_binary(path) as file:
        return file.read().decode(errors="replace")


def _first(folder: Path, names: Iterable[str]) -> Path | None:
    paths = (folder / f"{name}{ending}" for name in names for ending in ("", ".gz"))
    return next((path for path in paths if path.is_file()), None)


def _folder(name: str, made_of: str) -> Path:
    return catalogue.cache_dir() / "converted" / hashlib.sha256(made_of.encode()).hexdigest()[:12] / name


def _write(
    target: Path,
    documents: Iterable[Mapping[str, Any]],
    queries: Iterable[tuple[str, str]],
    qrels: Mapping[str, Mapping[str, int]],
) -> None:
    judgments = ((query, name, grade) for query, grades in qrels.items() for name, grade in grades.items())
    with whole_folder(target) as folder:
        write_files(folder, documents, queries, judgments)
