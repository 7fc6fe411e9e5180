"""BM25's two constants: what they may be, and the ones that nobody has to name."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, Final, NamedTuple

import numpy as np

from backends.errors import InvalidInput

if TYPE_CHECKING:
    from typing import Self

_LARGEST_K1: Final = 1000.0


class BM25(NamedTuple):
    """`k1` says how much more a word counts that comes again, `b` how much less in a text longer than others.

    k1=0 counts a word once, b=0 takes no notice of length and b=1 all. S. Robertson and H. Zaragoza, The Probabilistic
    Relevance Framework: BM25 and Beyond, 2009.
    """

    k1: float = 1.2
    b: float = 0.75

    @classmethod
    def of(cls, k1: Any, b: Any) -> Self:  # noqa: ANN401 -- whatever a caller gave
        """Return the constants as plain numbers.

        Raises:
            InvalidInput: `k1` is no number from 0 to 1000, or `b` none from 0 to 1.
        """
        for name, value, largest in (("k1", k1, _LARGEST_K1), ("b", b, 1.0)):
            number = isinstance(value, int | float | np.number) and not isinstance(value, bool)
            if not number or not 0 <= value <= largest:  # NaN isn't either
                raise InvalidInput(f"{name} is {value!r}: it is a number from 0 to {largest:g}")
        return cls(float(k1), float(b))
