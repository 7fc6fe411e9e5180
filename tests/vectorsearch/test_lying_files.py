"""U1, U3: weights that say more than they are: each is refused in time, by this project's words, and not kept."""

from __future__ import annotations

import json
import os
import struct
import sys
import zipfile
from pathlib import Path
from typing import Any

import numpy as np
import onnx
import pytest

import vectorsearch as vs
from backends.errors import InvalidModel
from backends.features import feature_model

sys.path.insert(0, str(Path(__file__).parents[1] / "lifecycle" / "support"))

from hostile_folders import write_embedder

MIB = 1 << 20
QUOTA_NBYTES = 96 * MIB


@pytest.fixture(autouse=True)
def own_cache(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Keep what is remembered of folders and trials where no other test finds it."""
    monkeypatch.setenv("VECTORSEARCH_CACHE", str(tmp_path / "cache"))


def _table(folder: Path, header: dict[str, Any], data: bytes = b"", *, length: int | None = None) -> None:
    """Make a folder that of a table, in a safetensors file with this header, which may lie about its own length."""
    (folder / "model.onnx").unlink()
    config = {"model_type": "model2vec", "architectures": ["StaticModel"], "normalize": True, "hidden_dim": 8}
    (folder / "config.json").write_text(json.dumps(config), encoding="utf-8")
    raw = json.dumps(header).encode()
    said = struct.pack("<Q", len(raw) if length is None else length)
    (folder / "model.safetensors").write_bytes(said + raw + data)


def _beyond(folder: Path) -> None:
    _table(folder, {"embeddings": {"dtype": "F32", "shape": [10, 8], "data_offsets": [0, 1 << 40]}}, bytes(320))


def _wide(folder: Path) -> None:
    _table(folder, {"embeddings": {"dtype": "F32", "shape": [1 << 38, 8], "data_offsets": [0, 320]}}, bytes(320))


def _long_header(folder: Path) -> None:
    _table(folder, {}, length=1 << 62)


def _many_tensors(folder: Path) -> None:
    empty = {"dtype": "F32", "shape": [0], "data_offsets": [0, 0]}
    _table(folder, {f"t{number}": empty for number in range(100_000)})


def _zipped(folder: Path) -> None:
    """Pack a gigabyte of zeros into a megabyte, as the table of a feature model."""
    tokenizer = feature_model.FeatureTokenizer("en")
    config = {"model_type": feature_model.MODEL_TYPE, "hidden_size": 8, "language": "en", "analysis": tokenizer.check}
    (folder / "config.json").write_text(json.dumps(config), encoding="utf-8")
    with zipfile.ZipFile(folder / feature_model.WEIGHTS_FILE, "w", zipfile.ZIP_DEFLATED, compresslevel=1) as packed:
        for name, shape in (("terms.npy", (1 << 25,)), ("rows.npy", (1 << 25, 8))):
            with packed.open(name, "w", force_zip64=True) as array:
                header = {"descr": "<u4" if len(shape) == 1 else "<f4", "fortran_order": False, "shape": shape}
                np.lib.format.write_array_header_1_0(array, header)
                for _ in range(int(np.prod(shape)) * 4 // MIB):
                    array.write(bytes(MIB))


def _external(folder: Path, **where: str) -> None:
    """Let a graph have its table elsewhere."""
    model = onnx.load(folder / "model.onnx")
    table = next(tensor for tensor in model.graph.initializer if tensor.name == "table")
    table.ClearField("raw_data")
    table.data_location = onnx.TensorProto.EXTERNAL
    for key, value in ({"location": "table.bin"} | where).items():
        table.external_data.add(key=key, value=value)
    (folder / "model.onnx").write_bytes(model.SerializeToString())


def _terabytes(folder: Path) -> None:
    _external(folder)
    with (folder / "table.bin").open("wb") as file:
        file.truncate(1 << 42)


def _outside(folder: Path) -> None:
    _external(folder, location="../../../../etc/passwd")


def _device(folder: Path) -> None:
    _external(folder, location="/dev/zero")


def _linked(folder: Path) -> None:
    _external(folder)
    (folder / "table.bin").symlink_to("/dev/zero")


def _piped(folder: Path) -> None:
    _external(folder)
    os.mkfifo(folder / "table.bin")


def _longer(folder: Path) -> None:
    _external(folder, length=str(1 << 40))
    (folder / "table.bin").write_bytes(bytes(320))


def _before(folder: Path) -> None:
    _external(folder, offset="-5", length="320")
    (folder / "table.bin").write_bytes(bytes(320))


def _terabytes_beside(folder: Path) -> None:
    (folder / "2_Dense").mkdir()
    with (folder / "2_Dense" / "model.safetensors").open("wb") as file:
        file.truncate(1 << 42)


@pytest.mark.skipif(sys.platform == "win32", reason="a file of which nothing is on the disk")
@pytest.mark.parametrize(
    ("harm", "why"),
    [
        (_beyond, "can't read the weights"),
        (_wide, "can't read the weights"),
        (_long_header, "header too large"),
        (_many_tensors, r"\(100000 in all\): a table is named"),
        (_zipped, "took more than 160 MiB of memory"),
        (_terabytes, "has 4194304 MiB, and a model may take 160 MiB"),
        (_outside, "keeps weights in .*passwd', which is not a file beside it"),
        (_device, "keeps weights in '/dev/zero', which is not a file beside it"),
        (_linked, "keeps weights in 'table.bin', which is not a file beside it"),
        (_piped, "keeps weights in 'table.bin', which is not a file beside it"),
        (_longer, "ONNX Runtime can't load"),
        (_before, "ONNX Runtime can't load"),
        (_terabytes_beside, "has 4194304 MiB, and a model may take 160 MiB"),
    ],
)
def test_a_model_is_refused_when_its_weights_lie(tmp_path: Path, harm: Any, why: str) -> None:
    """Offsets beyond the file, a header without an end, a zip of zeros, terabytes of holes: nothing is read whole."""
    folder = write_embedder(tmp_path / "model")
    harm(folder)
    with vs.open(tmp_path / "db", embed=None, rerank=None) as store:
        tenant = store.tenant("acme", quota_nbytes=QUOTA_NBYTES)
        with pytest.raises(InvalidModel, match=why) as refused:
            tenant.register_model("bad", folder, "embed", compare=False)
        assert len(str(refused.value)) < 1_000
        assert tenant.registered_models() == ()
    models = tmp_path / "db" / "models"
    assert not models.exists() or not any(models.iterdir())
