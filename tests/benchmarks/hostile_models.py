"""Tenants register good and hostile models in turns, and search: does the process keep its budget, and the quota?

    python tests/benchmarks/hostile_models.py [--seconds N] [--json] [--quick]

Each of several tenants has documents, a good embedder and a quota. Until the time is up each registers one model after
the other, most of them hostile, reranks or embeds with the good one, unregisters it and registers it again. A hostile
registration has to end within `CEILING_S` with an error of this project's; a good answer is compared with the model's
first. A last phase serves one tenant alone, whose growth is held against its quota.

Growth is resident memory, sampled every 5 ms, over its value with the runtimes imported and no model loaded. It may be
the budget (alone: the quota) and `SLACK` more: 64 MiB, or a tenth of it.
"""

from __future__ import annotations

import os
import sys
import tempfile
import threading
import time
from collections import Counter
from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING, Any, Self

import numpy as np
import onnx
import psutil
from lifecycle_measuring import finish, parse_options, quantiles_ms

import vectorsearch as vs
from backends.errors import VectorSearchError
from lifecycle import ModelManager
from lifecycle.measuring import trial

sys.path.insert(0, str(Path(__file__).parents[1] / "lifecycle" / "support"))

import hostile_folders

if TYPE_CHECKING:
    from collections.abc import Callable

MIB = 1 << 20
CEILING_S = 60.0
BUDGET_NBYTES, QUOTA_NBYTES = 320 * MIB, 96 * MIB
TEXTS = [f"read the file {'rows ' * (number % 7)} full {'warm ' * (number % 5)}" for number in range(40)]


def _bomb(folder: Path) -> None:
    """Write a graph of two megabytes that takes hundreds when it is parsed."""
    (folder / "model.onnx").write_bytes(b"\x3a\x80\x80\x80\x01" + b"\x0a\x00" * (1 << 20))


def _huge(folder: Path) -> None:
    os.truncate(folder / "config.json", 1 << 40)


def _pipe(folder: Path) -> None:
    os.mkfifo(folder / "tokenizer_config.json")


def _linked(folder: Path) -> None:
    (folder / "modules.json").symlink_to("/dev/zero")


def _sparse(folder: Path) -> None:
    """Let weights beside the graph say terabytes, of which none is on the disk."""
    model = onnx.load(folder / "model.onnx")
    table = next(tensor for tensor in model.graph.initializer if tensor.name == "table")
    table.ClearField("raw_data")
    table.data_location = onnx.TensorProto.EXTERNAL
    table.external_data.add(key="location", value="table.bin")
    (folder / "model.onnx").write_bytes(model.SerializeToString())
    with (folder / "table.bin").open("wb") as file:
        file.truncate(1 << 42)


def _words(folder: Path) -> None:
    """Add a million words to a tokenizer; written piece by piece, since this process's memory is watched."""
    path = folder / "tokenizer.json"
    before, after = path.read_text(encoding="utf-8").split('"added_tokens": []')
    flags = '"single_word":false,"lstrip":false,"rstrip":false,"normalized":false,"special":false'
    with path.open("w", encoding="utf-8") as file:
        file.write(f'{before}"added_tokens": [')
        file.writelines(f'{{"id":{10 + i},"content":"word{i}",{flags}}},' for i in range(1_000_000))
        file.write(f'{{"id":{1_000_010},"content":"last",{flags}}}]{after}')


def _cut(folder: Path) -> None:
    graph = folder / "model.onnx"
    graph.write_bytes(graph.read_bytes()[:-100])


