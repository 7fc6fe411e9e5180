"""`vectorsearch top`: what another process has in memory, and never what it had."""

from __future__ import annotations

import io
import json
import time
from contextlib import closing
from dataclasses import replace
from typing import TYPE_CHECKING, Any

import pytest
from rich.console import Console

from lifecycle import Counters, InstanceKey, ManagerSnapshot, ModelRef, ModelStatus
from vectorsearch.cli.commands import top
from vectorsearch.collection.storage.registry import Registry, TenantRow
from vectorsearch.collection.storage.sqlite.store import Store
from vectorsearch.database import top as pictures
from vectorsearch.database.top import FILE_NAME, Picture, Publisher, Sighting

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator
    from pathlib import Path

MIB = 1 << 20
NONE_YET = Counters(**dict.fromkeys(Counters.__dataclass_fields__, 0))

NOT_LOADED: dict[str, Any] = {"state": "registered", "resident": False, "idle_s": None, "charged_nbytes": 0}
NOT_LOADED |= dict.fromkeys(("loads", "hits", "misses"), 0)


def status(*refs: str, digest: str = "d", backend: str = "onnx", **values: Any) -> ModelStatus:
    """Return a model that is ready and idle unless the values say otherwise; refs are `tenant/name`."""
    known = {"device": "cpu", "state": "ready", "resident": True, "leases": 0, "idle_s": 9.0}
    known |= {"nbytes": 100 * MIB, "charged_nbytes": 100 * MIB, "loads": 1, "hits": 3, "misses": 1}
    named = tuple(ModelRef(*ref.split("/")) for ref in refs)
    key = InstanceKey(digest, backend)
    return ModelStatus(refs=named, key=key, backend=backend, **(known | values))


def snapshot(*models: ModelStatus, **values: Any) -> ManagerSnapshot:
    """Return a snapshot of these models under a budget of 1,000 MiB."""
    charged = sum(model.charged_nbytes for model in models)
    known = {"budget_nbytes": 1000 * MIB, "charged_nbytes": charged, "idle_nbytes": 0, "deficit_nbytes": 0}
    known |= {
        "quarantined_nbytes": 0,
        "waiters": 0,
        "by_backend": {},
        "by_tenant": {},
        "residue": {},
        "counters": NONE_YET,
    }
    return ManagerSnapshot(models=models, **(known | values))


SHOP = snapshot(
    status("acme/own", "globex/own", digest="a", leases=2, idle_s=None),
    status("acme/a-name-that-is-longer-than-a-line-of-eighty-columns-can-hold-of-it", digest="b", idle_s=7300.0),
    status("globex/words+jax", digest="c", backend="jax", state="quarantined", resident=False, idle_s=None),
    status("/other", digest="e", **NOT_LOADED),
    status("/other+numpy", digest="e", backend="numpy", **NOT_LOADED),
    idle_nbytes=100 * MIB,
    by_tenant={"acme": 150 * MIB, "globex": 150 * MIB},
    waiters=1,
    quarantined_nbytes=100 * MIB,
    residue={"onnx": 5 * MIB, "jax": 7 * MIB},
)


def drawn(seen: ManagerSnapshot, folder: Path, *, tenant: str | None = None) -> list[str]:
    """Return the picture's lines as a terminal of 80 columns shows them."""
    console = Console(width=80)
    with console.capture() as capture:
        console.print(top.draw(folder, Sighting(Picture(7, "here", 0.0, seen)), tenant=tenant))
    return capture.get().splitlines()


def test_all_is_seen_in_80_columns_when_there_is_much(tmp_path: Path) -> None:
    """Budget, tenants, models, states, leases, bytes, last use and hits; a shared model's bytes stand once."""
    *heading, budget, happened, alarms, _, columns = drawn(SHOP, tmp_path)[:-5]
    rows = drawn(SHOP, tmp_path)[-5:]
    assert "process 7" in " ".join(heading)
    assert budget.split("  ")[1:] == ["█" * 6 + "▒" * 3 + "·" * 21, "300 MiB of 1,000 MiB, 100 MiB idle"]
    assert happened.strip() == "0 loads, 0 evictions, 0 expirations"
    assert alarms.strip() == "1 caller waiting, 100 MiB quarantined, 12 MiB kept by runtimes"
    assert columns.split() == ["tenant", "model", "backend", "state", "leases", "MiB", "last", "use", "hits"]
    assert [row.split() for row in rows] == [
        ["acme", "own", "onnx", "ready", "2", "100", "now", "75", "%"],
        ["globex", "own", "shared"],
        ["acme", rows[2].split()[1], "onnx", "ready", "-", "100", "2", "h", "75", "%"],
        ["globex", "words", "jax", "quarantined", "-", "100", "-", "75", "%"],
        ["-", "other", "onnx", "unloaded", "-", "-", "-", "-"],
    ]
    assert rows[2].split()[1].endswith("…")
    assert all(len(line) <= 80 for line in (budget, *rows))


