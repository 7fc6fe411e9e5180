"""Mix files of two databases' moments at random, and compare every answer with brute force.

python tests/benchmarks/random_files.py [--seconds 600] [--seed N] [--moments 8] [--json]

Two stores with tenants and registered models go through random changes (upsert, delete, metadata, refresh, compact,
repair, tenants and models that come and go); now and then all files are copied, in turns while the store is open, with
SQLite's log, and after it was closed. Each trial takes one such moment and puts into it a random number of files: of
another moment, of the other store, of another tenant, cut, emptied, with a bit flipped, or gone. Then, whatever opens:

- a database's documents are those that one of the three that may lie there had at some moment (a file in which a bit
  was flipped excepted, which verifying must tell);
- each search, by words, by vector, both with filters, gives what brute force over these documents gives, read-only, for
  writing, and after more was added;
- no document's file and no model's file is gone but one that the trial took;
- what is refused to the one who reads is also told by `verify`, and what `repair` calls mended answers rightly.
"""

from __future__ import annotations

import argparse
import contextlib
import json
import random
import re
import shutil
import sys
import tempfile
import time
import traceback
from collections import Counter
from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np

import vectorsearch as vs
from vectorsearch.errors import VectorSearchError

sys.path.insert(0, str(Path(__file__).parents[2]))

from tests.vectorsearch.biased_models import BiasedBackend, write_model

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable

    from vectorsearch.types import Document

DOCUMENTS = "documents.sqlite"
DIM, WORDS, KINDS = 6, 5, 3
TENANTS = ("", "acme", "globex")
_RANDOM = re.compile(r"[0-9a-f]{32}")
_UNREAD = ("writer.lock", ".lock", "top.json", "top.watch")

# What a database holds: of each id the text, the metadata and the vector.
Content = dict[str, tuple[str, str, bytes]]


def content(db: vs.Database) -> Content:
    """Return all that a database holds."""
    return {doc.id: frozen(doc) for doc in db.iter()}


def frozen(document: Document) -> tuple[str, str, bytes]:
    """Return what makes two documents of one id the same."""
    vector = b"" if document.vector is None else np.asarray(document.vector, np.float32).tobytes()
    return document.text, json.dumps(document.metadata, sort_keys=True), vector


def rows(rng: random.Random, ids: list[int]) -> list[dict[str, Any]]:
    """Make documents of few words, that many have in common, with metadata and a vector of their own."""
    made = []
    for number in ids:
        text = " ".join(f"w{rng.randrange(WORDS)}" for _ in range(rng.randint(1, 4)))
        vector = np.random.default_rng(rng.randrange(1 << 30)).standard_normal(DIM).astype(np.float32)
        made.append(
            {"id": f"d{number}", "text": f"{text} apple", "metadata": {"n": rng.randrange(KINDS)}, "vector": vector}
        )
    return made


def open_store(folder: Path, **options: Any) -> vs.Database:
    """Open a store; its tenants have the same kind of index."""
    return vs.open(folder, embed=None, rerank=None, dense_index="Flat", **options)


