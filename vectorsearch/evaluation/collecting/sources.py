"""Find a test collection: a folder in BEIR's, TREC's or MS MARCO's layout, or a name that ir_datasets knows.

Documents that aren't BEIR's JSON lines are written as such, once, into the cache; everything else reads one layout.
"""

from __future__ import annotations

import hashlib
import importlib
import json
from contextlib import suppress
from pathlib import Path
from typing import TYPE_CHECKING, Any

from backends.catalogue import catalogue
from backends.errors import InvalidInput, MissingExtra
from vectorsearch.evaluation import formats as reading
from vectorsearch.evaluation.collecting.collections import TestCollection, read_collection, read_judged
from vectorsearch.evaluation.collecting.layout import whole_folder, write_files, write_lines
from vectorsearch.evaluation.formats.columns import json_object
from vectorsearch.evaluation.formats.document_files import read_documents
from vectorsearch.evaluation.formats.text_files import ENDINGS, numbered_lines
from vectorsearch.evaluation.journal import digest_files

if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping

IR_DATASETS = "ir_datasets:"

_CORPUS = "corpus.jsonl"
_DOCUMENTS = ("corpus", "collection", "documents", "docs")
_QUERIES = ("queries", "topics")
_NOTES = "notes.json"
_SPLITS = ("test", "train", "dev", "eval", "valid", "validation", "val")


def find_collection(source: str | Path, *, split: str = "test", field: str | None = None) -> TestCollection:
    """Return the collection of a folder, or of `ir_datasets:NAME`.

    A folder is BEIR's (`corpus.jsonl`, `queries.jsonl`, `qrels/SPLIT.tsv`), or has documents, as a file or a folder
    called corpus, collection, documents or docs; queries, as queries.* or topics.*; and judgments, as qrels.* or
    qrels/SPLIT.*. What they hold may be of any kind that is read; each file may be compressed.

    Args:
        source: the folder or name.
        split: which of several files of queries and judgments.
        field: which text of the topics is asked, as in `read_topics`.

    Raises:
        InvalidInput: there is no such collection, or a file of it is malformed.
        MissingExtra: ir_datasets is not installed.
    """
    if str(source).startswith(IR_DATASETS):
        return _from_ir_datasets(str(source).removeprefix(IR_DATASETS))
    folder = Path(source)
    if not folder.is_dir():
        raise InvalidInput(f"no collection {str(source)!r}: give a folder, or {IR_DATASETS}NAME")
    folder = folder.resolve()
    plain = next((path for path in _files(folder, _CORPUS) if _is_plain(path)), None)
    if plain is not None and _files(folder, "queries.jsonl") and _files(folder / "qrels", f"{split}.tsv"):
        return read_collection(folder, split=split, field=field)
    documents = _documents(folder)
    of_split, of_all = _of_split(folder, _QUERIES, split)
    queries = _only(folder, "queries.jsonl, queries.tsv or topics.txt", of_split, of_all)
    of_split, of_all = _of_split(folder, ("qrels",), split)
    # What names no split is the test's: another one that is asked for must be there by its name.
    judgments = [_files(folder / "qrels", f"{split}.*"), of_split, *([of_all] if split == _SPLITS[0] else [])]
    qrels = _only(folder, f"qrels.txt or qrels/{split}.tsv", *judgments)
    judged = read_judged(queries, qrels, field=field)
    corpus, notes = (plain, []) if plain is not None else _converted(folder.name, documents)
    return TestCollection(folder.name, corpus, judged.queries, judged.qrels, (*judged.notes, *notes))


def _documents(folder: Path) -> list[Path]:
    """Return the files of documents: one, or all that lie in a folder."""
    found = [path for name in _DOCUMENTS for path in _files(folder, name, f"{name}.*")]
    listed = sorted({path for each in found for path in ([each] if each.is_file() else each.rglob("*"))})
    files = [path for path in listed if path.is_file() and not path.name.startswith(".")]
    if not files:
        raise InvalidInput(f"{folder} lacks documents: {_CORPUS}, collection.tsv, or files in documents/")
    if len(found) > 1:
        raise InvalidInput(f"{folder} has several collections of documents, {_names(found)}: leave one")
    return files


