"""Bulk embedding: texts a second of every backend and of its peers, on the same texts, in one process, interleaved.

Run: `python tests/benchmarks/bulk_embedding.py COLLECTION --json`, COLLECTION a BEIR folder such as SciFact's: its
documents are the passages, their titles the short texts. `--passages 200 --short 500` is a quick run; `--only NAME …`
measures some systems; `--model NAME` another model. Peers: sentence-transformers as it comes (batches of
32, sorted by length) and in bfloat16, ONNX Runtime as this project drives it (`onnx`), and OpenVINO in both precisions
(`pip install openvino`), sorted and batched by tokens.

The model is exported to ONNX where it has none, into a folder of its own, so that all systems have the same weights.
"""

from __future__ import annotations

import argparse
import json
import sys
import tempfile
import time
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np

from backends import catalogue, registry
from backends.batching import batches, collate
from backends.pooling import answer
from backends.text_model import TextLoader
from backends.tokenizer import FolderTokenizer

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

    from numpy.typing import NDArray

    from backends.base import ModelSpec

    Encode = Callable[[list[str]], NDArray[np.float32]]

OURS = ("onnx", "jax", "jax:float32", "jax:bfloat16", "torch", "torch:float32", "torch:bfloat16", "numpy")
REFERENCE = "sentence-transformers"
OPENVINO_TOKENS = 2048


def texts_of(collection: Path) -> Iterator[tuple[str, str]]:
    """Yield (passage, title) of each document of a BEIR folder."""
    with (collection / "corpus.jsonl").open(encoding="utf-8") as lines:
        for line in lines:
            row = json.loads(line)
            yield f"{row.get('title', '')} {row['text']}".strip(), row.get("title") or row["text"][:80]


def ours(spec: ModelSpec, name: str) -> Encode:
    """Return this project's own way, on one backend."""
    model = TextLoader(registry.get(name)).load_model(spec)
    print(f"  {name} runs on {model.device}", file=sys.stderr)
    return lambda texts: model.embed(texts, kind="passage").vectors


def sentence_transformers(spec: ModelSpec, dtype: str) -> Encode:
    """Return the library's own `encode`, with its defaults but for the type of the weights."""
    from sentence_transformers import SentenceTransformer  # noqa: PLC0415  (a peer; heavy)

    model = SentenceTransformer(str(spec.folder), device="cpu", model_kwargs={"torch_dtype": dtype})
    return lambda texts: np.asarray(
        model.encode(texts, show_progress_bar=False, convert_to_tensor=True).float().numpy(), np.float32
    )


def openvino(spec: ModelSpec, precision: str) -> Encode:
    """Return OpenVINO on the ONNX file, tuned for throughput, batches sorted by length and filled by tokens."""
    import openvino as ov  # noqa: PLC0415  (a peer; heavy)

    compiled = ov.Core().compile_model(
        str(spec.folder / spec.weights_file),
        "CPU",
        {"INFERENCE_PRECISION_HINT": precision, "PERFORMANCE_HINT": "LATENCY"},
    )
    tokenizer = FolderTokenizer(spec.folder / "tokenizer.json")
    taken = [port.get_any_name() for port in compiled.inputs]

    def encode(texts: list[str]) -> NDArray[np.float32]:
        rows = tokenizer.texts(texts, spec.max_length)
        vectors = np.empty((len(texts), spec.dim or 0), np.float32)
        for indices in batches(rows.lengths, token_budget=OPENVINO_TOKENS):
            batch = collate(rows, indices)
            raw = compiled({name: getattr(batch, name) for name in taken})[0]
            vectors[indices] = answer(np.asarray(raw, np.float32), batch, spec)
        return vectors

    return encode


def systems(spec: ModelSpec) -> dict[str, Callable[[], Encode]]:
    """Return a way to load each system, by name."""
    found: dict[str, Callable[[], Encode]] = {}
    if (spec.folder / "model.safetensors").is_file():
        found[REFERENCE] = lambda: sentence_transformers(spec, "float32")
        found[f"{REFERENCE} bfloat16"] = lambda: sentence_transformers(spec, "bfloat16")
    for precision in ("f32", "bf16"):
        found[f"openvino {precision}"] = lambda precision=precision: openvino(spec, precision)  # type: ignore[misc]  (a default binds the loop's value)
    for name in (*OURS, *(("jax:int8",) if "int8" in spec.name else ())):
        if registry.get(name).can_serve(spec):
            found[name] = lambda name=name: ours(spec, name)  # type: ignore[misc]  (as above)
    return found


