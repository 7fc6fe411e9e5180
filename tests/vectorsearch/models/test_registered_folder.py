"""What a registered model's folder says counts for good: keys vouched for, its configuration, and former digests."""

from __future__ import annotations

import json
import os
import shutil
import sys
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest
from typer.testing import CliRunner

import vectorsearch as vs
from backends.choosing import registry
from backends.errors import InvalidInput, InvalidModel
from backends.folders import folder as folders
from backends.running.text_model import TextLoader
from vectorsearch.cli import app

sys.path.insert(0, str(Path(__file__).parents[2] / "lifecycle" / "support"))

from hostile_folders import write_embedder

OPTIONS = {"embed": None, "rerank": None, "backend": "onnx"}
TEXTS = ["read a file", "rows"]


@pytest.fixture(autouse=True)
def own_cache(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Keep what is remembered of folders where no other test finds it."""
    monkeypatch.setenv("VECTORSEARCH_CACHE", str(tmp_path / "cache"))
    monkeypatch.setattr(folders, "_places", {})


def written(tmp_path: Path, **config: object) -> Path:
    """Write an embedder whose config.json says more."""
    folder = write_embedder(tmp_path / "model")
    path = folder / "config.json"
    path.write_text(json.dumps(json.loads(path.read_text()) | config))
    return folder


def odd(tmp_path: Path) -> Path:
    """Write an embedder with a key that isn't known."""
    folder = write_embedder(tmp_path / "model")
    (folder / "config_sentence_transformers.json").write_text('{"odd": 8}')
    return folder


def test_key_is_kept_when_the_store_vouches_for_it(tmp_path: Path) -> None:
    """It is stored with the model and shown; documents embedded with it are searched after opening again, anywhere."""
    folder = odd(tmp_path)
    with vs.open(tmp_path / "db", **OPTIONS) as store:
        with pytest.raises(InvalidModel, match="--accept-key odd"):
            store.register_model("own", folder, "embed")
        model = store.register_model("own", folder, "embed", accept_keys=["odd"], compare=False)
        assert model.accept_keys == ("odd",)
        store.add([{"id": "a", "text": "read"}, {"id": "b", "text": "rows"}])
        store.reindex(embed="own")
        before = store.search("read", mode="dense")
        assert "embedder_note" not in store.info()
    shutil.rmtree(folder)
    shutil.move(tmp_path / "db", tmp_path / "moved")
    with vs.open(tmp_path / "moved", rerank=None, backend="onnx") as store:
        assert store.registered_models() == (model,)
        assert [hit.id for hit in store.search("read", mode="dense").hits] == [hit.id for hit in before.hits]
        assert store.verify().ok


def test_nobody_vouches_when_a_tenant_registers(tmp_path: Path) -> None:
    """A tenant can't say of its own model that a key changes nothing; the store can, and a needless word is told."""
    folder = odd(tmp_path)
    with vs.open(tmp_path / "db", **OPTIONS) as store:
        with pytest.raises(InvalidInput, match="tenant 'acme' can't vouch"):
            store.tenant("acme").register_model("own", folder, "embed", accept_keys=["odd"])
        with pytest.raises(InvalidModel, match="hidden_act"):
            store.register_model("own", folder, "embed", accept_keys=["odd", "hidden_act"])
        assert store.registered_models(all_tenants=True) == ()


def test_key_is_shown_when_the_command_registered_with_it(tmp_path: Path) -> None:
    """`--accept-key` vouches, and `models show` and `models registered` tell it."""
    folder, db = odd(tmp_path), tmp_path / "db"
    vs.open(db, **OPTIONS).close()
    key = ["--accept-key", "odd"]
    register = ["models", "register", "own", str(folder), "--db", str(db), "--task", "embedder", "--no-compare"]
    for command in (
        [*register, *key],
        ["models", "registered", "own", "--db", str(db)],
        ["models", "show", str(folder), *key],
    ):
        done = CliRunner().invoke(app, [*command, "--json"])
        assert done.exit_code == 0
        assert json.loads(done.stdout)["accept_keys"] == ["odd"]


def test_verify_finds_it_when_the_stored_configuration_is_changed(tmp_path: Path) -> None:
    """M14: the configuration is part of the model, though its size and time are as before."""
    folder = written(tmp_path, num_hidden_layers=12)
    with vs.open(tmp_path / "db", **OPTIONS) as store:
        store.register_model("own", folder, "embed", compare=False)
        assert store.verify().ok
        (path,) = (tmp_path / "db" / "models").glob("*/config.json")
        status = path.stat()
        path.write_text(path.read_text().replace("12", "11"))
        os.utime(path, ns=(status.st_atime_ns, status.st_mtime_ns))
        assert any("changed since" in fault.message for fault in store.verify().faults)


def test_two_tenants_have_two_models_when_only_the_configuration_differs(tmp_path: Path) -> None:
    """M14: what one registers never answers for the other."""
    one, two = (shutil.copytree(written(tmp_path, num_hidden_layers=n), tmp_path / str(n)) for n in (12, 1))
    with vs.open(tmp_path / "db", **OPTIONS) as store:
        first = store.tenant("one").register_model("own", one, "embed", compare=False)
        second = store.tenant("two").register_model("own", two, "embed", compare=False)
    assert first.digest != second.digest
    assert len(list((tmp_path / "db" / "models").iterdir())) == 2


def test_model_of_release_010_goes_on_when_its_answers_are_the_same(tmp_path: Path) -> None:
    """Its row and its documents know it by the former digest: they are searched, verified and told as before."""
    folder = written(tmp_path)
    with vs.open(tmp_path / "db", **OPTIONS) as store:
        model = store.register_model("own", folder, "embed", compare=False)
        former = store._registration.find("own")[0].former_digest
        assert former not in ("", model.digest)
        store.add([{"id": "a", "text": "read"}, {"id": "b", "text": "rows"}])
        store.reindex(embed="own")
        before = [(hit.id, hit.score) for hit in store.search("read", mode="dense").hits]
        (row,) = store._registration._rows.values()
        store._registration._registry.put_model(replace(row, digest=former))
    (copy,) = (tmp_path / "db" / "models").iterdir()
    copy.rename(copy.with_name(former[:32]))
    for path in (tmp_path / "db").rglob("*"):
        if path.is_file() and path.suffix == ".sqlite" and path.name != "registry.sqlite":
            path.write_bytes(path.read_bytes().replace(model.digest[:16].encode(), former[:16].encode()))
    with vs.open(tmp_path / "db", rerank=None, backend="onnx") as store:
        assert store.registered_models()[0].digest == former
        assert "release 0.1.0" in store.info()["embedder_note"]
        np.testing.assert_allclose(
            [hit.score for hit in store.search("read", mode="dense").hits], [score for _, score in before], atol=1e-6
        )
        assert store.verify().ok
        store.add([{"id": "c", "text": "files"}])
        assert len(store.search("files", mode="dense").hits) == 3


def test_documents_are_ranked_by_dot_product_when_the_model_is_for_that(tmp_path: Path) -> None:
    """M7: longer vectors come first where the dot product says so, in memory, in the index and after opening again."""
    folder = write_embedder(tmp_path / "model")
    kinds = {"": "Transformer", "1_Pooling": "Pooling"}
    listed = [{"path": path, "type": f"sentence_transformers.models.{kind}"} for path, kind in kinds.items()]
    (folder / "1_Pooling").mkdir()
    (folder / "1_Pooling" / "config.json").write_text('{"pooling_mode": "mean_sqrt_len_tokens"}')
    (folder / "modules.json").write_text(json.dumps(listed))
    settings = folder / "config_sentence_transformers.json"
    settings.write_text('{"similarity_fn_name": "dot", "prompts": {}}')
    words = ["read", "a", "file", "files", "full", "rows", "warm", "the"]
    texts = [" ".join(words[i : i + n]) for n in (1, 2, 3, 4) for i in range(5)]
    with vs.open(tmp_path / "db", embed=folder, rerank=None, backend="onnx") as store:
        store.add([{"id": str(i), "text": text} for i, text in enumerate(texts)])
        spec = store.embedder
        assert spec is not None
        assert (spec.similarity, spec.dim) == ("dot", 8)
        model = TextLoader(registry.get("onnx")).load_model(spec)
        query = model.embed(["read the file"], kind="query").vectors[0]
        vectors = model.embed(texts, kind="passage").vectors
        model.close()
        expected = [str(i) for i in np.argsort(-(vectors @ query), kind="stable")]
        assert expected != [str(i) for i in np.argsort(-(vectors @ query) / np.linalg.norm(vectors, axis=1))]
        assert [hit.id for hit in store.search("read the file", mode="dense", k=20).hits] == expected
    with vs.open(tmp_path / "db", rerank=None, backend="onnx") as store:
        assert [hit.id for hit in store.search("read the file", mode="dense", k=20).hits] == expected
        assert store.verify().ok
    # Whoever vouches for the similarity is served by cosine.
    with vs.open(tmp_path / "other", **OPTIONS) as store:
        store.register_model("dot", folder, "embed", compare=False)
        assert store.models().models
        settings.write_text('{"similarity_fn_name": "manhattan"}')
        with pytest.raises(InvalidModel, match="manhattan"):
            store.register_model("far", folder, "embed", compare=False)
        model = store.register_model("far", folder, "embed", compare=False, accept_keys=["similarity_fn_name"])
        assert model.accept_keys == ("similarity_fn_name",)
