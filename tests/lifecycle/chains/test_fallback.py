"""Fallback: down the chain for transient errors only, each step an admission, never to another embedding space."""

from __future__ import annotations

import logging
import threading
from typing import TYPE_CHECKING, Any

import numpy as np
import pytest
from lifecycle_fakes import Call, FakeClock
from prometheus_client import CollectorRegistry

from backends.engines.fake_backend import FakeBackend, FakeModel, Fault, fake_spec
from backends.errors import DeadlineExceeded, InferenceError, InvalidInput, TransientBackendError
from backends.running.deadline import Deadline
from backends.running.text_model import TextLoader
from lifecycle import (
    BudgetExhausted,
    Chain,
    FallbackExhausted,
    LeaseTimeout,
    LoadFailed,
    ModelConfig,
    ModelManager,
    ModelRef,
    OtherVectors,
)
from lifecycle.events import Event, FellBack
from lifecycle.metrics import MetricsCollector

if TYPE_CHECKING:
    from collections.abc import Iterator

    from numpy.typing import NDArray

    from backends.base import LoadedModel, ModelSpec, TokenBatch
    from lifecycle.leasing.lease import Lease

SPEC = fake_spec("m")
OOM, CRASH = Fault.OUT_OF_MEMORY, Fault.CRASH
COLD = ModelConfig(warm_up=False)  # so that a script's first step is the first call's


class Turned(FakeModel):
    """A fake whose vectors are turned by an angle, on a device of its own; it may say that it quantises."""

    def __init__(self, spec: ModelSpec, owner: Turning) -> None:
        super().__init__(spec, owner, 1)
        self.quantises = owner.quantises

    @property
    def device(self) -> str:
        """Return the device that was found in place of the one that was wanted."""
        return "cpu:found-instead"

    def infer(self, batch: TokenBatch) -> NDArray[np.float32]:
        """Mix each number with its neighbour: all are moved by the same angle, more or less."""
        vectors = super().infer(batch)
        angle = self._owner.angle  # type: ignore[attr-defined]  (a Turning)
        mixed = np.cos(angle) * vectors + np.sin(angle) * np.roll(vectors, 1, axis=1)
        return np.asarray(mixed / np.linalg.norm(mixed, axis=1, keepdims=True), np.float32)


class Turning(FakeBackend):
    """Loads `Turned` models."""

    def __init__(self, name: str, angle: float, *, quantises: bool = False) -> None:
        super().__init__(name, nbytes=1)
        self.angle = angle
        self.quantises = quantises

    def load_model(self, spec: ModelSpec) -> LoadedModel:
        """Load."""
        super().load_model(spec)
        return Turned(spec, self)


class House:
    """A manager on a fake clock, and chains of fake backends on it."""

    def __init__(self, budget: int) -> None:
        self.clock = FakeClock()
        self.manager = ModelManager(budget, clock=self.clock, backoff_s=0.001)
        self.events: list[Event] = []
        self.manager.subscribe(self.events.append)

    def chain(self, *backends: FakeBackend, config: ModelConfig = COLD, spec: ModelSpec = SPEC) -> Chain:
        """Register one model on each backend."""
        refs = [ModelRef("t", f"{spec.name}+{backend.name}") for backend in backends]
        for ref, backend in zip(refs, backends, strict=True):
            self.manager.register(ref, spec, TextLoader(backend), config)
        return Chain(self.manager, refs)

    def counts(self) -> list[tuple[str, int, int, int]]:
        """Return each backend's successes, failures and fallbacks."""
        return [(h.backend, h.successes, h.failures, h.fallbacks) for h in self.manager.health.report()]


@pytest.fixture
def house() -> Iterator[House]:
    """Give a manager with room for ten fakes of one byte."""
    made = House(10)
    yield made
    made.manager.close()


def backend(name: str, **script: Any) -> FakeBackend:
    """Return a fake of one byte."""
    return FakeBackend(name, nbytes=1, **script)


