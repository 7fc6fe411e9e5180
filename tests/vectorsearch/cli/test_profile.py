"""`vectorsearch models profile`, and what `models show` then knows."""

from __future__ import annotations

from typing import TYPE_CHECKING

import pytest

if TYPE_CHECKING:
    from collections.abc import Callable


@pytest.mark.usefixtures("fake_models")
def test_figures_are_printed_and_kept_when_a_model_is_profiled(run: Callable) -> None:
    """`models profile` prints the figures on stdout and its steps on stderr; `models show` has them afterwards."""
    assert run("models", "show", "fake-embedder", "--json").json["profiles"] == {}
    done = run("models", "profile", "fake-embedder", "--backend", "fake", "--json")
    facts = done.json
    assert done.exit_code == 0
    assert (facts["model"], facts["backend"], facts["device"]) == ("fake-embedder", "fake", "cpu:fake")
    assert facts["reserved_nbytes"] == facts["resident_nbytes"] + facts["workspace_nbytes"]
    assert "fake-embedder on fake: measuring: loading" in done.stderr
    kept = run("models", "show", "fake-embedder", "--json").json["profiles"]["fake"]
    assert kept["reserved_nbytes"] == facts["reserved_nbytes"]
    assert "query ms" in run("models", "show", "fake-embedder").stdout
    shown = run("models", "profile", "fake-reranker", "--backend", "fake").stdout
    assert "fake-reranker" in shown
    assert "workspace" in shown


@pytest.mark.usefixtures("fake_models")
def test_command_fails_when_nothing_can_be_profiled(run: Callable) -> None:
    """An unknown name, an unknown backend, or a backend that can't serve the model: one line, exit code 1."""
    for arguments in (["no-such-model"], ["fake-embedder", "--backend", "nonsense"], ["fake-embedder"]):
        done = run("models", "profile", *arguments)
        assert done.exit_code == 1
        assert done.stderr.startswith("error: ")
