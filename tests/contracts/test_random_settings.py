"""Architectures with settings drawn at random by fixed seeds: as sentence-transformers answers, or refused by name."""

from __future__ import annotations

import sys
from pathlib import Path

import pytest

sys.path.insert(0, str(Path(__file__).parent / "support"))
from random_kinds import SETTINGS, random_kind

from backends.catalogue import catalogue
from backends.errors import InvalidModel

pytestmark = [pytest.mark.filterwarnings("ignore"), pytest.mark.deep]
SEEDS = range(3 * len(SETTINGS))  # three of each architecture


@pytest.mark.parametrize("seed", SEEDS)
def test_answers_are_the_references_when_settings_are_random(seed: int, tmp_path: Path) -> None:
    """Activations, norms, positions, heads, windows, biases, poolings: equal on each backend that serves the model."""
    pytest.importorskip("sentence_transformers")
    import against_reference  # noqa: PLC0415  (heavy)
    import tiny_models  # noqa: PLC0415  (as above)

    kind, classify, pooling = random_kind(seed)
    try:
        folder = tiny_models.save(kind, tmp_path / "model", classify=classify, pooling=pooling, seed=seed)
        expected, _ = against_reference.expect(folder, classify=classify)
    except Exception as exc:  # noqa: BLE001  (the reference's own code: what it can't run has no right answer)
        pytest.skip(f"the reference can't run it: {exc}")
    if expected.std(axis=0).mean() <= 1e-3:
        pytest.skip("this model says the same of every text: nothing would be compared")
    try:
        catalogue.resolve(folder)
    except InvalidModel as exc:
        assert "isn't served" in str(exc)  # noqa: PT017  (refused by its key)
        pytest.skip(str(exc))
    against_reference.compare(folder, tmp_path / "graph", classify=classify, bfloat16=False)