# What each hostile kind is written with, and what is done to its folder then.
HOSTILE: dict[str, tuple[dict[str, Any], Callable[[Path], object]]] = {
    "greedy": ({"kind": "greedy"}, lambda _: None),
    "crowded": ({"kind": "crowded"}, lambda _: None),
    "sociable": ({"kind": "sociable"}, lambda _: None),
    "random": ({"kind": "random"}, lambda _: None),
    "dying": ({"kind": "dying"}, lambda _: None),
    "nan": ({"kind": "nan"}, lambda _: None),
    "blown up": ({"normalizer": hostile_folders.grows("e", 1_000)}, lambda _: None),
    "panicking": ({"splitter": hostile_folders.panics()}, lambda _: None),
    "bomb": ({}, _bomb),
    "huge": ({}, _huge),
    "pipe": ({}, _pipe),
    "link": ({}, _linked),
    "cut": ({}, _cut),
    "sparse": ({}, _sparse),
    "words": ({}, _words),
    "endless": ({"kind": "endless"}, lambda _: None),
}


class Sampler:
    """Follow resident memory on a thread of its own, over what it was when this was made."""

    def __init__(self) -> None:
        self._process = psutil.Process()
        self._base = self._process.memory_info().rss
        self._stopped = threading.Event()
        self.most = 0
        self._thread = threading.Thread(target=self._run, daemon=True)

    def _run(self) -> None:
        while not self._stopped.wait(0.005):
            self.most = max(self.most, self._process.memory_info().rss - self._base)

    def __enter__(self) -> Self:
        self._thread.start()
        return self

    def __exit__(self, *_: object) -> None:
        self._stopped.set()
        self._thread.join()


@dataclass
class Outcome:
    """What became of the registrations and of the answers."""

    refused: dict[str, str] = field(default_factory=dict)
    slowest: dict[str, float] = field(default_factory=dict)
    counts: Counter[str] = field(default_factory=Counter)
    answers: list[float] = field(default_factory=list)
    wrong: Counter[str] = field(default_factory=Counter)
    parts: dict[str, float] = field(default_factory=dict)


class Tenant:
    """One tenant, what it registers, and the first answers of its good model."""

    def __init__(self, store: vs.Database, number: int, scratch: Path, outcome: Outcome) -> None:
        self._scratch, self._outcome = scratch / f"t{number}", outcome
        self._good = hostile_folders.write_embedder(self._scratch / "good", seed=number)
        self._db = store.tenant(f"t{number}", quota_nbytes=QUOTA_NBYTES)
        self._db.register_model("own", self._good, "embed", compare=False)
        self._db.reindex(embed="own")
        self._db.add({"id": str(row), "text": text} for row, text in enumerate(TEXTS))
        self._first = self._answer()

    def _answer(self) -> list[tuple[str, float]]:
        return [(hit.id, hit.score) for hit in self._db.search("read full rows", k=10, mode="dense")]

    def ask(self) -> None:
        """Search with the good model, and compare the answer with the first."""
        begun = time.perf_counter()
        try:
            found = self._answer()
        except Exception as exc:  # noqa: BLE001 - whatever goes wrong is what is counted
            self._outcome.wrong["errors"] += 1
            print(f"{type(exc).__name__}: {exc}", file=sys.stderr)
            return
        self._outcome.answers.append(time.perf_counter() - begun)
        same = [doc_id for doc_id, _ in found] == [doc_id for doc_id, _ in self._first] and np.allclose(
            [score for _, score in found], [score for _, score in self._first], atol=1e-5
        )
        self._outcome.wrong["wrong_answers"] += not same

    def attack(self, kind: str) -> None:
        """Register a hostile model, which has to be refused in time."""
        options, damage = HOSTILE[kind]
        # Another table each time: else what was tried before would be remembered.
        self._outcome.counts["hostile"] += 1
        folder = self._scratch / f"{kind.replace(' ', '_')}-{self._outcome.counts['hostile']}"
        hostile_folders.write_embedder(folder, seed=self._outcome.counts["hostile"], **options)
        damage(folder)
        begun = time.perf_counter()
        try:
            self._db.register_model("bad", folder, "embed", compare=False)
        except VectorSearchError as exc:
            self._outcome.refused[kind] = f"{type(exc).__name__}: {str(exc).replace(str(self._scratch), '…')[:160]}"
        except BaseException as exc:  # noqa: BLE001 - a foreign error is a fault
            self._outcome.wrong["foreign_errors"] += 1
            print(f"{kind}: {type(exc).__name__}: {exc}", file=sys.stderr)
        else:
            self._outcome.wrong["accepted"] += 1
            print(f"{kind}: was accepted", file=sys.stderr)
        took = time.perf_counter() - begun
        self._outcome.slowest[kind] = round(max(took, self._outcome.slowest.get(kind, 0.0)), 2)
        self._outcome.wrong["late"] += took > CEILING_S

    def exchange(self) -> None:
        """Register a good model beside the own one, and forget it again."""
        self._outcome.counts["good"] += 1
        spare = self._scratch / f"spare-{self._outcome.counts['good']}"
        hostile_folders.write_embedder(spare, seed=1_000 + self._outcome.counts["good"])
        model = self._db.register_model("spare", spare, "embed", compare=False)
        if model.trial is not None:
            self._outcome.parts = dict(model.trial.seconds)
        self._db.unregister_model("spare")