@dataclass
class History:
    """One store's moments: copies of its folder, and what each of its databases ever held."""

    at: Path
    seed: int
    moments: list[Path] = field(default_factory=list)
    held: dict[str, list[Content]] = field(default_factory=dict)

    def make(self, moments: int, backend: str) -> None:
        """Let the store live through as many moments."""
        rng = random.Random(self.seed)  # noqa: S311 -- a repeatable choice, no secret
        for number in range(moments):
            with open_store(self.at, backend=backend) as db:
                for _ in range(rng.randint(1, 4)):
                    self._change(db, rng, number)
                if number % 2:
                    self._copy()
            if not number % 2:
                self._copy()

    def _change(self, db: vs.Database, rng: random.Random, number: int) -> None:
        name = rng.choice(TENANTS)
        known = name in (tenant.name for tenant in db.tenants())
        database = db.tenant(name, **({} if known else {"dense_index": "Flat"})) if name else db
        self._note(name, database)
        ids = list(content(database))
        draw = rng.random()
        if draw < 0.4 or not ids:
            database.upsert(rows(rng, rng.sample(range(60), rng.randint(1, 12))))
        elif draw < 0.6:
            database.delete(rng.sample(ids, rng.randint(1, len(ids))))
        elif draw < 0.7:
            database.update_metadata({rng.choice(ids): {"n": rng.randrange(KINDS)}})
        elif draw < 0.8:
            database.refresh()
        elif draw < 0.85:
            database.compact()
        elif draw < 0.88:
            database.repair()
        elif name:
            self._models(db, database, rng, number)
        self._note(name, database)

    def _models(self, db: vs.Database, tenant: vs.Database, rng: random.Random, number: int) -> None:
        registered = [model.name for model in tenant.registered_models()]
        if rng.random() < 0.6 or not registered:
            model = write_model(self.at.parent / f"model-{self.seed}-{number}", 10 * self.seed + number)
            tenant.register_model(f"m{rng.randrange(3)}", model, "cross-encode", compare=False)
        elif rng.random() < 0.7:
            tenant.unregister_model(rng.choice(registered))
        else:
            name = rng.choice(TENANTS[1:])
            with contextlib.suppress(VectorSearchError):
                db.remove_tenant(name)

    def _note(self, name: str, database: vs.Database) -> None:
        held = self.held.setdefault(name, [{}])
        with contextlib.suppress(VectorSearchError):  # a tenant that was just removed
            now = content(database)
            if now != held[-1]:
                held.append(now)

    def _copy(self) -> None:
        copy = self.at.with_name(f"{self.at.name}-{len(self.moments)}")
        shutil.copytree(self.at, copy)
        self.moments.append(copy)


def files(folder: Path) -> list[str]:
    """Return the files that are read, relative to a store's folder."""
    found = (path.relative_to(folder).as_posix() for path in folder.rglob("*") if path.is_file())
    return in_order(name for name in found if not name.endswith(_UNREAD))


def in_order(names: Iterable[str]) -> list[str]:
    """Sort names of files, those that are random in a name last: a seed then draws the same kinds of files again."""
    return sorted(names, key=lambda name: (_RANDOM.sub("", name), name))


@dataclass
class Mixture:
    """One trial: a moment, and what is put into it."""

    folder: Path
    stores: tuple[History, ...]
    rng: random.Random
    done: list[str] = field(default_factory=list)
    flipped: bool = False

    def make(self) -> None:
        """Copy a moment and mix others in."""
        base = self.rng.choice(self.rng.choice(self.stores).moments)
        shutil.copytree(base, self.folder)
        self.done = [f"of {base.name}"]
        for _ in range(self.rng.choice((1, 1, 2, 3, 5, 8))):
            self._harm()
        for lock in self.folder.rglob("writer.lock"):
            lock.write_text(" 999999999\n", encoding="ascii")  # a process that is gone: this one lives

    def _harm(self) -> None:
        how = self.rng.choice(("other", "other", "other", "folder", "tenant", "cut", "emptied", "gone", "flipped"))
        source = self.rng.choice(self.rng.choice(self.stores).moments)
        names = in_order({*files(self.folder), *files(source)})
        name = self.rng.choice([n for n in names if n.endswith((".sqlite", "-wal", "-shm"))] * 2 + names)
        if how == "folder":
            self._put_folder(source)
        elif how == "tenant":
            self._put_tenants()
        elif how == "other" and (source / name).exists():
            self._put(source / name, name, f"{name} of {source.name}")
        elif how == "other":
            self._gone(self.folder / name, name)
        elif (self.folder / name).exists():
            self._spoil(self.folder / name, name, how)

    def _put_folder(self, source: Path) -> None:
        kinds = ("dense", "lexical", "tenants/acme", "tenants/globex", "models", "tenants/acme/dense")
        there = [kind for kind in kinds if (source / kind).is_dir()]
        if there:
            name = self.rng.choice(there)
            shutil.rmtree(self.folder / name, ignore_errors=True)
            shutil.copytree(source / name, self.folder / name)
            self.done.append(f"{name}/ of {source.name}")

    def _put_tenants(self) -> None:
        """Put one tenant's file in the place of another's."""
        one, two = self.rng.sample(("tenants/acme", "tenants/globex"), 2)
        if names := [name for name in files(self.folder) if name.startswith(one)]:
            name = self.rng.choice(names)
            self._put(self.folder / name, two + name.removeprefix(one), f"{name} of here")

    def _spoil(self, path: Path, name: str, how: str) -> None:
        before = path.read_bytes()
        if how == "gone":
            self._gone(path, name)
            return
        if how == "flipped":
            at = self.rng.randrange(max(1, len(before)))
            bit = 1 << self.rng.randrange(8)
            path.write_bytes(bytes(byte ^ (bit if i == at else 0) for i, byte in enumerate(before)))
            self.flipped = True
        else:
            path.write_bytes(before[: self.rng.randrange(len(before) + 1)] if how == "cut" else b"")
        self.done.append(f"{name} {how}")

    def _gone(self, path: Path, name: str) -> None:
        path.unlink(missing_ok=True)
        self.done.append(f"{name} gone")

    def _put(self, source: Path, name: str, told: str) -> None:
        path = self.folder / name
        path.parent.mkdir(parents=True, exist_ok=True)
        shutil.copy(source, path)
        self.done.append(f"{told} as {name}" if told.endswith("here") else told)


