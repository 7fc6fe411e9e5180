"""Fit a feature model on the documents of a database: dense search without a download, see `feature_model`."""

from __future__ import annotations

from typing import TYPE_CHECKING

from backends.features import feature_model
from backends.features.feature_fit import TermCounts, fit
from backends.features.feature_model import FeatureTokenizer

if TYPE_CHECKING:
    from collections.abc import Callable
    from pathlib import Path

    from backends.base import ModelSpec
    from vectorsearch.database.database import Database

DEFAULT_DIM = 256


def fit_features(
    db: Database,
    folder: Path,
    *,
    dim: int = DEFAULT_DIM,
    seed: int = 0,
    progress: Callable[[str, int, int], None] | None = None,
) -> ModelSpec:
    """Fit a feature model on all documents of a database and save it as a new folder; the database stays as it is.

    The folder can be given as `embed` wherever a model can. Documents are read one by one; what is held of each are
    some tens of bytes for each different word, and a few hundred documents at a time as a dense block.

    Args:
        db: its language decides on stemming and stop words.
        folder: must not be there yet.
        dim: length of the vectors; at most the number of documents, and of terms that two documents share.
        seed: of the randomised fit; the same documents and seed give the same model on one machine.
        progress: called with the step (`reading`, `fitting`), and how much of how much of it is done.

    Raises:
        InvalidInput: the documents are too few for `dim`, or the folder is there.
        OSError: the folder can't be written.
    """
    feature_model.check_free(folder)
    report = progress or (lambda _step, _done, _total: None)
    language = db.language
    tokenizer = FeatureTokenizer(language)
    counts, total = TermCounts(), db.count()
    for done, document in enumerate(db.iter(), 1):
        counts.add(tokenizer.hashes(document.full_text))
        report("reading", done, max(done, total))
    features = fit(
        counts, dim=dim, language=language, seed=seed, progress=lambda done, steps: report("fitting", done, steps)
    )
    return feature_model.save(features, folder, {"documents": len(counts), "seed": seed})
