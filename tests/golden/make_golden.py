"""Make a golden database: `python tests/golden/make_golden.py FOLDER NAME` writes FOLDER/NAME, such as format_3.

Run once for each format, when it is new, and check the result in. A later release must open it, so it is never made
again. Format 2 was what compacting made of format 1.
"""

from __future__ import annotations

import shutil
import sys
from pathlib import Path

import numpy as np

from vectorsearch.collection.collection import Collection, CollectionSettings
from vectorsearch.types import Document

N = 20


def documents() -> list[Document]:
    """Give the documents that the golden database holds after its upsert."""
    rng = np.random.default_rng(1)
    return [
        Document(
            f"d{i}",
            f"apple number{i} 我喜欢苹果",
            f"title {i}" if i % 2 else "",
            {"lang": "en" if i % 2 else "de", "year": 2000 + i, "tags": ["a", None, 1.5], "nested": {"deep": i}},
            None if i == 7 else rng.standard_normal(4).astype(np.float32),
        )
        for i in range(N)
    ]


def main() -> None:
    """Write, replace and delete, compact for format 2, then keep the SQLite files alone."""
    for name in sys.argv[2:]:
        folder = Path(sys.argv[1]) / name
        with Collection.open(folder, CollectionSettings(embed="golden@1")) as collection:
            collection.write([Document("gone", "apple"), *documents()])
            collection.write(documents()[:5], on_conflict="replace", truncated={"d3", "d4"})
            collection.delete(["gone"])
            if name == "format_2":
                collection.upkeep.compact()
        for derived in ("lexical", "dense"):
            shutil.rmtree(folder / derived, ignore_errors=True)
        (folder / "writer.lock").unlink()


if __name__ == "__main__":
    main()
