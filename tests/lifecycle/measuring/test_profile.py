"""Profiles: measured in a child process, kept for what they were measured with, and used to reserve room."""

from __future__ import annotations

import base64
import json
import os
import sys
from dataclasses import asdict, replace
from typing import TYPE_CHECKING, Any

import numpy as np
import pytest

from backends.engines.fake_backend import FakeBackend, fake_spec
from backends.errors import BackendError, InvalidInput, InvalidModel
from backends.running.text_model import TextLoader
from lifecycle import ModelManager, ModelRef
from lifecycle.measuring import child as child_process
from lifecycle.measuring import profile

if TYPE_CHECKING:
    from pathlib import Path


MIB = 1 << 20
PYTHON = sys.executable
SPEC = fake_spec("m")
FIGURES = {
    "device": "cpu:fake",
    "resident_nbytes": 20 * MIB,
    "workspace_nbytes": 10 * MIB,
    "declared_nbytes": 1_000_000,
    "load_s": 0.5,
    "first_ms": 8.0,
    "query_ms": 2.0,
    "bulk_ms": 0.5,
    "tokens_per_s": 200_000.0,
}
ANSWERS = np.arange(6, dtype=np.float32).reshape(2, 3)


@pytest.fixture(autouse=True)
def cache(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """Keep profiles out of the user's cache."""
    folder = tmp_path / "cache"
    monkeypatch.setenv("VECTORSEARCH_CACHE", str(folder))
    return folder


@pytest.fixture
def child(monkeypatch: pytest.MonkeyPatch) -> dict[str, Any]:
    """Let children answer these figures at once, instead of being started."""
    answer: dict[str, Any] = dict(FIGURES)

    def run(order: dict[str, Any], *_: object) -> dict[str, Any]:
        encoded = {"answers": base64.b64encode(ANSWERS.tobytes()).decode(), "shape": [2, 3], "quantises": True}
        return {"packages": ["numpy"]} | (answer if "measure" in order else encoded)

    monkeypatch.setattr(profile, "_run_child", run)
    return answer


def program(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, text: str) -> None:
    """Let the child be this program."""
    script = tmp_path / "child"
    script.write_text(f"#!{PYTHON}\n{text}")
    script.chmod(0o700)
    monkeypatch.setattr(child_process.sys, "executable", str(script))


def test_profile_is_found_again_when_it_was_measured(child: dict[str, Any], cache: Path) -> None:
    """What was measured is kept in one file under the cache, and read back equal."""
    assert profile.read(SPEC, "fake") is None
    measured = profile.measure(SPEC, "fake")
    assert {name: getattr(measured, name) for name in child} == FIGURES
    assert measured.nbytes == 30 * MIB
    assert measured.packages.keys() == {"python", "vectorsearch", "numpy"}
    assert profile.read(SPEC, "fake") == measured
    assert [path.name for path in (cache / "profiles").iterdir()] == [
        path.name for path in (cache / "profiles").glob(f"{SPEC.digest[:16]}-fake-*.json")
    ]


@pytest.mark.usefixtures("child")
def test_precisions_have_files_of_their_own_when_both_are_profiled(cache: Path) -> None:
    """A backend's precisions don't share a profile, and parity is kept with the figures."""
    parity = profile.Parity(reference="torch:float32", value=0.9991, needed=0.999)
    measured = profile.measure(SPEC, "fake:bfloat16", parity=parity)
    assert profile.read(SPEC, "fake:bfloat16") == measured
    assert measured.parity == parity
    assert profile.read(SPEC, "fake") is None
    assert not any(":" in path.name for path in (cache / "profiles").iterdir())


@pytest.mark.usefixtures("child")
def test_answers_come_back_as_they_were_when_a_child_gave_them() -> None:
    """Arrays cross the process with their shape, and with whether the model quantises."""
    answers = profile.answer(SPEC, "fake")
    assert np.array_equal(answers.values, ANSWERS)
    assert (answers.backend, answers.quantises, answers.packages) == ("fake", True, ("numpy",))


@pytest.mark.usefixtures("child")
def test_profile_is_not_used_when_anything_it_depends_on_is_another(
    monkeypatch: pytest.MonkeyPatch, cache: Path
) -> None:
    """Another digest, backend, package version or machine: no profile, rather than a wrong one."""
    measured = profile.measure(SPEC, "fake")
    assert profile.read(fake_spec("other"), "fake") is None
    assert profile.read(SPEC, "onnx") is None
    (path,) = (cache / "profiles").iterdir()
    old = replace(measured, packages={**measured.packages, "numpy": "0.1"})
    path.write_text(json.dumps(asdict(old)))
    assert profile.read(SPEC, "fake") is None
    path.write_text(json.dumps(asdict(replace(measured, packages={"no-such-package": "1"}))))
    assert profile.read(SPEC, "fake") is None
    path.write_text(json.dumps(asdict(replace(measured, machine="another"))))
    assert profile.read(SPEC, "fake") is None
    path.write_text(json.dumps(asdict(measured)))
    assert profile.read(SPEC, "fake") == measured
    monkeypatch.setattr(os, "sched_getaffinity", lambda _: set(range(77)), raising=False)
    assert profile.read(SPEC, "fake") is None


@pytest.mark.usefixtures("child")
@pytest.mark.parametrize("damage", ["", "[]", "{}", "\x00\xff", '{"model": 1}', "null", "[" * 100_000])
def test_profile_is_none_when_its_file_is_damaged(cache: Path, damage: str) -> None:
    """A file that can't be read costs its figures, not the model."""
    profile.measure(SPEC, "fake")
    (path,) = (cache / "profiles").iterdir()
    path.write_bytes(damage.encode("latin-1"))
    assert profile.read(SPEC, "fake") is None
    assert profile.profiled_nbytes(SPEC, "fake") is None


def test_declared_size_counts_when_the_device_is_not_the_processor(child: dict[str, Any]) -> None:
    """Memory of another device isn't resident: the larger of the model's figure and the measured one is charged."""
    child.update(device="cuda:0", declared_nbytes=100 * MIB)
    assert profile.measure(SPEC, "fake").nbytes == 100 * MIB
    child.update(declared_nbytes=MIB)
    assert profile.measure(SPEC, "fake").nbytes == 30 * MIB


@pytest.mark.usefixtures("child")
def test_manager_reserves_and_charges_the_profile_when_there_is_one() -> None:
    """Before the load and after it, a profiled model is charged what was measured, not the backend's estimate."""
    loader = TextLoader(FakeBackend(nbytes=7), measured=profile.profiled_nbytes)
    assert loader.estimate(SPEC) == 7
    profile.measure(SPEC, "fake")
    with ModelManager(40 * MIB) as manager:
        ref = ModelRef("", "m")
        manager.register(ref, SPEC, loader)
        assert manager.status(ref).nbytes == 30 * MIB
        with manager.lease(ref) as model:
            assert model.nbytes == 30 * MIB
            assert manager.snapshot().charged_nbytes == 30 * MIB


def test_child_measures_a_model_when_it_is_really_started() -> None:
    """Two processes: one that finds the packages, one that measures; each step is told, and figures make sense."""
    steps: list[str] = []
    found = profile.measure(SPEC, "fake", progress=steps.append)
    assert steps[0] == "answering, and finding the runtime's packages"
    assert [step.partition(":")[0] for step in steps[1:]] == ["measuring"] * 4
    assert (found.model, found.digest, found.backend, found.device) == ("m", SPEC.digest, "fake", "cpu:fake")
    assert found.declared_nbytes == 1_000_000
    assert found.load_s >= 0
    assert found.first_ms > 0
    assert found.query_ms > 0
    assert found.bulk_ms > 0
    # 128 passages of 72 words on average, as this backend's tokenizer splits them.
    assert 50 < found.tokens_per_s * found.bulk_ms / 1000 < 150
    assert 0 <= found.nbytes < 64 * MIB


def test_childs_error_is_raised_here_when_the_model_can_not_be_loaded(tmp_path: Path) -> None:
    """What the child's backend raised is raised as the same type; what isn't ours, as a BackendError with its name."""
    broken = replace(SPEC, weights_file="model.onnx", folder=tmp_path)
    with pytest.raises(InvalidModel, match="no file"):
        profile.measure(broken, "onnx")
    with pytest.raises(InvalidInput, match="no backend 'nonsense'"):
        profile.measure(SPEC, "nonsense")
    assert type(child_process._error("MemoryError", "none left")) is BackendError


def test_death_is_told_when_the_child_is_killed(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """A child that dies, by the kernel's hand or its own, is told with its end and its last words."""
    program(tmp_path, monkeypatch, "import os, signal\nos.kill(os.getpid(), signal.SIGKILL)")
    with pytest.raises(BackendError, match=r"ended with -9 \(was it out of memory"):
        profile.measure(SPEC, "fake")
    program(tmp_path, monkeypatch, "import sys\nsys.exit('some last words')")
    with pytest.raises(BackendError, match=r"ended with 1\. some last words"):
        profile.measure(SPEC, "fake")


def test_child_is_ended_when_it_takes_too_long_or_nobody_listens(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A child past its time is killed and that is told; one whose parent is interrupted is killed as well."""
    program(tmp_path, monkeypatch, "import signal\nsignal.pause()")
    with pytest.raises(BackendError, match=r"took longer than 0\.05 s"):
        profile.measure(SPEC, "fake", timeout_s=0.05)
    program(tmp_path, monkeypatch, 'import signal\nprint(\'{"step": "on"}\', flush=True)\nsignal.pause()')

    def interrupt(_: str) -> None:
        raise KeyboardInterrupt

    with pytest.raises(KeyboardInterrupt):
        profile.measure(SPEC, "fake", progress=interrupt)
