"""The choice of a backend: asked for, measured, JAX for bulk, PyTorch for reranking, priority; each with its reason."""

from __future__ import annotations

from dataclasses import replace
from typing import TYPE_CHECKING

import pytest

from backends.base import ModelSpec, Serves
from backends.catalogue import catalogue
from backends.catalogue.entries import DEFAULT_EMBEDDER
from backends.choosing.selection import Choice, Cost, Workload, calibrate_command, choose
from backends.engines.fake_backend import FakeBackend, fake_spec
from backends.errors import CannotServe

if TYPE_CHECKING:
    from pathlib import Path

SPEC = fake_spec("m")


class Named(FakeBackend):
    """A backend of this name that serves every model, or none for this reason."""

    def __init__(self, name: str, reason: str = "") -> None:
        super().__init__(name)
        self._reason = reason

    def can_serve(self, spec: ModelSpec) -> Serves:  # noqa: ARG002  (the protocol's argument)
        """Say yes, or no with the reason."""
        return Serves(ok=not self._reason, reason=self._reason)


THREE = [Named("onnx"), Named("jax"), Named("torch")]


def cost(ms: float, parity: float = 0.9999) -> Cost:
    return Cost(ms, "passage", parity, parity_needed=0.999)


def chosen(workload: Workload, **costs: Cost) -> Choice:
    """Choose among three; keyword `jax_bfloat16` is the backend `jax:bfloat16`."""
    return choose(
        SPEC, workload, candidates=THREE, costs={name.replace("_", ":"): value for name, value in costs.items()}
    )


def test_first_by_priority_is_taken_when_a_query_is_embedded() -> None:
    """Without a measurement the candidates' order stands, and the reason says how to measure."""
    choice = chosen("query")
    assert choice.order == ("onnx", "jax", "torch")
    assert choice.backend == "onnx"
    assert choice.reason == (
        "onnx: first by priority of those that can serve it; not calibrated: run vectorsearch models calibrate m"
    )
    assert [(each.backend, each.ok, each.cost_ms) for each in choice.considered] == [
        ("onnx", True, None),
        ("jax", True, None),
        ("torch", True, None),
    ]


def test_jax_is_taken_when_passages_are_embedded_in_bulk() -> None:
    """JAX is the default of bulk embedding, and the others stay behind it in their order."""
    choice = chosen("bulk")
    assert choice.order == ("jax", "onnx", "torch")
    assert choice.reason == ("jax: default for bulk embedding; not calibrated: run vectorsearch models calibrate m")


def test_priority_stands_when_many_pairs_are_scored() -> None:
    """JAX is the default of embedding only: a reranker's bulk work goes by priority, as its queries do."""
    reranker = fake_spec("r", task="cross-encode")
    assert choose(reranker, "bulk", candidates=THREE).order == ("onnx", "jax", "torch")


def test_torch_reranks_when_the_processor_multiplies_bfloat16_tiles() -> None:
    """There it goes before priority, for rerankers only; elsewhere, and where it can't serve, priority stands."""
    reranker = fake_spec("r", task="cross-encode")
    choice = choose(reranker, "query", candidates=THREE, bfloat16_tiles=True)
    assert choice.order == ("torch", "onnx", "jax")
    assert choice.reason.startswith("torch: default for reranking on this processor; not calibrated: run ")
    assert choose(SPEC, "query", candidates=THREE, bfloat16_tiles=True).order == ("onnx", "jax", "torch")
    refusing = choose(
        reranker, "query", candidates=[Named("onnx"), Named("torch", "it isn't installed")], bfloat16_tiles=True
    )
    assert refusing.order == ("onnx",)
    assert "(torch, the default for reranking on this processor, can't: it isn't installed)" in refusing.reason
    measured = {"torch:bfloat16": cost(9), "onnx": cost(5)}
    assert choose(reranker, "query", candidates=THREE, bfloat16_tiles=True, costs=measured).backend == "onnx"


def test_reason_says_why_not_jax_when_it_can_not_serve() -> None:
    """In bulk the next by priority runs, and its reason has what JAX lacks."""
    choice = choose(SPEC, "bulk", candidates=[Named("onnx"), Named("jax", "jax is not installed")])
    assert choice.order == ("onnx",)
    assert "jax, the default for bulk embedding, can't: jax is not installed" in choice.reason
    assert [(each.backend, each.ok, each.reason) for each in choice.considered] == [
        ("onnx", True, ""),
        ("jax", False, "jax is not installed"),
    ]


