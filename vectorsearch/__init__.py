"""An embeddable hybrid search engine: FAISS and BM25, a query planner, and models under one memory budget.

    import vectorsearch as vs

    with vs.open("./my.db") as db:
        db.add([{"id": "csv.reader", "text": "Return a reader object that will process lines …"}])
        for hit in db.search("how do I parse a csv file", k=10, rerank=True):
            print(hit.rank, hit.id, hit.score)

Importing this loads no runtime: FAISS, Tantivy, ONNX Runtime and the tokenizers load when they are first used.
"""

from __future__ import annotations

import importlib
import importlib.util
from pathlib import Path
from typing import TYPE_CHECKING


def _require_siblings() -> None:
    """Fail where a package of the same name, installed by something else, stands in for one of ours."""
    home = Path(__file__).resolve().parents[1]
    for name in ("backends", "lifecycle", "rerank"):
        spec = importlib.util.find_spec(name)
        found = Path(spec.origin).resolve().parents[1] if spec and spec.origin else None
        if found != home:
            raise ImportError(
                f"vectorsearch needs its own package {name!r} beside it in {home}, but Python finds "
                f"{found or 'none'}: uninstall or rename what provides the other one, or put {home} first on sys.path"
            )


_require_siblings()

__version__ = "0.1.0"

__all__ = [
    "Database",
    "Document",
    "Explanation",
    "Hit",
    "InvalidDocument",
    "Passages",
    "Rerank",
    "SearchResult",
    "StageStats",
    "VectorSearchError",
    "open",
]

if TYPE_CHECKING:
    from vectorsearch.database.database import Database
    from vectorsearch.database.engine import open  # noqa: A004 -- reads as `gzip.open` does
    from vectorsearch.errors import VectorSearchError
    from vectorsearch.ingestion.documents import InvalidDocument
    from vectorsearch.query.explaining.explain import Explanation
    from vectorsearch.query.planning.rerankers import Passages, Rerank
    from vectorsearch.query.results import Hit, SearchResult, StageStats
    from vectorsearch.types import Document

_HOMES = {
    "Database": "database.database",
    "Document": "types",
    "Explanation": "query.explaining.explain",
    "Hit": "query.results",
    "InvalidDocument": "ingestion.documents",
    "Passages": "query.planning.rerankers",
    "Rerank": "query.planning.rerankers",
    "SearchResult": "query.results",
    "StageStats": "query.results",
    "VectorSearchError": "errors",
    "open": "database.engine",
}


def __getattr__(name: str) -> object:
    """Import a public name's module when the name is first used, so that the command line's help comes at once."""
    if name not in _HOMES:
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    value = getattr(importlib.import_module(f"{__name__}.{_HOMES[name]}"), name)
    globals()[name] = value
    return value
