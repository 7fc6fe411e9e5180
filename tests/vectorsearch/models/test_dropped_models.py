"""Models' files after a kill or on a full disk: what was being dropped or made is removed, and the rest stays."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import pytest

import vectorsearch as vs
from vectorsearch.collection.storage.registry import FILE_NAME, Registry

from ..biased_models import BiasedBackend, write_model

sys.path.insert(0, str(Path(__file__).parents[2] / "lifecycle" / "support"))

from hostile_folders import write_embedder

ROOT = Path(__file__).parents[3]


FULL = """
import resource, sys
from pathlib import Path
import vectorsearch as vs
from vectorsearch.collection.storage.errors import StorageFull
with vs.open(sys.argv[1], embed=None, rerank=None, backend="onnx") as db:
    db.registered_models()
    free = resource.getrlimit(resource.RLIMIT_FSIZE)
    resource.setrlimit(resource.RLIMIT_FSIZE, (1 << 20, free[1]))
    try:
        db.register_model("own", sys.argv[2], "embed", compare=False)
    except StorageFull as exc:
        print(exc)
    resource.setrlimit(resource.RLIMIT_FSIZE, free)
    print(list((Path(sys.argv[1]) / "models").iterdir()), db.registered_models(), db.verify().ok)
    print(db.register_model("own", sys.argv[2], "embed", compare=False).name)
"""


@pytest.mark.skipif(sys.platform == "win32", reason="RLIMIT_FSIZE is POSIX")
def test_nothing_is_left_when_the_disk_is_full_as_a_model_is_copied(tmp_path: Path) -> None:
    """14.8: a real write that fails in the middle of a file: the error says so, and with room it is registered."""
    folder = write_embedder(tmp_path / "model")
    (folder / "LICENSE").write_bytes(bytes(3 << 20))
    command = [sys.executable, "-c", FULL, str(tmp_path / "db"), str(folder)]
    environment = os.environ | {"PYTHONPATH": str(ROOT), "VECTORSEARCH_CACHE": str(tmp_path / "cache")}
    done = subprocess.run(command, check=True, capture_output=True, text=True, env=environment, cwd=ROOT)
    told, left, then = done.stdout.splitlines()
    assert "File too large: free disk space and register it again; nothing was kept" in told
    assert (left, then) == ("[] () True", "own")


@pytest.mark.parametrize("has_row", [True, False])
def test_a_marked_copy_goes_with_its_row_and_stays_with_it(tmp_path: Path, *, has_row: bool) -> None:
    """A mark is made before a row goes: killed before that the model stays, killed after it the copy is removed."""
    backend = BiasedBackend().name
    with vs.open(tmp_path / "db", embed=None, rerank=None, backend=backend) as db:
        db.register_model("own", write_model(tmp_path / "model", 1), "cross-encode", compare=False)
        other = db.register_model("other", write_model(tmp_path / "second", 2), "cross-encode", compare=False)
        db.unregister_model("other")
    (copy,) = (tmp_path / "db" / "models").iterdir()
    assert not other.digest.startswith(copy.name)
    mark = copy.with_name(f"{copy.name}.unused")
    mark.touch()
    (copy.with_name(f"{copy.name}.0123.unfinished")).mkdir()
    if not has_row:  # as a killed process leaves it: the row's removal is committed, the documents know both tokens
        with vs.open(tmp_path / "db", embed=None, rerank=None, backend=backend) as db:
            mark.touch()
            db._registration._registry.remove_model("", "own")
        assert not Registry(tmp_path / "db").models()
    with vs.open(tmp_path / "db", embed=None, rerank=None, backend=backend) as db:
        assert [model.name for model in db.registered_models()] == (["own"] if has_row else [])
        assert db.verify().ok
    assert list((tmp_path / "db" / "models").iterdir()) == ([copy] if has_row else [])
    assert (tmp_path / "db" / FILE_NAME).exists()
