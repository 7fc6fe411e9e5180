"""Residue: what runtimes keep of models that are unloaded is measured and told."""

from __future__ import annotations

from collections import Counter
from typing import TYPE_CHECKING, Any

import pytest
from lifecycle_fakes import Bench, Call, FakeModel, FakeSpec
from prometheus_client import CollectorRegistry

from lifecycle import ModelRef, UnloadFailed
from lifecycle.events import ResidueLeft
from lifecycle.keeping.residue import resident_nbytes
from lifecycle.metrics import MetricsCollector

if TYPE_CHECKING:
    from collections.abc import Callable

MIB = 1 << 20


class Runtime:
    """A loader's memory: a load takes a model's size, an unload gives back all but what it keeps of that model."""

    def __init__(self, b: Bench) -> None:
        self.resident = 100 * MIB
        self.keeps: Counter[str] = Counter()
        self._load, self._bench = b.loader.load_model, b
        b.loader.load_model = self.load_model  # type: ignore[method-assign] - it is wrapped

    def load_model(self, spec: FakeSpec) -> FakeModel:
        """Load, and take the bytes."""
        model = self._load(spec)
        self.resident += spec.measured
        close = model.close

        def give_back() -> None:
            close()
            self.resident -= spec.measured - self.keeps[spec.digest]

        model.close = give_back  # type: ignore[method-assign] - as above
        return model


@pytest.fixture
def house(bench: Callable[..., Bench]) -> tuple[Bench, Runtime]:
    """Give a bench with room for 100 MiB whose runtime's memory is known, the first load of its backend done."""
    box: list[Runtime] = []
    b = bench(100 * MIB, resident=lambda: box[0].resident if box else None)
    box.append(Runtime(b))
    for name in "AB":
        b.add(name, 40 * MIB)
    cycle(b, "A")
    return b, box[0]


def cycle(b: Bench, name: str) -> None:
    """Load, use and unload a model."""
    b.use(name)
    b.manager.unload(ModelRef("t", name))


def test_nothing_is_told_when_all_memory_comes_back(house: tuple[Bench, Runtime]) -> None:
    """L33: thirty clean cycles leave no residue, though an allocator holds some memory at each second reading."""
    b, runtime = house
    for number in range(30):
        runtime.keeps["A"] = (30 if number % 2 else -30) * MIB
        cycle(b, "A")
    assert b.manager.snapshot().residue == {}
    assert b.manager.set_budget(100 * MIB) == 0


def test_residue_is_told_when_a_runtime_keeps_memory(house: tuple[Bench, Runtime]) -> None:
    """L33: what is kept is told by backend once it is a model's worth, and is gone when it comes back."""
    b, runtime = house
    told: list[Any] = []
    b.manager.subscribe(told.append)
    registry = CollectorRegistry()
    registry.register(MetricsCollector(b.manager))
    runtime.keeps["A"] = 25 * MIB
    cycle(b, "A")
    assert b.manager.snapshot().residue == {}, "less than a load takes"
    for _ in range(2):
        cycle(b, "A")
    snapshot = b.manager.snapshot()
    assert (snapshot.budget_nbytes, snapshot.charged_nbytes, snapshot.residue) == (100 * MIB, 0, {"fake": 75 * MIB})
    assert registry.get_sample_value("lifecycle_residue_bytes", {"backend": "fake"}) == 75 * MIB
    runtime.keeps["A"] = -90 * MIB
    cycle(b, "A")
    assert b.manager.snapshot().residue == {}
    b.manager.close()
    grown = [(event.key.digest, event.nbytes) for event in told if isinstance(event, ResidueLeft)]
    assert grown == [("A", 50 * MIB), ("A", 25 * MIB)]


def test_residue_falls_when_memory_is_found_given_back_before_the_next_load(house: tuple[Bench, Runtime]) -> None:
    """What is freed after the unload was read, as its thread ends, is no residue once that is seen."""
    b, runtime = house
    runtime.keeps["A"] = 40 * MIB
    for _ in range(5):
        cycle(b, "A")
        assert b.manager.snapshot().residue == {"fake": 40 * MIB}
        runtime.resident -= 40 * MIB
    b.use("A")
    assert b.manager.snapshot().residue == {}


def test_memory_is_not_counted_when_it_may_be_somebody_elses(house: tuple[Bench, Runtime]) -> None:
    """While another model is leased, hit or worked on, a change of memory says nothing about this one."""
    b, runtime = house
    runtime.keeps["A"] = 60 * MIB
    with b.lease("B"):
        cycle(b, "A")
    b.use("A")
    gate = b.loader.hold("A", "close")
    unload = Call(lambda: b.manager.unload(ModelRef("t", "A")))
    gate.reached.wait()
    b.use("B")
    gate.opened.set()
    unload.result()
    assert b.manager.snapshot().residue == {}


def test_residue_is_at_most_what_was_charged_when_the_program_grows_meanwhile(house: tuple[Bench, Runtime]) -> None:
    """Memory that the program takes while a model loads is counted up to the model's own charge, and no further."""
    b, runtime = house
    runtime.keeps["A"] = 900 * MIB
    cycle(b, "A")
    assert b.manager.snapshot().residue == {"fake": 40 * MIB}


def test_failed_unload_leaves_no_residue_when_its_bytes_stay_charged(house: tuple[Bench, Runtime]) -> None:
    """What a quarantined model holds is in the ledger already."""
    b, _ = house
    b.use("A")
    b.loader.faults["A", "close"] = [OSError("stuck")]
    for end in (lambda: b.manager.unload(ModelRef("t", "A")), b.manager.close):
        with pytest.raises(UnloadFailed, match="stuck"):
            end()
    assert b.manager.snapshot().residue == {}
    b.has_quarantine = True


def test_resident_memory_rises_when_memory_is_taken() -> None:
    """What the system says follows a large allocation, and nothing is told where it doesn't say."""
    before = resident_nbytes()
    held = bytearray(64 * MIB)
    held[::4096] = b"x" * len(held[::4096])
    after = resident_nbytes()
    assert (before is None) == (after is None)
    assert before is None or after - before > 32 * MIB


def test_nothing_is_counted_when_the_system_does_not_say(monkeypatch: pytest.MonkeyPatch, tmp_path: Any) -> None:
    """Without the file that Linux has, or with another one in its place, resident memory is not known."""
    monkeypatch.setattr("lifecycle.keeping.residue._STATM", tmp_path / "none")
    assert resident_nbytes() is None
    (tmp_path / "none").write_text("words")
    assert resident_nbytes() is None


@pytest.mark.parametrize(("in_between", "keeps"), [(-40, 40), (500, 0)])
def test_smaller_figure_holds_when_memory_changes_between_load_and_unload(
    house: tuple[Bench, Runtime], in_between: int, keeps: int
) -> None:
    """Neither what a load frees a little later nor what the program takes while a model is there is residue."""
    b, runtime = house
    runtime.keeps["A"] = keeps * MIB
    for _ in range(5):
        b.use("A")
        runtime.resident += in_between * MIB
        b.manager.unload(ModelRef("t", "A"))
    assert b.manager.snapshot().residue == {}