def matrix_limit() -> dict[str, float]:
    """Return GFLOP/s of one large product in PyTorch, by type: what the machine's matrix units give right now."""
    import torch  # noqa: PLC0415  (heavy)

    limits = {}
    for dtype in (torch.float32, torch.bfloat16):
        x, y = torch.ones(2048, 1024, dtype=dtype), torch.ones(1024, 2048, dtype=dtype)
        seconds = min(_seconds(lambda x=x, y=y: x @ y) for _ in range(10))  # type: ignore[misc]  (as above)
        limits[str(dtype).removeprefix("torch.")] = 2 * 2048 * 1024 * 2048 / seconds / 1e9
    return limits


def _seconds(work: Callable[[], object]) -> float:
    start = time.perf_counter()
    work()
    return time.perf_counter() - start


def measure(spec: ModelSpec, texts: dict[str, list[str]], only: list[str], rounds: int) -> dict[str, Any]:
    """Return, per system and kind of text, texts and tokens a second (best round) and the lowest cosine to float32."""
    loaded = {name: load() for name, load in systems(spec).items() if not only or name in only}
    tokenizer = FolderTokenizer(spec.folder / "tokenizer.json")
    tokens = {kind: int(tokenizer.texts(some, spec.max_length).lengths.sum()) for kind, some in texts.items()}
    best: dict[tuple[str, str], float] = {}
    vectors: dict[tuple[str, str], NDArray[np.float32]] = {}
    for name, encode in loaded.items():  # programs are compiled and arenas filled before anything is timed
        for kind, some in texts.items():
            vectors[name, kind] = encode(some)
    for _ in range(rounds):
        for name, encode in loaded.items():
            for kind, some in texts.items():
                best[name, kind] = min(best.get((name, kind), np.inf), _seconds(lambda e=encode, s=some: e(s)))  # type: ignore[misc]  (as above)
    reference = next((name for name in (REFERENCE, "jax:float32", "numpy") if name in loaded), next(iter(loaded)))
    return {
        name: {
            kind: {
                "texts_per_s": round(len(some) / best[name, kind], 1),
                "tokens_per_s": round(tokens[kind] / best[name, kind]),
                "cosine": round(float((vectors[name, kind] * vectors[reference, kind]).sum(1).min()), 5),
            }
            for kind, some in texts.items()
        }
        for name in loaded
    }


def plot(result: dict[str, Any], path: Path) -> None:
    """Draw texts a second as bars, one panel for each kind of text."""
    import matplotlib as mpl  # noqa: PLC0415  (the extra `bench`)

    mpl.use("Agg")
    from matplotlib import pyplot as plt  # noqa: PLC0415  (after the choice of a canvas)

    found = result["systems"]
    kinds = list(next(iter(found.values())))
    figure, axes = plt.subplots(1, len(kinds), figsize=(5 * len(kinds), 0.4 * len(found) + 1), sharey=True)
    for axis, kind in zip(np.atleast_1d(axes), kinds, strict=True):
        axis.barh(list(found), [found[name][kind]["texts_per_s"] for name in found])
        axis.set_xlabel(f"{kind}, texts a second")
    figure.tight_layout()
    figure.savefig(path)


def main() -> None:
    """Measure and print."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("collection", type=Path, help="a BEIR folder")
    parser.add_argument("--model", default="all-MiniLM-L6-v2")
    parser.add_argument("--passages", type=int, default=2000)
    parser.add_argument("--short", type=int, default=5000)
    parser.add_argument("--rounds", type=int, default=2)
    parser.add_argument("--only", nargs="*", default=[])
    parser.add_argument("--plot", type=Path)
    parser.add_argument("--json", action="store_true")
    args = parser.parse_args()
    pairs = list(texts_of(args.collection))
    texts = {"passages": [p for p, _ in pairs[: args.passages]], "short": [t for _, t in pairs[: args.short]]}
    spec = catalogue.pull(args.model)
    with tempfile.TemporaryDirectory() as folder:
        if not spec.weights_file.endswith(".onnx"):
            from backends.export import export  # noqa: PLC0415  (needs PyTorch)

            spec = export(spec, Path(folder) / args.model).spec
        result: dict[str, Any] = {"model": args.model, "gflop_per_s": matrix_limit()}
        result["systems"] = measure(spec, texts, args.only, args.rounds)
    if args.plot:
        plot(result, args.plot)
    if args.json:
        print(json.dumps(result, indent=2))
        return
    for name, kinds in result["systems"].items():
        print(
            f"{name:32}",
            *(f"{kind} {row['texts_per_s']:8.1f}/s cos {row['cosine']:.5f}  " for kind, row in kinds.items()),
        )


if __name__ == "__main__":
    main()
