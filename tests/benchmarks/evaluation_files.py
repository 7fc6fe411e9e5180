"""Public evaluation files: which are read, which are refused, and why.

python tests/benchmarks/evaluation_files.py FOLDER [--refused] [--json]

Every file below the folder whose name tells what it is (topics*, *queries*, *qrels*, prels*, *.run, run.*, *.trec) goes
through the reader of its kind. Then each file of topics is paired with the judgments of the same name, as Anserini's
`topics.X.txt` and `qrels.X.txt`. A clone of a repository with such files is a fit folder; nothing is written.
"""

from __future__ import annotations

import argparse
import json
import re
from collections import Counter, defaultdict
from pathlib import Path
from typing import TYPE_CHECKING, Any

from backends.errors import VectorSearchError
from vectorsearch.evaluation.collecting.collections import read_judged
from vectorsearch.evaluation.formats.document_files import DocumentFile
from vectorsearch.evaluation.formats.judgments import read_judgments
from vectorsearch.evaluation.formats.runs import read_run
from vectorsearch.evaluation.formats.topic_files import read_topics

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

KINDS: dict[str, tuple[str, Callable[[Path], Any]]] = {
    "judgments": (r"qrel|prels|judg", read_judgments),
    "runs": (r"(^|[._-])runs?[._-]|\.run$|results\.test", read_run),
    "topics": (r"topic|quer(y|ies)", read_topics),
    "documents": (r"\.sgml?$|doc-text|corpus|collection\.tsv", lambda path: sum(1 for _ in DocumentFile(path))),
}
OTHER = re.compile(
    r"\.(py|java|md|c|h|cpp|js|ts|html?|ipynb|png|sh|ya?ml|properties|rst|css|class|jar|bat|pdf|template|proto|readme)$"
    r"|aliases|^(topics|qrels)\.json$|docTTTTTquery$|\$",
    re.IGNORECASE,
)
NAME = re.compile(r"(?:topics|qrels)\.(.+?)(?:\.(?:txt|tsv|xml|jsonl))?(?:\.gz)?$")


def main() -> None:
    """Read the files and print a row for each kind, and the reasons of those that are refused."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("folder", type=Path)
    parser.add_argument("--refused", action="store_true", help="print each refused file's error")
    parser.add_argument("--json", action="store_true")
    options = parser.parse_args()
    rows = {kind: measured(files, KINDS[kind][1]) for kind, files in sorted_files(options.folder).items()}
    rows["pairs"] = measured(list(pairs(options.folder)), lambda both: read_judged(*both))
    if options.json:
        print(json.dumps(rows, indent=2))
        return
    print(f"{'':12}{'files':>7}{'read':>7}{'said':>7}{'refused':>9}")
    for kind, row in rows.items():
        print(f"{kind:12}{row['files']:7}{row['read']:7}{row['with_notes']:7}{len(row['refused']):9}")
    for kind, row in rows.items():
        for reason, count in Counter(map(reason_of, row["refused"].values())).most_common():
            print(f"{kind:12}{count:7}  {reason}")
        if options.refused:
            print(*(f"    {error}" for error in row["refused"].values()), sep="\n")


def sorted_files(folder: Path) -> dict[str, list[Path]]:
    """Return the files of each kind, by their names; qrels among topics count as judgments."""
    found: dict[str, list[Path]] = {kind: [] for kind in KINDS}
    for path in sorted(folder.rglob("*")):
        if path.is_file() and ".git" not in path.parts and not OTHER.search(path.name):
            kind = next((kind for kind, (name, _) in KINDS.items() if re.search(name, path.name, re.IGNORECASE)), None)
            if kind is not None:
                found[kind].append(path)
    return found


def pairs(folder: Path) -> Iterator[tuple[Path, Path]]:
    """Yield topics and judgments whose names say that they belong together."""
    named: dict[str, dict[str, Path]] = defaultdict(dict)
    for kind in ("topics", "qrels"):
        for path in sorted(folder.rglob(f"{kind}.*")):
            if (name := NAME.fullmatch(path.name)) and path.is_file() and not OTHER.search(path.name):
                named[f"{path.parent.parent}/{name[1]}"][kind] = path
    yield from ((both["topics"], both["qrels"]) for both in named.values() if len(both) > 1)


def measured(inputs: list[Any], read: Callable[[Any], Any]) -> dict[str, Any]:
    """Return how many inputs are read, how many with something said, and the errors of the others."""
    refused: dict[str, str] = {}
    noted = 0
    for each in inputs:
        try:
            noted += bool(getattr(read(each), "notes", ()))
        except VectorSearchError as exc:
            refused[str(each)] = str(exc)
    return {"files": len(inputs), "read": len(inputs) - len(refused), "with_notes": noted, "refused": refused}


def reason_of(error: str) -> str:
    """Return an error without what is particular to its file."""
    told = re.sub(r"^.*?(, line \d+|, item \d+)?: ", "", error, count=1)
    return re.sub(r"'[^']*'|\d[\d,]*", "…", told)[:110]


if __name__ == "__main__":
    main()