class Checker:
    """Tells what is wrong with what a mixture answers."""

    def __init__(self, mixture: Mixture) -> None:
        self._mixture = mixture
        self.wrong: list[str] = []
        self.seen: Counter[str] = Counter()
        held = [store.held.get(name, [{}]) for store in mixture.stores for name in TENANTS]
        self._held = [moment for moments in held for moment in moments]
        own = [store.held.get(name, [{}]) for store in mixture.stores for name in TENANTS[:1]]
        self._own = [moment for moments in own for moment in moments]

    def run(self) -> None:
        """Verify, read, write, repair, read again."""
        folder, kept = self._mixture.folder, self._kept()
        faults = self._verify(folder)
        told = bool(faults)
        refused = self._ask(folder, told=told, read_only=True)
        refused |= self._ask(folder, told=told, read_only=False)
        self.seen["refused" if refused else "answered"] += 1
        if refused and not told:
            self.wrong.append(f"verify found no fault, and it is refused: {refused}")
        self._repair(folder)
        self.wrong += [f"{name} is gone" for name in sorted(kept - self._kept())]

    def _kept(self) -> set[str]:
        """Return the files that nothing else holds: documents, and models; those that were set aside count too."""
        names = files(self._mixture.folder)
        return {name for name in names if name.endswith(DOCUMENTS) or name.startswith("models/")}

    def _verify(self, folder: Path) -> list[str]:
        try:
            with open_store(folder, read_only=True) as db:
                return [str(fault) for fault in db.verify().faults]
        except VectorSearchError as exc:
            return [str(exc)]

    def _ask(self, folder: Path, *, told: bool, read_only: bool) -> set[str]:
        refused = set[str]()
        try:
            with open_store(folder, read_only=read_only) as db:
                try:
                    db.registered_models()
                    names = [tenant.name for tenant in db.tenants()]
                except VectorSearchError as exc:
                    refused.add(str(exc))
                    names = []
                for name in ("", *names):
                    try:
                        database = db.tenant(name) if name else db
                        database.registered_models() if name else None
                        self._compare(database, name, told=told)
                        if not read_only:
                            database.upsert(rows(self._mixture.rng, self._mixture.rng.sample(range(70), 6)))
                            self._brute(database, f"{name} after writing", told=told)
                    except VectorSearchError as exc:
                        refused.add(str(exc))
        except VectorSearchError as exc:
            refused.add(str(exc))
        return refused

    def _compare(self, database: vs.Database, name: str, *, told: bool) -> None:
        now = content(database)
        if now not in (self._held if name else self._own) and not (self._mixture.flipped and told):
            self.wrong.append(f"{name or 'root'}: these documents never were: {sorted(now)}")
        self._brute(database, name, told=told)

    def _brute(self, database: vs.Database, name: str, *, told: bool) -> None:
        """Compare searches with what brute force finds among the documents that are stored."""
        stored = {doc.id: doc for doc in database.iter()}
        excused = self._mixture.flipped and told
        probe = np.random.default_rng(len(stored)).standard_normal(DIM).astype(np.float32)
        for kind in (None, *range(KINDS)):
            passing = {i: doc for i, doc in stored.items() if kind is None or doc.metadata.get("n") == kind}
            options: dict[str, Any] = {} if kind is None else {"filter": {"n": kind}}
            for word in ("apple", *(f"w{i}" for i in range(WORDS))):
                found = {hit.id for hit in database.search(word, mode="lexical", k=200, **options)}
                wanted = {i for i, doc in passing.items() if word in doc.text.split()}
                if found != wanted and not excused:
                    self.wrong.append(f"{name or 'root'}: {word!r}, n={kind} finds {found ^ wanted} wrongly")
            vectors = {i: doc.vector for i, doc in passing.items() if doc.vector is not None}
            scores = {i: float(probe @ vector / np.linalg.norm(vector)) for i, vector in vectors.items()}
            wanted_order = sorted(scores, key=lambda i: -scores[i])[:10]
            found_order = [hit.id for hit in database.search(vector=probe, k=10, **options)]
            if found_order != wanted_order and not excused:
                self.wrong.append(f"{name or 'root'}: by vector, n={kind}: {found_order} for {wanted_order}")

    def _repair(self, folder: Path) -> None:
        """A repair that ends well leaves what answers rightly and is sound."""
        try:
            with open_store(folder) as db:
                ok = db.repair().ok
        except VectorSearchError:
            self.seen["not repaired"] += 1
            return
        self.seen["repaired" if ok else "repaired in part"] += 1
        again = self._verify(folder)
        if ok and again:
            self.wrong.append(f"repair found all well, and verify then: {again[:2]}")
        if ok and (refused := self._ask_only(folder)):
            self.wrong.append(f"repair found all well, and then: {refused}")

    def _ask_only(self, folder: Path) -> str:
        try:
            with open_store(folder) as db:
                for name in ("", *(tenant.name for tenant in db.tenants())):
                    self._brute(db.tenant(name) if name else db, f"{name} after repair", told=False)
        except VectorSearchError as exc:
            return str(exc)
        return ""