def ran(model: Any, lease: Lease) -> tuple[str, str | None]:
    """Embed something, and tell where."""
    model.embed(["some text"], kind="query")
    return lease.backend, lease.device


@pytest.mark.parametrize("where", ["loads", "infers"])
def test_next_backend_answers_when_the_first_fails_for_a_while(
    house: House, where: str, caplog: pytest.LogCaptureFixture
) -> None:
    """Out of memory, in a load or in the work, leads on: counted, logged with its fields, told to the hooks."""
    one, two = backend("one", **{where: [OOM]}), backend("two")
    chain = house.chain(one, two)
    assert chain.run(ran) == ("two", "cpu:fake")
    assert house.counts() == [("one", 0, 1, 1), ("two", 1, 0, 0)]
    (record,) = caplog.records
    assert (record.levelno, record.name) == (logging.WARNING, "lifecycle.fallback")
    told = vars(record)
    assert [told[name] for name in ("event", "models", "backend", "to_backend")] == [
        "FellBack",
        ["t/m+one"],
        "one",
        "two",
    ]
    assert isinstance(told["error"], LoadFailed if where == "loads" else TransientBackendError)
    house.clock.now += 1.0
    assert chain.run(ran) == ("one", "cpu:fake")
    snapshot = house.manager.snapshot()
    assert snapshot.counters.fallbacks == 1
    house.manager.close()
    (event,) = (event for event in house.events if isinstance(event, FellBack))
    assert (event.key.backend, event.to_key.backend, event.error) == ("one", "two", told["error"])


def test_fallbacks_are_exported_by_model_and_bounded(house: House) -> None:
    """Fallbacks count by the tenant, model and backend that were left; beyond the bound all models are one series."""
    registry = CollectorRegistry()
    registry.register(MetricsCollector(house.manager, most_models=1))
    for name, failures in (("m", 3), ("n", 2)):
        chain = house.chain(backend("one", infers=[OOM] * failures), backend("two"), spec=fake_spec(name))
        for _ in range(failures):
            chain.run(ran)
        house.manager.health.of("one").succeeded()  # so that its breaker stays closed
    house.manager.close()
    assert registry.get_sample_value("lifecycle_fallbacks_total") == 5
    (family,) = (family for family in registry.collect() if family.name == "lifecycle_model_fallbacks")
    counted = {sample.labels["model"]: sample.value for sample in family.samples if sample.name.endswith("_total")}
    assert len(counted) == 2
    assert sum(counted.values()) == 5


@pytest.mark.parametrize("script", [{"infers": [CRASH]}, {"loads": [CRASH]}, {"infers": [Fault.NAN]}])
def test_nothing_else_is_tried_when_the_error_is_not_transient(house: House, script: dict[str, Any]) -> None:
    """A crash, a damaged file or NaN is raised as it is: another backend is not asked, and not loaded."""
    two = backend("two")
    with pytest.raises((InferenceError, LoadFailed)) as raised:
        house.chain(backend("one", **script), two).run(ran)
    assert not isinstance(raised.value, FallbackExhausted)
    assert two.loaded == 0
    assert house.counts()[0] == ("one", 0, 0, 0)


def test_every_error_is_kept_when_all_backends_fail(house: House) -> None:
    """The group holds one error for each attempt, in order, the one that ended the chain included."""
    chain = house.chain(
        backend("one", infers=[OOM]), backend("two", loads=[OOM]), backend("three", infers=[CRASH]), backend("four")
    )
    with pytest.raises(FallbackExhausted, match="failed on 3 backends") as raised:
        chain.run(ran)
    assert [type(error) for error in raised.value.exceptions] == [TransientBackendError, LoadFailed, InferenceError]
    assert raised.value.split(LoadFailed)[0].exceptions == (raised.value.exceptions[1],)  # type: ignore[union-attr]  (there is one)
    assert house.manager.status(ModelRef("t", "m+four")).loads == 0


