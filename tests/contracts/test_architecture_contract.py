"""Every architecture that is served, as an embedder and as a cross-encoder, against sentence-transformers alone.

Tiny random models, each on every backend that says it can serve it: PyTorch over the safetensors, the others over the
graph that is exported from them. `pytest -m deep` on this file tries them all, and where the README's table differs
from what was found, it prints the row that is right.
"""

from __future__ import annotations

import sys
from pathlib import Path
from typing import TYPE_CHECKING

import pytest

sys.path.insert(0, str(Path(__file__).parent / "support"))
from kinds import KINDS

if TYPE_CHECKING:
    from collections.abc import Iterator

pytestmark = [pytest.mark.filterwarnings("ignore"), pytest.mark.usefixtures("_quiet")]  # runtimes warn, and draw bars
README = Path(__file__).parents[2] / "backends" / "folders" / "README.md"
TASKS = {"embedder": False, "cross-encoder": True}
# One of each family: counted from padding on, relative positions, read at the last token, both directions by request.
USUAL = [
    ("RoBERTa", "cross-encoder"),
    ("DeBERTa v2", "embedder"),
    ("Qwen3", "cross-encoder"),
    ("Gemma 3 text", "embedder"),
]


@pytest.fixture(scope="module")
def _quiet() -> Iterator[None]:
    """Keep transformers' progress bars off the terminal."""
    pytest.importorskip("sentence_transformers")
    from transformers.utils import logging  # noqa: PLC0415  (heavy)

    logging.disable_progress_bar()
    yield
    logging.enable_progress_bar()


def examine(name: str, scratch: Path, *, classify: bool) -> tuple[str, ...]:
    """Return the backends that serve a random model of this kind, each compared with the reference."""
    from against_reference import compare  # noqa: PLC0415  (heavy)
    from tiny_models import has_classifier, save  # noqa: PLC0415  (as above)

    if classify and not has_classifier(KINDS[name]):
        return ("no classifier",)
    return compare(save(KINDS[name], scratch / "model", classify=classify), scratch / "graph", classify=classify)


def readme_row(name: str) -> str:
    """Return the row that the README has, if it has one."""
    lines = README.read_text(encoding="utf-8").splitlines()
    return next((line for line in lines if line.startswith(f"| {name} |")), f"| {name} |  |  |")


@pytest.mark.parametrize(("name", "task"), USUAL, ids=[":".join(case) for case in USUAL])
def test_answers_are_the_references_when_one_of_each_family_is_tried(name: str, task: str, tmp_path: Path) -> None:
    """M1, M9, M10: alone and in ragged batches, a text too long and an empty one; served by whom the README says."""
    served = examine(name, tmp_path, classify=TASKS[task])
    assert ", ".join(served) == readme_row(name).split("|")[2 + TASKS[task]].strip()


@pytest.mark.deep
@pytest.mark.parametrize("name", KINDS)
def test_answers_are_the_references_when_every_architecture_is_tried(name: str, tmp_path: Path) -> None:
    """Every architecture as embedder and as cross-encoder: the reference's answers, and the README's row."""
    cells = []
    for task, classify in TASKS.items():
        (tmp_path / task).mkdir()
        cells.append(", ".join(examine(name, tmp_path / task, classify=classify)))
    found = f"| {name} | {' | '.join(cells)} |"
    assert found == readme_row(name), f"the row of backends/folders/README.md should be {found}"
