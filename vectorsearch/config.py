"""Defaults, and what this process may use."""

from __future__ import annotations

import os
from pathlib import Path
from typing import Final

DEFAULT_EMBEDDER: Final = "bge-small-en-v1.5-int8"
DEFAULT_RERANKER: Final = "ms-marco-MiniLM-L-12-v2-int8"
# The first use of a model may have to download it; a caller waits this long, in seconds, before `LeaseTimeout`.
LEASE_TIMEOUT_S: Final = 300.0
# How a hybrid search takes a feature model's list beside BM25's, where nobody says: it then helps, and as an equal of
# BM25's it harms (backends/README.md, Feature models).
FEATURES_FUSION: Final = "minmax"
FEATURES_WEIGHTS: Final = {"lexical": 1.0, "dense": 0.2}
WRITE_CHUNK_DOCUMENTS: Final = 1000
EMBED_CHUNK_DOCUMENTS: Final = 256

_CGROUP_LIMITS = ("/sys/fs/cgroup/memory.max", "/sys/fs/cgroup/memory/memory.limit_in_bytes")


def default_budget_nbytes() -> int:
    """Return half the bytes of memory that this process may use."""
    return memory_nbytes() // 2


def memory_nbytes() -> int:
    """Return the bytes of memory that this process may use: the machine's, or its cgroup's limit if less."""
    limits = [os.sysconf("SC_PAGE_SIZE") * os.sysconf("SC_PHYS_PAGES")]
    for path in _CGROUP_LIMITS:
        try:
            text = Path(path).read_text(encoding="ascii").strip()
        except OSError:
            continue
        if text.isdigit():
            limits.append(int(text))
    return min(limits)