def _of_split(folder: Path, names: Iterable[str], split: str) -> list[list[Path]]:
    """Return the files of these names that are of the split, and those that are of none."""
    named = [path for name in names for path in _files(folder, f"{name}.*", name) if path.is_file()]
    of_split = [path for path in named if split in path.name.split(".")[1:]]
    return [of_split, [path for path in named if not set(_SPLITS) & set(path.name.split(".")[1:])]]


def _only(folder: Path, expected: str, *choices: list[Path]) -> Path:
    """Return the only file of the first choice that has any."""
    files = next(filter(None, choices), [])
    if not files:
        raise InvalidInput(f"{folder} lacks {expected}")
    if len(files) > 1:
        raise InvalidInput(
            f"{folder} has several files that may be {expected}: {_names(files)}: leave one, or name a --split"
        )
    return files[0]


def _files(folder: Path, *patterns: str) -> list[Path]:
    found = {path for pattern in patterns for ending in ENDINGS for path in folder.glob(f"{pattern}{ending}")}
    return sorted(path for path in found if not path.name.startswith("."))


def _names(paths: Iterable[Path]) -> str:
    return ", ".join(path.name for path in paths)


def _is_plain(corpus: Path) -> bool:
    """Return whether a file is JSON lines with BEIR's or Anserini's names, which need no conversion."""
    with suppress(InvalidInput):
        _, first = next(numbered_lines(corpus), (1, "{}"))
        row = json_object(first)
        return any(key in row for key in ("text", "contents")) or not row.keys() & {"passage", "body"}
    return True  # malformed as it is: its reader says where


def _converted(name: str, documents: list[Path]) -> tuple[Path, list[str]]:
    """Return the documents as JSON lines in the cache, and what is to be known of them."""
    code = sorted(Path(reading.__file__).parent.glob("*.py"))
    target = _folder(name, digest_files([*documents, *code]))
    if not target.exists():
        notes: list[str] = []
        with whole_folder(target) as folder:
            write_lines(folder / _CORPUS, map(json.dumps, read_documents(documents, notes)))
            write_lines(folder / _NOTES, [json.dumps(notes)])
    return target / _CORPUS, json.loads((target / _NOTES).read_text(encoding="utf-8"))


def _from_ir_datasets(name: str) -> TestCollection:
    try:
        dataset = importlib.import_module("ir_datasets").load(name)
    except ImportError as exc:
        raise MissingExtra(f"{IR_DATASETS}{name} needs ir_datasets: pip install ir_datasets") from exc
    except KeyError as exc:
        raise InvalidInput(f"ir_datasets knows no {name!r}") from exc
    if not (dataset.has_docs() and dataset.has_queries() and dataset.has_qrels()):
        raise InvalidInput(f"ir_datasets' {name!r} has no documents, no queries or no judgments: name a part that has")
    version = getattr(importlib.import_module("ir_datasets"), "__version__", "")
    target = _folder(name.replace("/", "-"), f"{name} {version}")
    if not target.exists():
        documents = (_row(document.doc_id, document) for document in dataset.docs_iter())
        queries = ((query.query_id, _default_text(query)) for query in dataset.queries_iter())
        qrels: dict[str, dict[str, int]] = {}
        for judgment in dataset.qrels_iter():
            grade = qrels.setdefault(judgment.query_id, {}).setdefault(judgment.doc_id, judgment.relevance)
            if grade != judgment.relevance or hasattr(judgment, "iprob"):
                raise InvalidInput(
                    f"ir_datasets' {name!r} judges {judgment.query_id!r} and {judgment.doc_id!r} by subtopic or by "
                    f"sample ({judgment}), which the measures here can't read: name another part"
                )
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
