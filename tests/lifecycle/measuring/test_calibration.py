"""Calibration: each backend and precision measured, compared with a float32 reference, and ordered by cost."""

from __future__ import annotations

import base64
from typing import TYPE_CHECKING, Any

import numpy as np
import pytest
from scipy import stats

from backends.base import ModelSpec, Serves
from backends.catalogue import catalogue
from backends.catalogue.entries import DEFAULT_EMBEDDER
from backends.choosing import registry
from backends.engines.fake_backend import FakeBackend, fake_spec
from backends.errors import BackendError, CannotServe, InvalidInput
from backends.running.text_model import TextLoader
from lifecycle.measuring import calibration, profile, workloads
from lifecycle.measuring.calibration import calibrate, costs, kendall_tau

if TYPE_CHECKING:
    from pathlib import Path

    from numpy.typing import NDArray

    from backends.base import Backend

SPEC = fake_spec("m", dim=2)
RERANKER = fake_spec("r", task="cross-encode")
FIGURES = {
    "device": "cpu:fake",
    "resident_nbytes": 1,
    "workspace_nbytes": 1,
    "declared_nbytes": 1,
    "load_s": 0.5,
    "first_ms": 8.0,
    "tokens_per_s": 200_000.0,
}


class Named(FakeBackend):
    """A backend that may be chosen, and serves what it doesn't refuse."""

    def __init__(self, name: str, priority: int, refuses: str = "") -> None:
        super().__init__(name)
        self.priority = priority
        self._refuses = refuses

    def can_serve(self, spec: ModelSpec) -> Serves:  # noqa: ARG002  (the protocol's argument)
        """Say yes, or no with the reason."""
        return Serves(ok=not self._refuses, reason=self._refuses)


class Precise(Named):
    """A backend with three precisions, one of which can't serve anything."""

    precisions = ("float32", "bfloat16", "int8")

    def with_precision(self, precision: str) -> Backend:
        """Return a backend named for the precision."""
        return Named(f"{self.name}:{precision}", 1, "not for a float model" if precision == "int8" else "")


class World:
    """What the children of this test answer, by backend: (query_ms, bulk_ms, cosine to the reference) or an error."""

    def __init__(self, **backends: Any) -> None:
        self.backends = {name.replace("_", ":"): value for name, value in backends.items()}
        self.quantises: set[str] = set()
        self.asked: list[tuple[str, bool]] = []

    def run(self, order: dict[str, Any], progress: Any, _: float) -> dict[str, Any]:
        """Answer in the place of a child process."""
        name, measures = order["backend"], "measure" in order
        self.asked.append((name, measures))
        progress("a step")
        if isinstance(self.backends[name], Exception):
            raise self.backends[name]
        query_ms, bulk_ms, closeness = self.backends[name]
        if measures:
            return FIGURES | {"query_ms": query_ms, "bulk_ms": bulk_ms, "packages": ["numpy"]}
        values = self.answers(order["spec"]["task"], closeness)
        encoded = base64.b64encode(values.tobytes()).decode()
        packages, quantises = ["numpy"], name in self.quantises
        return {"answers": encoded, "shape": values.shape, "quantises": quantises, "packages": packages}

    def answers(self, task: str, closeness: float) -> NDArray[np.float32]:
        """Return vectors at this cosine to the x axis, or logits of which this share of the queries is in order."""
        if task == "embed":
            return np.array([[1, 0], [closeness, np.sqrt(1 - closeness**2)]], np.float32)
        orders = []
        for i, (_, passages) in enumerate(workloads.pools()):
            rising = np.arange(len(passages), dtype=np.float32)
            orders.append(rising if i < closeness * len(workloads.QUERIES) else rising[::-1])
        return np.concatenate(orders)


