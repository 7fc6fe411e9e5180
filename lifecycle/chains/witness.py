"""`Witness`: what later instances of some weights are compared with."""

from __future__ import annotations

from typing import TYPE_CHECKING, NamedTuple

if TYPE_CHECKING:
    import numpy as np
    from numpy.typing import NDArray


class Witness(NamedTuple):
    """What the first instance of some weights that served answered to the probe, and who that was."""

    name: str
    fingerprint: NDArray[np.float32]
    quantises: bool
