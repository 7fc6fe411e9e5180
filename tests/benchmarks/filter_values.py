"""How long a filter with many values takes: `$in`, and as many equalities in `$or`.

python tests/benchmarks/filter_values.py [--documents 1000] [--rounds 3] [--json]

Each search has values that no search before it had, so nothing is remembered; one of them lets a document through.
The times are medians over the rounds, of a search by words in a database in memory.
"""

from __future__ import annotations

import argparse
import json
import statistics
import time
from typing import Any

import vectorsearch as vs

VALUES = (10, 100, 1_000, 10_000, 100_000)


def measure(documents: int, rounds: int) -> list[dict[str, Any]]:
    """Return the milliseconds of each shape by the number of its values."""
    rows = []
    with vs.open(embed=None) as db:
        db.add({"id": str(n), "text": "apple", "metadata": {"name": f"n{n}"}} for n in range(documents))
        db.search("apple", filter={"name": "n0"})
        for count in VALUES:
            taken: dict[str, list[float]] = {"$in": [], "$or": []}
            for number in range(rounds):
                names = ["n5", *(f"{number} of {count}, {n}" for n in range(count - 1))]
                shapes: dict[str, Any] = {"$in": {"name": {"$in": names}}, "$or": {"$or": [{"name": n} for n in names]}}
                for shape, wanted in shapes.items():
                    begun = time.perf_counter()
                    found = db.search("apple", k=1, filter=wanted)
                    taken[shape].append(1000 * (time.perf_counter() - begun))
                    assert [hit.id for hit in found] == ["5"]
            rows.append({"values": count, **{shape: round(statistics.median(ms), 1) for shape, ms in taken.items()}})
    return rows


def main() -> None:
    """Parse the arguments and print the figures."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--documents", type=int, default=1000)
    parser.add_argument("--rounds", type=int, default=3)
    parser.add_argument("--json", action="store_true", help="one line of JSON")
    options = parser.parse_args()
    rows = measure(options.documents, options.rounds)
    if options.json:
        print(json.dumps({"documents": options.documents, "rows": rows}))
        return
    for row in rows:
        print(f"{row['values']:7} values: $in {row['$in']:8.1f} ms, $or {row['$or']:8.1f} ms")


if __name__ == "__main__":
    main()
