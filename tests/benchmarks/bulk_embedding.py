"""Bulk embedding: texts a second of every backend and of its peers, on the same texts, in one process, interleaved.

Run: `python tests/benchmarks/bulk_embedding.py COLLECTION --json`, COLLECTION a BEIR folder such as SciFact's: its
documents are the passages, their titles the short texts. `--passages 200 --short 500` is a quick run; `--only NAME …`
measures some systems; `--model NAME` another model, or a folder made by `vectorsearch models export` and calibrated:
"as chosen" heeds a calibration. It ends with the targets that hold, and tells tokens a second, padding not counted, and
how much of the machine's matrix limit that is: the model's matrix products, over the larger of what one large product
reaches in float32 and bfloat16 in PyTorch in the same run. Peers: sentence-transformers as it comes (batches of
32, sorted by length) and in bfloat16, ONNX Runtime as this project drives it (`onnx`), and OpenVINO in both precisions
(`pip install openvino`), sorted and batched by tokens.

The model is exported to ONNX where it has none, into a folder of its own, so that all systems have the same weights.
"""

from __future__ import annotations

import argparse
import json
import math
import sys
import tempfile
import time
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np
from backend_targets import Target, as_data, ratio

from backends.catalogue import catalogue
from backends.choosing import registry
from backends.choosing.portable import is_packed
from backends.choosing.selection import base_name
from backends.graph import graph
from backends.graph.reading import signature
from backends.graph.rewriting.specialise import specialise
from backends.running.batching import batches, collate
from backends.running.pooling import answer
from backends.running.text_model import TextLoader
from backends.text.tokenizer import FolderTokenizer
from lifecycle.measuring import calibration

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

    from numpy.typing import NDArray

    from backends.base import ModelSpec
    from backends.choosing.selection import Choice

    Encode = Callable[[list[str]], NDArray[np.float32]]

OURS = ("onnx", "jax", "jax:float32", "jax:bfloat16", "torch", "torch:float32", "torch:bfloat16", "numpy")
REFERENCE = "sentence-transformers"
OPENVINO_TOKENS = 2048
WARM_UP = 8  # every eighth text is embedded first, untimed
COSINE = 0.999  # what a peer must keep to be compared with
JAX_TO_ONNX = {"passages": 1.2, "short": 1.4}


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
    for name in (*OURS, *(("jax:int8",) if is_packed(spec) else ())):
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


def gflop_per_token(spec: ModelSpec, lengths: NDArray[np.intp]) -> float:
    """Return the GFLOP of the model's matrix products per token, at the length that the mean token's text has."""
    length = round(float((lengths**2).sum() / lengths.sum()))
    read = graph.load(spec.folder / spec.weights_file)
    output = signature.choose_output(read.outputs, task=spec.task, pooling=spec.pooling, model=spec.name).name
    program = specialise(read, rows=1, length=length, output=output)
    products = [node for node in program.steps if node.op in {"MatMul", "MatMulInteger"}]
    sums = (program.values[node.inputs[0]].shape[-1] for node in products)
    sizes = (math.prod(program.values[node.outputs[0]].shape) for node in products)
    return sum(2 * n * size for n, size in zip(sums, sizes, strict=True)) / length / 1e9


def _seconds(work: Callable[[], object]) -> float:
    start = time.perf_counter()
    work()
    return time.perf_counter() - start