@pytest.fixture(autouse=True)
def _own_registry(monkeypatch: pytest.MonkeyPatch) -> None:
    """Know three backends that may be chosen: onnx, jax in three precisions, torch, which refuses."""
    registry.available()
    there = [Named("onnx", 20), Precise("jax", 30), Named("torch", 40, "no safetensors"), FakeBackend()]
    monkeypatch.setattr(registry, "_known", {backend.name: backend for backend in there})


@pytest.fixture
def world(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> World:
    made = World(onnx=(5.0, 9.0, 0.9999), jax_float32=(8.0, 12.0, 1.0), jax_bfloat16=(7.0, 4.0, 0.9995))
    monkeypatch.setattr(profile, "_run_child", made.run)
    monkeypatch.setenv("VECTORSEARCH_CACHE", str(tmp_path))
    return made


def test_every_precision_is_measured_when_a_model_is_calibrated(world: World) -> None:
    """What can serve is measured in the order of priority, what can't is told with its reason, steps with the name."""
    steps: list[str] = []
    found = calibrate(SPEC, progress=steps.append)
    assert [each.backend for each in found.profiles] == ["onnx", "jax:float32", "jax:bfloat16"]
    assert found.failed == {"jax:int8": "not for a float model", "torch": "no safetensors"}
    assert found.reference == "jax:float32"
    assert [each.parity.value for each in found.profiles if each.parity] == pytest.approx([0.9999, 1, 0.9995])
    assert world.asked.count(("jax:float32", False)) == 1
    assert steps[0] == "jax:float32: a step"


def test_cheapest_is_chosen_when_a_profile_is_there(world: World) -> None:
    """Costs are read back for each workload, and order the backends; without a profile there are none."""
    assert costs(SPEC, "bulk") == {}
    calibrate(SPEC)
    assert registry.choose(SPEC, "bulk", costs=costs(SPEC, "bulk")).order == ("jax:bfloat16", "onnx")
    choice = registry.choose(SPEC, "query", costs=costs(SPEC, "query"))
    assert choice.reason == "onnx: measured 5.0 ms a query here, jax:bfloat16 7.0"
    world.backends["onnx"] = (5.0, 1.0, 0.9999)
    calibrate(SPEC, backends=["onnx"])
    assert registry.choose(SPEC, "bulk", costs=costs(SPEC, "bulk")).backend == "onnx"


def test_precision_is_not_chosen_when_its_vectors_are_far_off(world: World) -> None:
    """Below a cosine of 0.999 a float precision is out, however fast; what quantises may go down to 0.99."""
    world.backends["jax:bfloat16"] = (0.1, 0.1, 0.9985)
    calibrate(SPEC)
    assert registry.choose(SPEC, "bulk", costs=costs(SPEC, "bulk")).backend == "onnx"
    world.quantises.add("jax:bfloat16")
    calibrate(SPEC)
    assert registry.choose(SPEC, "bulk", costs=costs(SPEC, "bulk")).backend == "jax:bfloat16"
    world.backends["jax:bfloat16"] = (0.1, 0.1, 0.985)
    calibrate(SPEC)
    assert registry.choose(SPEC, "bulk", costs=costs(SPEC, "bulk")).backend == "onnx"


def test_reranker_is_compared_by_order_when_it_is_calibrated(world: World) -> None:
    """A cross-encoder's parity is the mean Kendall's tau over the queries; its costs are a rerank's and a pair's."""
    world.backends["onnx"] = (1.0, 1.0, 0.8)  # one of five queries the wrong way round
    found = calibrate(RERANKER)
    assert [each.parity.value for each in found.profiles if each.parity] == pytest.approx([0.6, 1, 1])
    choice = registry.choose(RERANKER, "query", costs=costs(RERANKER, "query"))
    assert choice.reason == "jax:bfloat16: measured 7.0 ms a rerank here"
    assert costs(RERANKER, "bulk")["onnx"].unit == "pair"


def test_others_are_measured_when_one_fails(world: World) -> None:
    """A backend that breaks in its process costs its own figures, and the reason is kept."""
    world.backends["jax:bfloat16"] = BackendError("the child process ended with -9")
    found = calibrate(SPEC)
    assert [each.backend for each in found.profiles] == ["onnx", "jax:float32"]
    assert found.failed["jax:bfloat16"] == "the child process ended with -9"


def test_first_measured_is_the_reference_when_nothing_computes_in_float32(world: World) -> None:
    """Where no float32 backend is installed, a backend is compared with the first one, itself perhaps."""
    del registry._known["jax"]
    found = calibrate(SPEC)
    assert (found.reference, [each.backend for each in found.profiles]) == ("onnx", ["onnx"])
    assert [name for name, _ in world.asked] == ["onnx", "onnx"]


@pytest.mark.usefixtures("world")
def test_calibration_fails_when_no_backend_can_serve() -> None:
    """Asked for one that refuses, or for one that is not there: an error with the reason, and nothing measured."""
    with pytest.raises(CannotServe, match="torch: no safetensors"):
        calibrate(SPEC, backends=["torch"])
    with pytest.raises(InvalidInput, match="no backend 'tpu'"):
        calibrate(SPEC, backends=["tpu"])


def test_profile_has_no_cost_when_it_was_never_compared(world: World) -> None:
    """A backend that was only profiled is not chosen for its speed: nobody knows what it answers."""
    profile.measure(SPEC, "onnx", progress=lambda _: None)
    assert profile.read(SPEC, "onnx") is not None
    assert costs(SPEC, "query") == {}
    assert world.asked == [("onnx", False), ("onnx", True)]


def test_tau_is_scipys_when_there_are_no_ties() -> None:
    """Kendall's tau agrees with the reference implementation, and ties count as neither."""
    rng = np.random.default_rng(3)
    for _ in range(20):
        a, b = rng.normal(size=(2, 17)).astype(np.float32)
        assert kendall_tau(a, b) == pytest.approx(stats.kendalltau(a, b).statistic)
    assert kendall_tau(np.array([1, 1, 2], np.float32), np.array([1, 2, 3], np.float32)) == pytest.approx(2 / 3)


def test_texts_are_the_same_and_ragged_when_they_are_read_again() -> None:
    """The workload is fixed: 128 passages of six lengths, and each query has a pool of its topic."""
    passages = workloads.passages()
    lengths = [len(passage.split()) for passage in passages]
    assert (len(passages), len(set(passages)), set(lengths)) == (128, 128, {8, 20, 40, 70, 110, 180})
    assert sorted(text for _, pool in workloads.pools() for text in pool) == sorted(passages)
    assert {len(pool) for _, pool in workloads.pools()} == {25, 26}


@pytest.mark.models
def test_figures_are_near_the_truth_when_a_real_model_is_calibrated(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    """Real processes: the default embedder on ONNX Runtime, compared with its dequantised weights in NumPy."""
    monkeypatch.undo()
    registry.available()
    monkeypatch.setattr(registry, "_known", {name: registry.get(name) for name in ("onnx", "numpy")})
    spec = catalogue.pull(DEFAULT_EMBEDDER)
    (tmp_path / "models").symlink_to(catalogue.cache_dir() / "models")
    monkeypatch.setenv("VECTORSEARCH_CACHE", str(tmp_path))
    found = calibrate(spec, backends=["onnx"])
    (measured,) = found.profiles
    assert found.reference == "numpy:float32"
    assert measured.parity is not None
    assert 1 > measured.parity.value >= measured.parity.needed == calibration.AGREEMENT_QUANTISED
    assert costs(spec, "bulk")["onnx"].ms == measured.bulk_ms
    assert min(measured.query_ms, measured.first_ms, measured.load_s) > 0
    assert {"onnxruntime", "tokenizers"} <= measured.packages.keys()
    assert spec.weights_nbytes < measured.nbytes < 256 << 20
    assert measured.workspace_nbytes > 1 << 20
    loader = TextLoader(registry.get("onnx"), measured=profile.profiled_nbytes)
    assert loader.estimate(spec) == measured.nbytes