def test_error_is_raised_as_it_is_when_there_is_no_other_backend(house: House) -> None:
    """A chain of one adds nothing to its backend's own error."""
    with pytest.raises(TransientBackendError):
        house.chain(backend("one", infers=[OOM])).run(ran)


def test_step_is_an_admission_when_the_budget_holds_one_model() -> None:
    """The next backend's model is loaded within the budget: the first's leaves for it; without room it is refused."""
    house = House(1)
    one, two = backend("one", infers=[OOM]), backend("two")
    chain = house.chain(one, two)
    assert chain.run(ran) == ("two", "cpu:fake")
    assert (one.loaded, one.closed, two.loaded) == (1, 1, 1)
    assert house.manager.snapshot().charged_nbytes == 1
    one._scripts["infer"].append(OOM)
    large = FakeBackend("large", nbytes=2)
    with pytest.raises(FallbackExhausted) as raised:
        house.chain(one, large, config=COLD).run(ran)
    assert isinstance(raised.value.exceptions[1], BudgetExhausted)
    house.manager.close()


def test_other_vectors_are_refused_when_they_come_from_the_same_weights(house: House) -> None:
    """L45: a backend that computes another space is refused by name with its cosine; the next one is asked."""
    one, other, third = backend("one", infers=[None, OOM]), Turning("other", 0.3), backend("third")
    chain = house.chain(one, other, third)
    with house.manager.lease(chain.refs[0]) as model:
        assert model.fingerprint.shape == (4, 64)
    assert chain.run(ran) == ("third", "cpu:fake")
    one._scripts["infer"].append(OOM)
    third._scripts["infer"].append(OOM)
    with pytest.raises(FallbackExhausted) as raised:
        chain.run(ran)
    refused = raised.value.exceptions[1]
    assert isinstance(refused, OtherVectors)
    for part in ("other (cpu:found-instead)", "one (cpu:fake)", "cosine 0.9"):
        assert part in str(refused)
    assert other.loaded == 1, "what was refused is not loaded again"


@pytest.mark.parametrize(
    ("angle", "quantises", "agrees"),
    [(0.03, False, True), (0.06, False, False), (0.06, True, True), (0.2, True, False)],
)
def test_bound_is_wider_when_a_side_quantises(house: House, angle: float, quantises: bool, agrees: bool) -> None:  # noqa: FBT001  (cases)
    """L45: cosines down to 0.999 agree between float computations, down to 0.99 where activations are rounded."""
    chain = house.chain(
        backend("one", loads=[None, OOM]), Turning("other", angle, quantises=quantises), config=ModelConfig()
    )
    chain.run(ran)
    house.manager.unload(chain.refs[0])
    if agrees:
        assert chain.run(ran) == ("other", "cpu:found-instead")
    else:
        with pytest.raises(FallbackExhausted) as raised:
            chain.run(ran)
        assert isinstance(raised.value.exceptions[1], OtherVectors)


def test_chain_is_refused_when_its_models_differ(house: House) -> None:
    """L45: refs of two digests are no chain, and a ref that was made to mean other weights is not fallen back to."""
    with pytest.raises(InvalidInput, match="one model"):
        Chain(
            house.manager, [*house.chain(backend("one")).refs, *house.chain(backend("two"), spec=fake_spec("n")).refs]
        )
    with pytest.raises(InvalidInput):
        Chain(house.manager, [])
    one = backend("one", infers=[OOM])
    chain = house.chain(one, backend("three"), spec=fake_spec("o"))
    house.manager.replace(chain.refs[1], fake_spec("p"), TextLoader(backend("three")))
    with pytest.raises(FallbackExhausted) as raised:
        chain.run(ran)
    assert isinstance(raised.value.exceptions[1], OtherVectors)