def measure(spec: ModelSpec, texts: dict[str, list[str]], only: list[str], rounds: int, limit: float) -> dict[str, Any]:
    """Return, per system and kind of text, its best round's speed, and the lowest cosine to float32.

    `limit` is GFLOP a second, of which `of_limit` is a share.
    """
    loaded = {name: load() for name, load in systems(spec).items() if not only or name in only}
    tokenizer = FolderTokenizer(spec.folder / "tokenizer.json")
    lengths = {kind: tokenizer.texts(some, spec.max_length).lengths for kind, some in texts.items()}
    gflop = {kind: some.sum() * gflop_per_token(spec, some) for kind, some in lengths.items()}
    best: dict[tuple[str, str], float] = {}
    vectors: dict[tuple[str, str], NDArray[np.float32]] = {}
    for encode in loaded.values():  # programs are compiled and arenas filled before anything is timed
        for some in texts.values():
            encode(some[::WARM_UP])
    for _ in range(rounds):
        for name, encode in loaded.items():
            for kind, some in texts.items():
                start = time.perf_counter()
                vectors[name, kind] = encode(some)
                best[name, kind] = min(best.get((name, kind), np.inf), time.perf_counter() - start)
    reference = next((name for name in (REFERENCE, "jax:float32", "numpy") if name in loaded), next(iter(loaded)))
    return {
        name: {
            kind: {
                "texts_per_s": round(len(some) / best[name, kind], 1),
                "tokens_per_s": round(lengths[kind].sum() / best[name, kind]),
                "of_limit": round(float(gflop[kind] / best[name, kind] / limit), 3),
                "cosine": round(float((vectors[name, kind] * vectors[reference, kind]).sum(1).min()), 5),
            }
            for kind, some in texts.items()
        }
        for name in loaded
    }


def targets(spec: ModelSpec, found: dict[str, Any], chosen: str) -> Iterator[Target]:
    """Yield what is wanted of bulk embedding, for each kind of text."""

    def speed(name: str, kind: str) -> float | None:
        return found[name][kind]["texts_per_s"] if name in found else None

    for kind in next(iter(found.values()), {}):
        ours_per_s = speed(chosen, kind)
        usual = ratio(ours_per_s, speed(REFERENCE, kind))
        yield Target(f"{kind}: as chosen ({chosen}) to {REFERENCE} as it comes", usual, at_least=2.5)
        peers = [name for name in found if base_name(name) not in registry.available()]
        exact = [name for name in peers if found[name][kind]["cosine"] >= COSINE]
        best = max(exact, key=lambda name: speed(name, kind) or 0, default="none")
        what = f"{kind}: as chosen to the best peer of cosine {COSINE:g} ({best})"
        yield Target(what, ratio(ours_per_s, speed(best, kind)), at_least=0.95)
        if not is_packed(spec):
            what = f"{kind}: jax to ONNX Runtime, float32 weights"
            yield Target(what, ratio(speed("jax", kind), speed("onnx", kind)), at_least=JAX_TO_ONNX[kind])


def plot(found: dict[str, Any], path: Path) -> None:
    """Draw texts a second as bars, one panel for each kind of text."""
    import matplotlib as mpl  # noqa: PLC0415  (the extra `bench`)

    mpl.use("Agg")
    from matplotlib import pyplot as plt  # noqa: PLC0415  (after the choice of a canvas)

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
    limits = matrix_limit()
    with tempfile.TemporaryDirectory() as folder:
        if not spec.weights_file.endswith(".onnx"):
            from backends.catalogue.export import export  # noqa: PLC0415  (needs PyTorch)

            spec = export(spec, Path(folder) / args.model).spec
        choice = registry.choose(spec, "bulk", costs=calibration.costs(spec, "bulk"))
        only = [*args.only, choice.backend] if args.only else []
        found = measure(spec, texts, only, args.rounds, max(limits.values()))
    if args.plot:
        plot(found, args.plot)
    judged = list(targets(spec, found, choice.backend))
    if args.json:
        facts = {"model": args.model, "gflop_per_s": limits, "chosen": choice.reason}
        print(json.dumps({**facts, "systems": found, "targets": as_data(judged)}, indent=2))
        return
    say(limits, choice, found, judged)


def say(limits: dict[str, float], choice: Choice, found: dict[str, Any], judged: list[Target]) -> None:
    """Print the table and the targets."""
    print("matrix limit:", ", ".join(f"{gflop:,.0f} GFLOP/s in {name}" for name, gflop in limits.items()))
    print(f"{'':30} {'texts/s':>20} {'tokens/s':>9} {'of limit':>9} {'cosine':>8}")
    for name, kinds in found.items():
        for kind, row in kinds.items():
            speeds = f"{kind:>9} {row['texts_per_s']:10.1f} {row['tokens_per_s']:9,}"
            print(f"{name:30} {speeds} {row['of_limit']:9.1%} {row['cosine']:8.5f}")
    print(f"chosen: {choice.reason}")
    for target in judged:
        print(target)


if __name__ == "__main__":
    main()