def run(at: Path, seed: int, moments: int, goes_on: Callable[[int], bool]) -> tuple[int, Counter[str], list[str]]:
    """Make two histories below `at` and try mixtures while `goes_on(number)`: how many, what was seen, what is bad."""
    backend = BiasedBackend().name
    stores = (History(at / "one", 2 * seed + 1), History(at / "two", 2 * seed + 2))
    for store in stores:
        store.make(moments, backend)
    rng = random.Random(seed)  # noqa: S311 -- a repeatable choice, no secret
    number, seen, wrong = 0, Counter[str](), list[str]()
    while goes_on(number):
        mixture = Mixture(at / "mixture", stores, random.Random(rng.random()))  # noqa: S311 -- as above
        mixture.make()
        checker = Checker(mixture)
        try:
            checker.run()
        except Exception as exc:  # noqa: BLE001 -- whatever it is, it is a fault of ours
            checker.wrong.append("".join(traceback.format_exception(exc)))
        wrong += [f"trial {number} ({'; '.join(mixture.done)}): {what}" for what in checker.wrong]
        seen += checker.seen
        shutil.rmtree(mixture.folder)
        number += 1
    return number, seen, wrong


def main() -> None:
    """Parse the arguments and print what came of it."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--seconds", type=float, default=600)
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument("--moments", type=int, default=8)
    parser.add_argument("--json", action="store_true")
    options = parser.parse_args()
    end = time.monotonic() + options.seconds
    with tempfile.TemporaryDirectory() as folder:
        number, seen, wrong = run(Path(folder), options.seed, options.moments, lambda _: time.monotonic() < end)
    if options.json:
        print(json.dumps({"trials": number, "seen": seen, "wrong": wrong}, indent=2))
    else:
        print(f"{number} trials, {len(wrong)} wrong: {', '.join(f'{what} {n}' for what, n in seen.items())}")
        print("\n".join(wrong))
    sys.exit(bool(wrong))


if __name__ == "__main__":
    main()
