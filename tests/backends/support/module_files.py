"""The files in which sentence-transformers describes a model, small, for folders that tests write."""

from __future__ import annotations

from typing import Any


def modules(*kinds: str) -> list[dict[str, Any]]:
    """Return a modules.json of a Transformer and what follows it, each in the folder that it usually has."""
    return [
        {"idx": i, "name": str(i), "path": f"{i}_{kind}" if i else "", "type": f"sentence_transformers.models.{kind}"}
        for i, kind in enumerate(("Transformer", *kinds))
    ]


def pooled(pooling: Any, *after: str, **more: Any) -> dict[str, Any]:
    """Return the files of a Transformer, a Pooling of these modes, and the modules after it."""
    return {
        "modules.json": modules("Pooling", *after),
        "1_Pooling/config.json": {"embedding_dimension": 32, "pooling_mode": pooling, **more},
    }
