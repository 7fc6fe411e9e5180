"""Which FAISS index the dense base is, from how many vectors on there is one, and how widely it is searched. Pure."""

from __future__ import annotations

import re
from dataclasses import dataclass
from typing import Literal

from backends.errors import InvalidInput

Family = Literal["flat", "graph", "lists", "codes"]

# Measured on 2 cores with 384 dimensions: a scan of 50,000 takes 7 ms, their graph 0.3 ms and 9 s to build.
AUTO_GRAPH_VECTORS = 50_000
# Recall@10 of 0.999 on 100,000 clustered vectors of 384 dimensions. With half of it, now and then a query reached none
# of its neighbours: their cluster was left out.
_EF_SEARCH = 128
# A queue so long that a scan would be as fast isn't tried.
_WIDEST_OF_FEW = 1024
_WIDEST_SHARE = 240  # of the vectors
# Of what a filter lets through: up to so many vectors a scan is as fast as the graph, and finds all; below this share
# of all, the graph mostly visits vectors that the filter forbids.
_SCANNED_VECTORS = 10_000
_FETCHED_VECTORS = 1_000  # the same where whole vectors must be read from the store
_SCANNED_SHARE = 0.05
_TAIL_VECTORS = 2048
_TAIL_SHARE = 0.1
_DEAD_SHARE = 0.2
_TRAINED_ON = 64  # vectors for each list or centroid: FAISS asks for 39 at least
_CENTROIDS = 256
_REFINES = (2, 4, 16, 64)  # of codes

# Product quantisation only in lists: FAISS can't filter a plain one, and a graph over it trained for minutes.
_CODE = "Flat|SQ8|SQfp16"
_FACTORY = re.compile(rf"({_CODE})|HNSW(?P<links>\d+)(,({_CODE}))?|IVF(?P<lists>\d+),({_CODE}|PQ[1-9]\d*)")
_EXAMPLES = "'auto', 'exact', 'Flat', 'SQ8', 'HNSW32', 'HNSW32,SQ8', 'IVF1024,Flat' or 'IVF1024,PQ48'"


@dataclass(frozen=True, slots=True)
class Reach:
    """How widely a base is searched: `breadth` is the graph's queue or the number of lists that are visited.

    A `breadth` of 0 looks at every code. `refine` times as many candidates as are wanted are scored again with their
    whole vectors.
    """

    breadth: int
    refine: int = 1


@dataclass(frozen=True, slots=True)
class BasePlan:
    """The base as a FAISS factory string, and from how many vectors on there is one; below, all is tail."""

    factory: str
    min_vectors: int

    @property
    def family(self) -> Family:
        """Return what it is at heart: a scan of whole vectors or of codes, a graph, or lists."""
        if self.factory.startswith("HNSW"):
            return "graph"
        if self.factory.startswith("IVF"):
            return "lists"
        return "flat" if self.factory == "Flat" else "codes"

    @property
    def holds_vectors(self) -> bool:
        """Tell whether it holds whole vectors in the order of its rows, so that they can be read there."""
        whole = self.factory == "Flat" or self.factory.endswith(",Flat") or "," not in self.factory
        return whole and self.family in ("flat", "graph")

    @property
    def n_lists(self) -> int:
        """Return the number of lists, 0 where there are none."""
        return int(self.factory[3:].partition(",")[0]) if self.family == "lists" else 0

    @property
    def n_training(self) -> int:
        """Return how many vectors it learns its lists and codes from."""
        return _TRAINED_ON * max(self.n_lists, _CENTROIDS if self.is_coded else 1)

    @property
    def is_coded(self) -> bool:
        """Tell whether it holds codes that only come near the vectors."""
        return "PQ" in self.factory or "SQ" in self.factory

    def reaches(self, n_vectors: int) -> list[Reach]:
        """Return how widely an index of so many vectors can be searched, narrow and fast first."""
        refines = _REFINES if self.is_coded else (1,)
        match self.family:
            case "graph":
                widest = max(_WIDEST_OF_FEW, n_vectors // _WIDEST_SHARE)
                breadths = [b for half in (2, 3, 4, 6, 8, 16, 32, 64) if (b := _EF_SEARCH * half // 2) <= widest]
            case "lists":
                breadths = [b for i in range(4, 20) if (b := 1 << i) < self.n_lists] + [self.n_lists]
            case _:
                breadths = [0]
        return [Reach(breadth, refine) for refine in refines for breadth in breadths]

    @property
    def last_reaches(self) -> list[Reach]:
        """Return how codes are searched that their graph leads to too rarely: all of them; else nothing."""
        return [Reach(0, refine) for refine in _REFINES] if self.family == "graph" and self.is_coded else []


def base_plan(dense: str) -> BasePlan:
    """Return the plan for the setting `dense`: "auto", or a FAISS factory string.

    Codes (`SQ8`, `SQfp16`, `PQ<bytes>`) save memory: whole vectors are then read from the store, for candidates only.

    Raises:
        InvalidInput: another string.
    """
    if dense == "auto":
        return BasePlan("HNSW32", AUTO_GRAPH_VECTORS)
    found = _FACTORY.fullmatch(dense) if isinstance(dense, str) else None
    if found is None or (found["links"] and int(found["links"]) < 2) or found["lists"] == "0":  # noqa: PLR2004 -- links
        raise InvalidInput(f"dense index {dense!r} is unknown: use {_EXAMPLES}")
    plan = BasePlan(dense, 1)
    return plan if plan.holds_vectors else BasePlan(dense, plan.n_training)


def is_scanned(allowed: int, vectors: int, *, in_memory: bool = True) -> bool:
    """Return whether a search among `allowed` of the vectors reads each of them, whatever the index is."""
    if not in_memory:
        return allowed <= _FETCHED_VECTORS
    return allowed <= _SCANNED_VECTORS or allowed < _SCANNED_SHARE * vectors


def next_step(
    plan: BasePlan, *, base: int | None, base_dead: int, tail: int, new: int
) -> Literal["append", "extend", "rebuild"]:
    """Decide, from counts of vectors, how `new` ones join: into the tail, into a longer base, or into a fresh one.

    `tail` are the live ones there. Lists that too few are left for to be learnt again keep their dead.
    """
    if base is None:
        return "rebuild" if tail + new >= plan.min_vectors else "append"
    can_learn = not plan.n_lists or base - base_dead + tail + new >= plan.min_vectors
    if base_dead > _DEAD_SHARE * base and can_learn:
        return "rebuild"
    return "extend" if tail + new > max(_TAIL_VECTORS, _TAIL_SHARE * base) else "append"