def test_asked_backend_is_taken_alone_when_others_are_better() -> None:
    """What was asked for wins over measurements, and nothing stands behind it."""
    choice = choose(SPEC, "bulk", candidates=[Named("onnx")], asked="onnx", costs={"jax": cost(1), "onnx": cost(9)})
    assert (choice.order, choice.reason) == (("onnx",), "onnx: asked for")


def test_cheapest_is_taken_when_costs_were_measured() -> None:
    """Measured costs order the backends, each in its best precision; what was not measured comes after them."""
    choice = chosen(
        "bulk", torch_bfloat16=cost(5.14), jax_float32=cost(200), jax_bfloat16=cost(120), torch_float32=cost(14)
    )
    assert choice.order == ("torch:bfloat16", "jax:bfloat16", "onnx")
    assert choice.reason == "torch:bfloat16: measured 5.1 ms a passage here, jax:bfloat16 120"
    assert {each.backend: each.cost_ms for each in choice.considered} == {
        "onnx": None,
        "jax:float32": 200,
        "jax:bfloat16": 120,
        "torch:bfloat16": 5.14,
        "torch:float32": 14,
    }


def test_precision_is_not_taken_when_its_answers_differ() -> None:
    """The fastest is passed over if it doesn't keep parity, and what was considered says so."""
    choice = chosen("query", onnx=cost(8), torch_bfloat16=cost(1, parity=0.9965), torch_float32=cost(9))
    assert choice.order == ("onnx", "torch:float32", "jax")
    reasons = {each.backend: each.reason for each in choice.considered if not each.ok}
    assert reasons == {"torch:bfloat16": "its answers differ: parity 0.9965, and 0.999 is needed"}


def test_parity_is_kept_when_it_is_exactly_what_is_needed() -> None:
    """The bound itself is good enough; anything below is not, and not-a-number is not."""
    assert cost(1, parity=0.999).keeps_parity
    assert not cost(1, parity=0.99899).keeps_parity
    assert not cost(1, parity=float("nan")).keeps_parity


def test_default_stands_when_it_was_not_measured_itself() -> None:
    """A cost that can't be compared with the default's is no reason to leave the default."""
    choice = chosen("bulk", onnx=cost(1))
    assert choice.order == ("jax", "onnx", "torch")
    assert "only onnx calibrated: run vectorsearch models calibrate m" in choice.reason


def test_default_stands_when_no_measured_backend_keeps_parity() -> None:
    """If all that was measured differs from the reference, the order is the default's, and the reason says it."""
    choice = chosen("query", onnx=cost(5, parity=0.98))
    assert choice.order == ("onnx", "jax", "torch")
    assert "no backend keeps the answers: its answers differ: parity 0.9800" in choice.reason


def test_cost_is_passed_over_when_its_backend_can_not_serve_any_more() -> None:
    """A profile of a backend that refuses today is not used."""
    candidates = [Named("onnx"), Named("jax", "no jax")]
    choice = choose(SPEC, "query", candidates=candidates, costs={"jax": cost(1), "onnx": cost(5)})
    assert choice.order == ("onnx",)


def test_every_reason_is_given_when_none_can_serve() -> None:
    """The refusal has the reason of each candidate, and of those that could not even be asked."""
    with pytest.raises(CannotServe, match=r"'m': onnx: no file; jax: no jax; tpu: no libtpu"):
        choose(
            SPEC,
            "query",
            candidates=[Named("onnx", "no file"), Named("jax", "no jax")],
            refused={"tpu": "no libtpu"},
        )
    with pytest.raises(CannotServe, match="none is installed"):
        choose(SPEC, "query", candidates=[])


def test_command_names_the_folder_when_the_model_is_one(tmp_path: Path) -> None:
    """The command in a reason can be run as it is: a catalogue's name, a hub's name, or a folder's path."""
    known = catalogue.resolve(DEFAULT_EMBEDDER)
    assert calibrate_command(known).endswith(f" calibrate {DEFAULT_EMBEDDER}")
    folder = replace(known, name="mine", folder=tmp_path)
    assert calibrate_command(folder).endswith(f" calibrate {tmp_path}")
    assert calibrate_command(replace(folder, name="org/mine")).endswith(" calibrate org/mine")
