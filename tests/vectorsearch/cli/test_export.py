"""`vectorsearch models export`: a folder that can be named like a model, or one line that says why not."""

from __future__ import annotations

from typing import TYPE_CHECKING

import pytest
from tokenizers import Tokenizer, models

if TYPE_CHECKING:
    from collections.abc import Callable
    from pathlib import Path

torch = pytest.importorskip("torch")
transformers = pytest.importorskip("transformers")


@pytest.fixture
def weights(tmp_path: Path) -> Path:
    """Write a random BERT as transformers stores it."""
    sizes = {"hidden_size": 16, "num_hidden_layers": 1, "num_attention_heads": 2, "intermediate_size": 32}
    folder = tmp_path / "tiny"
    transformers.BertModel(transformers.BertConfig(**sizes, vocab_size=20)).save_pretrained(folder)
    Tokenizer(models.WordLevel({"[UNK]": 0}, unk_token="[UNK]")).save(str(folder / "tokenizer.json"))  # noqa: S106  (a token, no password)
    return folder


def test_folder_can_be_named_when_a_model_was_exported(
    run: Callable, weights: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The folder is NAME-FORM here by default; steps are on stderr, and `models show` knows the folder."""
    monkeypatch.chdir(tmp_path)
    done = run("models", "export", str(weights), "--json")
    assert done.exit_code == 0
    assert done.json["form"] == "onnx"
    assert done.json["max_difference"] < 1e-4
    assert done.json["folder"] == str(tmp_path / "tiny-onnx")
    assert "comparing it with PyTorch" in done.stderr
    assert run("models", "show", "tiny-onnx", "--json").json["digest"] == done.json["digest"]


def test_command_fails_when_a_model_can_not_be_exported(run: Callable, weights: Path, tmp_path: Path) -> None:
    """A folder that is there, or weights that aren't, is one line and exit code 1; an unknown form is wrong usage."""
    there = run("models", "export", str(weights), "--out", str(tmp_path))
    assert (there.exit_code, "already there" in there.stderr) == (1, True)
    lacking = run("models", "export", str(weights), "--to", "safetensors", "--out", str(tmp_path / "out"))
    assert (lacking.exit_code, "made of an ONNX graph" in lacking.stderr) == (1, True)
    assert run("models", "export", str(weights), "--to", "pickle").exit_code == 2
