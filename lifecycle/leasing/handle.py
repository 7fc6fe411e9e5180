"""`ModelHandle`: one loaded instance, the leases that are open on it, and the gate through which new ones pass.

The gate is a handshake without a lock. Whoever takes a lease stores its token, then looks at `shut`; the manager
stores `shut`, then counts the tokens. In every order one of the two sees the other: either the lease is refused and
takes its token back, or the manager counts it. A set's `add`, `discard` and `copy` are atomic with the GIL and hold
the set's own lock without it; `len` alone would not, which is why `refs` counts a copy.
"""

from __future__ import annotations

import math
import traceback
from typing import TYPE_CHECKING, Any

from lifecycle.config import MOST
from lifecycle.heart import signals
from lifecycle.heart.states import Job

if TYPE_CHECKING:
    from collections.abc import Callable

    from lifecycle.config import InstanceKey, Loader
    from lifecycle.keeping.reading import Reading


class ModelHandle:
    """A generation's model. Made by the manager with its gate shut; `on_idle` is told when a watched lease ends.

    A token is `id(lease)`. Discarding it twice is harmless, so a lease is returned exactly once however often, and
    from however many threads, it is closed. `hits`, `misses` and `peak` are statistics: without the GIL they may miss
    a few.
    """

    __slots__ = (
        "_loader",
        "_spec",
        "device",
        "generation",
        "hits",
        "key",
        "last_used",
        "loaded_from",
        "misses",
        "model",
        "on_idle",
        "peak",
        "shut",
        "taken_nbytes",
        "tokens",
        "warms_up",
        "watched",
    )

    def __init__(
        self, key: InstanceKey, generation: int, loader: Loader, spec: object, on_idle: Callable[[], None]
    ) -> None:
        self.key = key
        self.generation = generation
        self.model: Any = None
        self.device: str | None = None
        self.warms_up = False  # whether the model has something to do before it serves; the load's job finds out
        self.shut = True
        self.watched = True
        self.last_used = -math.inf
        self.hits = 0
        self.misses = 0
        self.peak = 0
        self.loaded_from: Reading | None = None  # this and the next are the keeper's, for `lifecycle.keeping.residue`
        self.taken_nbytes: int | None = None
        self.tokens: set[int] = set()
        self._loader = loader
        self._spec = spec
        self.on_idle = on_idle

    # The hot path: any thread, no lock.

    def acquire(self, token: int) -> bool:
        """Hold the model, unless the gate is shut; `count` or `take_back` follows."""
        self.tokens.add(token)
        if self.shut:
            self.tokens.discard(token)
            return False
        return True

    def count(self) -> None:
        """Count a lease that was given; one that was refused is no use of the model."""
        self.hits += 1
        open_leases = len(self.tokens)
        if open_leases > self.peak:  # noqa: PLR1730 - a call to max() would cost as much as all the rest
            self.peak = open_leases

    def take_back(self, token: int) -> None:
        """Let go of what was held for a lease that was not given: that was no use, so the time of last use stays."""
        self.tokens.discard(token)
        if self.watched:
            self.on_idle()

    def release(self, token: int, now: float) -> None:
        """Close a lease. `now` becomes the time of last use before the handle can be seen idle."""
        self.last_used = now
        self.tokens.discard(token)
        if self.watched:
            self.on_idle()

    def abandon(self, token: int) -> None:
        """Close a lease from a finalizer: nothing here takes a lock or calls back."""
        self.tokens.discard(token)

    # The keeper's side, on its thread.

    @property
    def refs(self) -> int:
        """Return the number of open leases."""
        return len(self.tokens.copy())

    def shut_gate(self) -> None:
        """Refuse new leases; from now on `refs` falls, but for tokens about to be taken back, and for loans.

        What runs under a hold may borrow what is held (`lease.LeaseBase.borrow`); `refs` is above 0 before and after.
        """
        self.watched = True
        self.shut = True

    def open_gate(self, *, watched: bool) -> None:
        """Let leases in. `watched` asks for a call at the end of each, as a TTL of 0 needs it."""
        self.shut = False
        self.watched = watched

    def grant(self, token: int) -> None:
        """Open a lease for an admission that the gate does not concern."""
        self.tokens.add(token)
        self.peak = max(self.peak, len(self.tokens))

    # Backend code, on a worker thread, under no lock, each job once.

    def perform(self, job: Job) -> signals.Input:
        """Run a job and return how it ended."""
        try:
            match job:
                case Job.LOAD:
                    return signals.Loaded(self.generation, self._load())
                case Job.WARM_UP:
                    self._warm_up()
                    return signals.Warmed(self.generation)
                case Job.UNLOAD:
                    self._unload()
                    return signals.Unloaded(self.generation)
        except BaseException as error:  # noqa: BLE001 - whatever a loader raises, everybody who waits is told
            traceback.clear_frames(error.__traceback__)  # else the error would keep what was half loaded in memory
            return signals.JobFailed(self.generation, error, loaded=self.model is not None)

    def _load(self) -> int:
        model = self._loader.load_model(self._spec)
        if not callable(getattr(model, "close", None)):  # else its bytes would never be known to be free
            raise TypeError(f"the loader returned a {type(model).__name__}, which has no close()")
        self.model = model
        nbytes = int(self.model.nbytes)
        if not 0 <= nbytes <= MOST:
            size = f"{nbytes}: a size can't be negative" if nbytes < 0 else "more than 2^63: that is no size"
            raise ValueError(f"the model's nbytes is {size}")
        self.warms_up = getattr(model, "warm_up", None) is not None
        device = getattr(self.model, "device", None)
        self.device = None if device is None else str(device)
        return nbytes

    def _warm_up(self) -> None:
        self.model.warm_up()

    def _unload(self) -> None:
        model, self.model = self.model, None
        model.close()