def test_only_its_own_is_seen_when_a_tenant_is_named(tmp_path: Path) -> None:
    """Neither another's models nor its name, nor what is counted over all tenants."""
    shown = "\n".join(drawn(SHOP, tmp_path, tenant="globex"))
    assert "150 MiB of 1,000 MiB\n" in shown
    assert "globex own   onnx    ready       shared  50        -    -" in shown
    assert "words" in shown
    assert "acme" not in shown
    for told_of_all in ("loads", "evictions", "waiting", "quarantined,", "kept by runtimes"):
        assert told_of_all not in shown
    assert "no models yet" in "\n".join(drawn(snapshot(), tmp_path))


def test_a_column_is_left_out_when_there_are_no_tenants(tmp_path: Path) -> None:
    """A database without tenants shows none, and nothing that went wrong where nothing did."""
    *_, budget, happened, empty, columns, _ = drawn(snapshot(status("/own")), tmp_path)
    assert "idle" not in budget
    assert (happened.strip(), empty.strip()) == ("0 loads, 0 evictions, 0 expirations", "")
    assert columns.split()[0] == "model"


@pytest.fixture
def published(db: Path) -> Iterator[Publisher]:
    """Publish the shop's picture as a server does, a hundred times a second."""
    publisher = Publisher(db, lambda: SHOP)
    with pytest.MonkeyPatch.context() as patch:
        for name, seconds in (("EVERY_S", 0.01), ("STALE_S", 60.0), ("_PATIENCE_S", 60.0)):  # on a busy machine too
            patch.setattr(pictures, name, seconds)
        yield publisher.start()
        publisher.close()


@pytest.mark.usefixtures("published")
def test_the_picture_is_printed_when_a_process_publishes_it(run: Callable, db: Path) -> None:
    """Once, without a terminal too; as JSON it is the whole snapshot, or a tenant's part."""
    assert "quarantined" in run("top", "--db", db, "--once").stdout
    assert "quarantined" in run("top", "--db", db).stdout
    unknown = run("top", "--db", db, "--tenant", "nobody")
    assert (unknown.exit_code, "has no tenant 'nobody'" in unknown.stderr) == (1, True)
    with closing(Store(db)) as store:
        registry = Registry(db)
        registry.bind(store)
        for name in ("acme", "globex"):
            registry.put_tenant(TenantRow(name))
    told = run("top", "--db", db, "--json").json
    assert (told["db"], told["charged_nbytes"], len(told["models"])) == (str(db), 300 * MIB, 5)
    assert told["models"][0]["hit_ratio"] == 0.75
    own = run("top", "--db", db, "--tenant", "globex", "--json").json
    assert [model["refs"] for model in own["models"]] == [
        [{"tenant": "globex", "name": "own"}],
        [{"tenant": "globex", "name": "words+jax"}],
    ]
    assert (own["charged_nbytes"], own["models"][0]["charged_nbytes"]) == (150 * MIB, 50 * MIB)
    assert [model["leases"] for model in own["models"]] == [None, 0]
    assert not {"counters", "waiters", "idle_nbytes", "residue", "by_tenant"} & own.keys()


def test_it_says_so_when_no_process_has_it_open(run: Callable, db: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """A picture that a dead process has left is never printed; the exit code is 1."""
    monkeypatch.setattr(pictures, "_PATIENCE_S", 0.0)
    done = run("top", "--db", db, "--once")
    assert (done.exit_code, done.stdout) == (1, "")
    assert "no process has" in done.stderr
    old = Picture(1, "elsewhere", time.time() - 60, SHOP)
    (db / FILE_NAME).write_text(json.dumps(old.to_dict()))
    done = run("top", "--db", db, "--json")
    assert (done.exit_code, "told nothing for 60 s" in done.json["error"]["message"]) == (1, True)
    assert run("top", "--db", db / "none", "--once").exit_code == 1
    assert run("top", "--db", db, "--interval-s", "5").exit_code == 2  # the process would take nobody to watch


def test_the_picture_is_renewed_when_it_is_watched(db: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """On a terminal it waits for a first picture, draws each, tells when they end, and goes on until Ctrl-C."""
    picture = Picture(7, "here", 0.0, SHOP)
    later = replace(picture, snapshot=replace(SHOP, charged_nbytes=999 * MIB))
    seen = iter([Sighting(None), Sighting(picture), Sighting(later), Sighting(None, "process 7 ended")])
    monkeypatch.setattr(top.Watcher, "look", lambda _: next(seen))
    naps: list[float] = []

    def sleep(seconds: float) -> None:
        naps.append(seconds)
        if len(naps) == 4:
            raise KeyboardInterrupt

    monkeypatch.setattr(top.time, "sleep", sleep)
    console = Console(width=200, force_terminal=True, color_system=None, file=io.StringIO())
    monkeypatch.setattr(top.output, "out", console)
    top.top(db=db, interval_s=2.0)
    assert naps == [0.1, 2.0, 2.0, 2.0]
    shown = console.file.getvalue()  # type: ignore[attr-defined]  # it is the text above
    for text in ("waiting for the process", "300 MiB of", "999 MiB of", "process 7 ended"):
        assert text in shown
