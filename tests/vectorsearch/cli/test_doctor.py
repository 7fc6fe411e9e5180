"""`vectorsearch models calibrate` and `vectorsearch doctor`: what they print, what they keep, how they exit."""

from __future__ import annotations

import sys
import tomllib
from importlib import metadata
from pathlib import Path
from typing import TYPE_CHECKING

import pytest

from backends.base import Serves
from backends.choosing import registry
from backends.engines.fake_backend import FakeBackend
from vectorsearch import config
from vectorsearch.database import doctor

if TYPE_CHECKING:
    from collections.abc import Callable

    from backends.base import ModelSpec


class Choosable(FakeBackend):
    """A fake backend that is chosen unasked, for embedders only."""

    def can_serve(self, spec: ModelSpec) -> Serves:
        """Refuse what is no embedder."""
        return Serves(ok=True) if spec.task == "embed" else Serves(ok=False, reason="embedders only")


@pytest.fixture
def _choosable(fake_models: None, monkeypatch: pytest.MonkeyPatch) -> None:  # noqa: ARG001  (it runs before)
    """Let `fake` be the only backend, by priority and for embedders only; children still have the real one."""
    backend = Choosable()
    backend.priority = 50
    registry.available()
    monkeypatch.setattr(registry, "_known", {"fake": backend})


@pytest.mark.usefixtures("_choosable")
def test_figures_are_kept_and_used_when_a_model_is_calibrated(run: Callable) -> None:
    """`models calibrate` measures in real processes; the doctor then shows the figures and the reason of the choice."""
    before = run("doctor", "fake-embedder", "--json").json["models"][0]
    assert before["backends"] == [{"backend": "fake", "ok": True, "reason": "", "profile": None}]
    assert "not calibrated: run vectorsearch models calibrate fake-embedder" in before["chosen"]["query"]
    done = run("models", "calibrate", "fake-embedder", "--json")
    assert done.exit_code == 0
    assert "fake: measuring: many passages" in done.stderr
    (measured,) = done.json["profiles"]
    assert (measured["backend"], done.json["reference"]) == ("fake", "fake")
    assert done.json["chosen"]["bulk"].startswith("fake: measured ")
    after = run("doctor", "fake-embedder", "--json").json["models"][0]
    assert after["backends"][0]["profile"]["bulk_ms"] == measured["bulk_ms"]
    assert after["chosen"] == done.json["chosen"]


@pytest.mark.usefixtures("_choosable")
def test_tables_are_for_people_when_json_is_not_asked_for(run: Callable, monkeypatch: pytest.MonkeyPatch) -> None:
    """Both commands print a table of at most 80 columns, with the backend, its device, and why it is taken."""
    monkeypatch.setenv("COLUMNS", "80")
    done = run("models", "calibrate", "fake-embedder", "--backend", "fake")
    assert done.exit_code == 0
    assert "parity to fake" in done.stdout
    shown = run("doctor", "fake-embedder", "fake-reranker")
    assert shown.exit_code == 1
    assert "cpu:fake" in shown.stdout
    assert "fake: embedders only" in shown.stdout
    assert all(len(line) <= 80 for line in (done.stdout + shown.stdout).splitlines())


@pytest.mark.usefixtures("_choosable")
def test_exit_code_is_1_when_a_model_can_not_run(run: Callable) -> None:
    """The doctor is honest: 0 if every model asked about can run on a backend, else 1, with each one's reason."""
    assert run("doctor", "fake-embedder").exit_code == 0
    sick = run("doctor", "--json")
    assert sick.exit_code == 1
    assert not sick.json["healthy"]
    names = [model["name"] for model in sick.json["models"]]
    assert names == [config.DEFAULT_EMBEDDER, config.DEFAULT_RERANKER]
    assert sick.json["models"][1]["backends"][0]["reason"] == "embedders only"
    assert "embedders only" in sick.json["models"][1]["chosen"]["rerank"]
    assert run("doctor", "no-such-model").exit_code == 1
    assert run("models", "calibrate", "fake-reranker").exit_code == 1


def test_report_has_the_machine_when_the_doctor_looks() -> None:
    """Cores, memory, half of it as the budget, the cache folder, and the version of each package that is there."""
    report = doctor.examine()
    assert report.cores >= 1
    assert report.budget_nbytes == report.memory_nbytes // 2 == config.default_budget_nbytes()
    assert report.packages["numpy"] == metadata.version("numpy")
    assert set(report.packages) >= {"vectorsearch", "onnxruntime", "jax", "torch", "coremltools", "tantivy"}
    assert not {"pytest", "matplotlib"} & set(report.packages)
    assert all(each.backend != "fake" for model in report.models for each in model.backends)


def test_only_what_searching_needs_is_missed_when_nothing_is_installed(monkeypatch: pytest.MonkeyPatch) -> None:
    """Of the project's extras those for benchmarks, tests, training and other engines are not asked for."""
    project = tomllib.loads((Path(__file__).parents[3] / "pyproject.toml").read_text(encoding="utf-8"))["project"]
    extras = project["optional-dependencies"]
    requirements = [f"{each}; extra == '{name}'" for name in extras for each in extras[name]]
    monkeypatch.setattr(metadata, "requires", lambda _: requirements)
    monkeypatch.setattr(doctor, "_version", lambda _: None)
    needed = {"jax", "torch", "openvino", "eval", "metrics"} | ({"coreml"} if sys.platform == "darwin" else set())
    assert doctor.examine().missing.keys() == needed


def test_pip_command_is_given_when_an_extra_is_missing(monkeypatch: pytest.MonkeyPatch, run: Callable) -> None:
    """An extra of which one package is missing is told with the command that brings it."""
    there = metadata.version

    def version(name: str) -> str:
        if name in {"jax", "torch"}:
            raise metadata.PackageNotFoundError(name)
        return there(name)

    monkeypatch.setattr(metadata, "version", version)
    missing = run("doctor", "--json").json["missing"]
    assert missing["jax"] == "pip install 'vectorsearch[jax]'"
    assert missing["torch"] == "pip install 'vectorsearch[torch]'"
    assert "eval" not in missing
