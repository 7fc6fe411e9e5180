"""A clock that stands still, and a loader whose every step can be held, counted and made to fail."""

from __future__ import annotations

import threading
from collections import Counter, defaultdict
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any

from lifecycle import InstanceKey, ModelConfig, ModelManager, ModelRef

if TYPE_CHECKING:
    from collections.abc import Callable

    from lifecycle.heart.states import State
    from lifecycle.leasing.lease import Lease

COLD = ModelConfig(warm_up=False)


class FakeClock:
    """Seconds that pass only when a test says so."""

    def __init__(self) -> None:
        self.now = 1000.0

    def __call__(self) -> float:
        """Return the time."""
        return self.now


@dataclass
class Gate:
    """A step that waits: `reached` when somebody is there, `opened` to let everybody through."""

    reached: threading.Event = field(default_factory=threading.Event)
    opened: threading.Event = field(default_factory=threading.Event)


@dataclass(frozen=True)
class FakeSpec:
    """What the fake loader loads."""

    digest: str
    estimate: int
    measured: int


class FakeModel:
    """A model that knows who loaded it."""

    def __init__(self, loader: FakeLoader, spec: FakeSpec) -> None:
        self.loader = loader
        self.name = spec.digest
        self.closed = False
        self.warm = False
        self.device = "fake:0"
        self._nbytes = spec.measured

    @property
    def nbytes(self) -> int:
        """Return the measured size."""
        self.loader.pass_through(self.name, "nbytes")
        return self._nbytes

    def warm_up(self) -> None:
        """Note that it was called."""
        self.loader.pass_through(self.name, "warm_up")
        self.warm = True

    def close(self) -> None:
        """Close, once."""
        assert not self.closed, "closed twice"
        self.loader.pass_through(self.name, "close")
        self.closed = True
        self.loader.resident[self.name] -= 1


class FakeLoader:
    """Load fakes. `gates` and `faults` are by (model, step); steps are estimate, load, nbytes, warm_up, close."""

    name = "fake"

    def __init__(self) -> None:
        self.gates: dict[tuple[str, str], Gate] = {}
        self.faults: dict[tuple[str, str], list[BaseException]] = defaultdict(list)
        self.done: Counter[tuple[str, str]] = Counter()
        self.resident: Counter[str] = Counter()
        self.order: list[str] = []

    def pass_through(self, name: str, step: str) -> None:
        """Count the step, wait at its gate, and fail if the next fault is due."""
        self.done[name, step] += 1
        self.order.append(f"{step} {name}")
        gate = self.gates.get((name, step))
        if gate is not None:
            gate.reached.set()
            gate.opened.wait()
        if self.faults[name, step]:
            raise self.faults[name, step].pop(0)

    def hold(self, name: str, step: str = "load") -> Gate:
        """Make a step wait."""
        return self.gates.setdefault((name, step), Gate())

    def estimate(self, spec: FakeSpec) -> int:
        """Return what the spec says."""
        self.pass_through(spec.digest, "estimate")
        return spec.estimate

    def load_model(self, spec: FakeSpec) -> FakeModel:
        """Load."""
        self.pass_through(spec.digest, "load")
        self.resident[spec.digest] += 1
        return FakeModel(self, spec)


class Call(threading.Thread):
    """A function on a thread of its own, and how it ended."""

    def __init__(self, function: Callable[[], Any]) -> None:
        super().__init__(daemon=True)
        self._function = function
        self._value: Any = None
        self._error: BaseException | None = None
        self.start()

    def run(self) -> None:
        """Run the function and keep what it returned or raised."""
        try:
            self._value = self._function()
        except BaseException as error:  # noqa: BLE001 - it is kept, to be raised or looked at
            self._error = error

    def result(self) -> Any:
        """Wait, and return or raise what the function did."""
        self.join()
        if self._error is not None:
            raise self._error
        return self._value

    def error(self) -> BaseException | None:
        """Wait, and return what the function raised."""
        self.join()
        return self._error


class Bench:
    """A manager with fakes around it. Models are single letters, in tenant `t`."""

    def __init__(self, budget: int, **limits: Any) -> None:
        self.clock = FakeClock()
        self.loader = FakeLoader()
        limits.setdefault("resident", lambda: None)  # what a test's process does is not the fakes' doing
        self.manager = ModelManager(budget, clock=self.clock, **limits)
        self.has_quarantine = False  # a test that ends with one sets this

    def add(self, name: str, nbytes: int = 1, config: ModelConfig = COLD, **fields: Any) -> ModelRef:
        """Register a model."""
        ref = ModelRef("t", name)
        spec = FakeSpec(fields.get("digest", name), nbytes, fields.get("measured", nbytes))
        self.manager.register(ref, spec, self.loader, config)
        return ref

    def lease(self, name: str, timeout_s: float = 30.0) -> Lease:
        """Return a lease on a model."""
        return self.manager.lease(ModelRef("t", name), timeout_s)

    def use(self, name: str, timeout_s: float = 30.0) -> bool:
        """Take and return a lease, and tell whether it was cold."""
        with self.lease(name, timeout_s) as model:
            lease_name = model.name
        assert lease_name == name
        return self.loader.done[name, "load"] > 0

    def use_all(self, names: str, timeout_s: float = 30.0) -> list[str]:
        """Take and return a set, and tell whose models it was."""
        with self.manager.lease_set([ModelRef("t", name) for name in names], timeout_s) as models:
            return [model.name for model in models]

    def later(self, name: str, timeout_s: float = 30.0) -> Call:
        """Ask for a lease on a thread of its own."""
        return Call(lambda: self.use(name, timeout_s))

    def until(self, holds: Callable[[State], bool]) -> State:
        """Wait for a state of the heart."""
        self.manager._keeper.wait_until(holds)
        return self.state

    def waiting(self, count: int) -> None:
        """Wait until so many callers wait."""
        self.until(lambda state: len(state.queue) == count)

    def pass_time(self, seconds: float) -> None:
        """Let the clock run, and everything that is due happen; what was sent before happens before."""
        self.manager.reap()
        self.clock.now += seconds
        self.manager.reap()

    @property
    def state(self) -> State:
        """Return the heart's state."""
        return self.manager._keeper.state

    def phase(self, name: str) -> str:
        """Return the phase of a model."""
        return self.manager.status(ModelRef("t", name)).state

    def loads(self, name: str) -> int:
        """Return how often a model was loaded."""
        return self.loader.done[name, "load"]

    def finish(self) -> None:
        """Open all gates and close: nothing may be left charged or resident, nor any thread."""
        for gate in self.loader.gates.values():
            gate.opened.set()
        self.loader.faults.clear()
        if self.has_quarantine:
            return
        self.manager.close()
        assert self.state.charged_nbytes == 0
        assert not +self.loader.resident


def key(name: str) -> InstanceKey:
    """Return the key under which a bench registers a model."""
    return InstanceKey(name, "fake")
