"""Whether a model that was trained still tells texts apart. Pure."""

from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np

from backends.errors import InvalidModel

if TYPE_CHECKING:
    from collections.abc import Sequence

    from numpy.typing import NDArray

_NOISE = 1e-5  # of the largest score: what float32 leaves of equal ones


def check_scores(scores: Sequence[NDArray[np.float32]]) -> None:
    """Refuse a model that scores the texts of every query alike, or by what is no number; float32[n] for each query.

    Raises:
        InvalidModel: the training has ruined it.
    """
    if not all(np.isfinite(each).all() for each in scores):
        fault = "scores that are no finite numbers"
    elif not any(np.ptp(each) > _NOISE * max(1.0, float(np.abs(each).max())) for each in scores if each.size):
        fault = "the same score to all texts of a query"
    else:
        return
    raise InvalidModel(
        f"the training has ruined the model: it gives {fault}, so nothing was written; "
        "take a lower learning rate, more steps, or other queries"
    )