def soak(store: vs.Database, scratch: Path, outcome: Outcome, *, tenants: int, seconds: float) -> None:
    """Let the tenants attack side by side, the good ones answering meanwhile."""
    until = time.monotonic() + seconds
    people = [Tenant(store, number, scratch, outcome) for number in range(tenants)]
    done = threading.Event()

    def attack(tenant: Tenant, number: int) -> None:
        kinds = list(HOSTILE)
        for step in range(len(kinds)):
            if time.monotonic() >= until:
                return
            tenant.attack(kinds[(step + number * 5) % len(kinds)])
            tenant.exchange()

    def answer() -> None:
        while not done.wait(0.01):
            for tenant in people:
                tenant.ask()

    asking = threading.Thread(target=answer)
    attacking = [threading.Thread(target=attack, args=(tenant, number)) for number, tenant in enumerate(people)]
    for thread in (asking, *attacking):
        thread.start()
    for thread in attacking:
        thread.join()
    done.set()
    asking.join()


def measure(*, tenants: int, seconds: float) -> tuple[dict[str, Any], dict[str, int]]:
    """Return the figures, and what must be 0."""
    import onnxruntime  # noqa: F401, PLC0415 - the runtimes are imported before memory counts

    figures: dict[str, Any] = {}
    wrong: Counter[str] = Counter()
    for phase, limit, number in (("alone", QUOTA_NBYTES, 1), ("together", BUDGET_NBYTES, tenants)):
        outcome = Outcome()
        with (
            tempfile.TemporaryDirectory() as folder,
            Sampler() as sampler,
            ModelManager(BUDGET_NBYTES) as manager,
            vs.open(Path(folder) / "db", embed=None, rerank=None, backend="onnx", manager=manager) as store,
        ):
            soak(store, Path(folder), outcome, tenants=number, seconds=seconds / 2)
        wrong["over"] += sampler.most > trial.limit_over(limit)
        wrong += outcome.wrong
        figures[phase] = {
            "limit_mib": limit // MIB, "allowed_mib": trial.limit_over(limit) // MIB,
            "most_grown_mib": round(sampler.most / MIB, 1),
            **outcome.counts, "answers": quantiles_ms(outcome.answers), "slowest_s": outcome.slowest,
            "parts_s": outcome.parts, "refused": outcome.refused,
        }  # fmt: skip
    kinds = ("over", "accepted", "late", "errors", "wrong_answers", "foreign_errors")
    return figures, {kind: int(wrong[kind]) for kind in kinds}


def main() -> None:
    """Print the figures; fail if a promise was broken."""
    options = parse_options(__doc__, plots=False, seconds=300.0)
    with tempfile.TemporaryDirectory() as cache:
        os.environ["VECTORSEARCH_CACHE"] = cache
        seconds = 40.0 if options.quick else options.seconds
        figures, wrong = measure(tenants=2 if options.quick else 4, seconds=seconds)
    finish(figures, options, wrong=wrong)


if __name__ == "__main__":
    main()
