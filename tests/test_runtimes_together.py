"""Runtimes in one process: what is imported beside what, in either order, each case in an interpreter of its own."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import pytest

ROOT = Path(__file__).resolve().parents[1]
FAISS = """
import faiss, numpy as np
index = faiss.IndexFlatIP(16)
index.add(np.eye(16, dtype=np.float32))
assert index.search(np.eye(16, dtype=np.float32), 1)[1][:, 0].tolist() == list(range(16))
"""
TORCH = """
import torch
with torch.inference_mode():
    scores = torch.nn.functional.linear(torch.eye(64), torch.eye(64).repeat(8, 1))
assert scores.argmax(1).tolist() == list(range(64))
"""


def run(code: str) -> subprocess.CompletedProcess[str]:
    """Run code in a fresh interpreter, from the root of the repository."""
    return subprocess.run(
        [sys.executable, "-c", code], cwd=ROOT, capture_output=True, text=True, check=False, timeout=600
    )


def test_sentence_transformers_is_importable_when_the_datasets_folder_is_near() -> None:
    """From the root, the folder `datasets` doesn't pass for the package that sentence-transformers imports."""
    pytest.importorskip("torch")
    done = run("import sentence_transformers; print(sentence_transformers.CrossEncoder.__name__)")
    assert done.stdout.strip() == "CrossEncoder", done.stderr


@pytest.mark.parametrize("parts", [(FAISS, TORCH), (TORCH, FAISS)], ids=["faiss first", "torch first"])
def test_faiss_searches_and_torch_scores_when_both_are_in_a_process(parts: tuple[str, str]) -> None:
    """Each brings threads of its own; in either order of import both answer, again and again."""
    pytest.importorskip("torch")
    done = run("".join(parts) * 3 + "print('done')")
    assert done.stdout.strip() == "done", done.stderr
