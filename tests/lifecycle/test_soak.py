"""Memory over cycles of load, use and unload of a real model, in processes of their own; `lifecycle_soak` in short."""

from __future__ import annotations

import json
import subprocess
import sys
from pathlib import Path

import pytest

SOAK = Path(__file__).resolve().parents[1] / "benchmarks" / "lifecycle_soak.py"


@pytest.mark.models
@pytest.mark.parametrize("only", ["onnx", pytest.param("every backend", marks=pytest.mark.deep)])
def test_resident_memory_stays_bounded_when_a_model_comes_and_goes(only: str) -> None:
    """L33: per backend the slope is bounded and nothing stays charged; the control, which leaks, is noticed."""
    command = [sys.executable, str(SOAK), "--quick", "--json", "--only", only]
    done = subprocess.run(command, capture_output=True, text=True, check=False, timeout=880)
    assert done.returncode == 0, done.stderr
    figures = json.loads(done.stdout)
    assert set(figures["wrong"].values()) == {0}
    backends = [name for name in figures if f"{name}_with_a_leak" in figures]
    assert backends
    for name in backends:
        control = figures[f"{name}_with_a_leak"]
        assert control["slope_mb_per_cycle"] > control["weights_mb"]
        # Net of what an allocator happens to hold at one reading, a cycle may keep a tenth of a model at most.
        clean = figures[name]
        assert clean["slope_mb_per_cycle"] - clean["doubt_mb_per_cycle"] < 0.1 * control["slope_mb_per_cycle"]
