"""What is registered from a folder is tried in a process of its own first: what is stored, and what is refused."""

from __future__ import annotations

import json
import sys
from pathlib import Path

import pytest

import vectorsearch as vs
from backends.errors import InvalidInput, InvalidModel

sys.path.insert(0, str(Path(__file__).parents[2] / "lifecycle" / "support"))

from hostile_folders import write_embedder

MIB = 1 << 20


@pytest.fixture(autouse=True)
def own_cache(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Keep trials where no other test finds them."""
    monkeypatch.setenv("VECTORSEARCH_CACHE", str(tmp_path / "cache"))


def stored_models(store: vs.Database) -> list[Path]:
    """Return the folders of copied models."""
    return list((Path(str(store.info()["path"])) / "models").glob("*"))


def test_a_trial_is_stored_when_a_folder_is_registered(tmp_path: Path) -> None:
    """Each part's time, and the bytes that it is charged from then on, also when the store is opened again."""
    folder = write_embedder(tmp_path / "model", "greedy", nbytes=80 * MIB)
    with vs.open(tmp_path / "db", embed=None, rerank=None, backend="onnx") as store:
        model = store.register_model("own", folder, "embed")
        assert model.trial is not None
        assert {"copying", "loading", "tokenizing", "answering", "largest batches"} < set(model.trial.seconds)
        assert "no" in model.compared
        (status,) = store.models().models
        assert status.nbytes >= model.trial.nbytes > 80 * MIB
    with vs.open(tmp_path / "db", embed=None, rerank=None, backend="onnx") as store:
        assert store.registered_models() == (model,)
        assert store._models.nbytes_of(store._registration.find("own")[0]) >= model.trial.nbytes


def test_a_model_is_refused_when_its_trial_takes_more_than_the_quota(store: vs.Database, tmp_path: Path) -> None:
    """U1: a graph of a kilobyte that takes 600 MiB, under a quota of 64: nothing is stored, and it says what to do."""
    acme = store.tenant("acme", quota_nbytes=64 * MIB)
    with pytest.raises(InvalidModel, match="took more than 128 MiB of memory"):
        acme.register_model("own", write_embedder(tmp_path / "large", "greedy"), "embed")
    with pytest.raises(InvalidInput, match=r"needs \d+ MiB, and the quota is 64 MiB: raise the quota"):
        acme.register_model("own", write_embedder(tmp_path / "model", "greedy", nbytes=40 * MIB), "embed")
    assert acme.registered_models() == ()
    assert stored_models(store) == []


def test_a_model_is_refused_when_its_neighbours_change_its_answers(store: vs.Database, tmp_path: Path) -> None:
    """It could not be told which answer is right."""
    with pytest.raises(InvalidModel, match="alone than beside others"):
        store.register_model("own", write_embedder(tmp_path / "model", "sociable"), "embed")
    assert stored_models(store) == []


def test_what_was_tried_is_not_counted_as_trusted_when_a_row_is_damaged(tmp_path: Path) -> None:
    """A row without a trial, as release 0.1.0 wrote them, reads as one that was not tried."""
    folder = write_embedder(tmp_path / "model")
    with vs.open(tmp_path / "db", embed=None, rerank=None, backend="onnx") as store:
        store.register_model("own", folder, "embed", compare=False)
        registration = store._registration
        row = registration._rows["own"]
        settings = {key: value for key, value in row.settings.items() if key not in {"trial", "compared"}}
        assert json.dumps(settings)
        registration._rows["own"] = type(row)(row.tenant, row.name, row.digest, settings)
        (model,) = store.registered_models()
        assert (model.trial, model.compared) == (None, "")