def test_lease_names_the_device_when_the_wanted_one_is_missing(house: House) -> None:
    """L44: lease, status and result say which device was found, not which backend name suggests another."""
    chain = house.chain(Turning("gpu", 0.0))
    assert chain.run(ran) == ("gpu", "cpu:found-instead")
    assert house.manager.status(chain.ref).device == "cpu:found-instead"


def test_load_fails_when_a_device_is_insisted_on_and_missing(house: House) -> None:
    """L44: whoever insists on a device gets an error that names both, and nothing stays loaded; any prefix will do."""
    gpu = Turning("gpu", 0.0)
    for name, device in (("strict", "cuda"), ("content", "cpu")):
        house.manager.register(ModelRef("t", name), fake_spec(name), TextLoader(gpu, device=device), COLD)
    with pytest.raises(LoadFailed, match="'cuda', and gpu runs it on 'cpu:found-instead'"):
        house.manager.lease(ModelRef("t", "strict")).__enter__()
    with house.manager.lease(ModelRef("t", "content")) as model:
        assert model.device == "cpu:found-instead"
    assert (gpu.loaded, gpu.closed) == (2, 1)


def test_breaker_sends_calls_elsewhere_and_brings_them_back(house: House) -> None:
    """After five failures nobody asks the first backend for a while; then one call probes it, and all return to it."""
    one, two = backend("one", infers=[OOM] * 5), backend("two")
    chain = house.chain(one, two)
    for _ in range(8):
        assert chain.run(ran)[0] == "two"
    assert house.counts() == [("one", 0, 5, 8), ("two", 8, 0, 0)]
    assert [each.backend for each in house.manager.health.check_health()] == ["one"]
    assert chain.ref == chain.refs[1]
    house.clock.now += 30.0
    assert [chain.run(ran)[0], chain.run(ran)[0]] == ["one", "one"]
    assert chain.ref == chain.refs[0]


def test_backend_is_asked_all_the_same_when_every_breaker_is_open(house: House) -> None:
    """A chain whose backends are all in trouble tries them in order rather than refuse a call that might succeed."""
    one = backend("one", infers=[OOM] * 5)
    chain = house.chain(one)
    for _ in range(5):
        with pytest.raises(TransientBackendError):
            chain.run(ran)
    assert not house.manager.health.of("one").is_closed
    assert chain.run(ran)[0] == "one"
    assert house.manager.health.of("one").is_closed


def test_time_is_shared_when_a_step_has_used_some_of_it(house: House) -> None:
    """What the first backend took of `timeout_s` is not there for the second: it fails at once, and says so."""
    chain = house.chain(backend("one"), backend("two"))

    def slow(model: Any, lease: Lease) -> None:
        house.clock.now += 20.0
        raise TransientBackendError(f"{lease.backend} {model.device}")

    with pytest.raises(FallbackExhausted) as raised:
        chain.run(slow, timeout_s=15.0)
    assert isinstance(raised.value.exceptions[1], LeaseTimeout | BudgetExhausted)


def test_lease_is_kept_until_the_work_ends_when_its_caller_has_left(house: House) -> None:
    """A model that can't stop goes on after its caller's deadline, and can't be unloaded before its work has ended."""
    gate = threading.Event()
    one = backend("one", infers=[None, None, gate])  # the probe, the first call, the second
    chain = house.chain(one)
    assert chain.run(ran, deadline=Deadline.after(60.0)) == ("one", "cpu:fake")
    with pytest.raises(DeadlineExceeded):
        chain.run(ran, deadline=Deadline.after(0.2))  # time for it to begin
    assert house.manager.status(chain.ref).leases == 1
    unload = Call(lambda: house.manager.unload(chain.ref))
    gate.set()
    unload.join(600.0)
    assert (one.closed, house.manager.status(chain.ref).leases) == (1, 0)
    assert house.counts() == [("one", 1, 0, 0)], "a deadline says nothing against a backend"
