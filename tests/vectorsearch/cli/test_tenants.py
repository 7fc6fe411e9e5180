"""The commands for tenants and their registered models, and --tenant of the others."""

from __future__ import annotations

import json
from typing import TYPE_CHECKING

import pytest

import vectorsearch as vs
from vectorsearch.cli.commands.tenants import _parse_size

if TYPE_CHECKING:
    from collections.abc import Callable
    from pathlib import Path


@pytest.fixture
def shop(run: Callable, db: Path) -> Path:
    """Return a database with four documents of its own, and a tenant with one whose id is the same as one of them."""
    assert run("tenants", "add", "acme", "--db", db, "--quota", "512MiB").exit_code == 0
    row = db.parent / "acme.jsonl"
    row.write_text(json.dumps({"_id": "csv.reader", "text": "Acme reads no csv file."}), encoding="utf-8")
    assert run("index", row, "--db", db, "--tenant", "acme").exit_code == 0
    return db


@pytest.fixture
def features(run: Callable, shop: Path) -> Path:
    """Return the folder of an embedder that was fitted on the database's own documents."""
    folder = shop.with_name("features")
    assert run("models", "fit-features", "--db", shop, "--dim", 4, "--out", folder).exit_code == 0
    return folder


def test_a_tenant_lives_when_it_is_added_changed_listed_and_removed(run: Callable, tmp_path: Path) -> None:
    """Each command says what is now so, as text or JSON; the database is made by the first one."""
    shop = ("--db", tmp_path / "shop.db")
    added = run(
        "tenants", "add", "acme", *shop, "--quota", "1.5GiB", "--guaranteed", "64MB", "--embed", "none", "--json"
    )
    sizes = {"quota_nbytes": 3 << 29, "guaranteed_nbytes": 64_000_000}
    assert added.json == {"name": "acme", **sizes, "models": 0, "embedder": None}
    assert run("tenants", "set", "acme", *shop, "--quota", "none", "--json").json["quota_nbytes"] is None
    assert run("tenants", "set", "acme", *shop, "--guaranteed", "none", "--json").json["guaranteed_nbytes"] == 0
    assert run("tenants", "add", "globex", *shop).exit_code == 0
    listed = run("tenants", "list", *shop).stdout.splitlines()
    assert [line.split() for line in listed[1:]] == [[name, "none", "none", "0"] for name in ("acme", "globex")]
    removed = run("tenants", "remove", "acme", *shop, "--json")
    assert removed.json == {"db": str(tmp_path / "shop.db"), "removed": "acme"}
    assert [row["name"] for row in run("tenants", "list", *shop, "--json").json["tenants"]] == ["globex"]


def test_only_a_tenants_documents_are_seen_when_it_is_named(run: Callable, shop: Path) -> None:
    """--tenant takes each command to that tenant's own database, rejected rows too; without it to the root's."""
    assert run("search", "reads", "--db", shop, "--tenant", "acme", "--json").json["hits"][0]["text"] == (
        "Acme reads no csv file."
    )
    assert len(run("search", "file", "--db", shop, "--json").json["hits"]) == 3
    for command, documents in (("info", 4), ("verify", 5)):  # the root's own; a store is verified with its tenants
        assert run(command, "--db", shop, "--tenant", "acme", "--json").json["documents"] == 1
        assert run(command, "--db", shop, "--json").json["documents"] == documents
    for command in ("compact", "repair"):
        assert run(command, "--db", shop, "--tenant", "acme").exit_code == 0
    bad = shop.parent / "bad.jsonl"
    bad.write_text("{}\n", encoding="utf-8")
    rejected = run("index", bad, "--db", shop, "--tenant", "acme", "--json")
    assert rejected.exit_code == 1
    assert rejected.json["rejects"] == str(shop / "tenants" / "acme" / "rejects.jsonl")


def test_a_tenant_is_measured_when_it_is_named(run: Callable, shop: Path, collection: Path) -> None:
    """`evaluate --db DIR --tenant NAME` asks the tenant's documents; without a database it makes no sense."""
    judged = ("--queries", collection / "queries.jsonl", "--qrels", collection / "qrels" / "test.tsv")
    done = run("evaluate", "--db", shop, "--tenant", "acme", *judged, "--mode", "lexical", "--json")
    assert (done.exit_code, done.json["documents"]) == (0, 1)
    assert run("evaluate", "--collection", collection, "--tenant", "acme").exit_code == 2


def test_a_tenants_copy_is_a_database_when_it_is_taken(run: Callable, shop: Path, features: Path) -> None:
    """It has the tenant's documents and registered models, and no tenants."""
    copy = shop.with_name("copy.db")
    registering = ("models", "register", "words", features, "--db", shop, "--tenant", "acme", "--task", "embedder")
    assert run(*registering).exit_code == 0
    assert run("snapshot", copy, "--db", shop, "--tenant", "acme", "--json").json["documents"] == 1
    (model,) = run("models", "registered", "--db", copy, "--json").json["models"]
    assert (model["tenant"], model["name"]) == ("", "words")
    assert run("search", "reads", "--db", copy, "--json").json["hits"][0]["text"] == "Acme reads no csv file."
    assert run("tenants", "list", "--db", copy, "--json").json["tenants"] == []


def test_the_known_tenants_are_named_when_one_is_unknown(run: Callable, shop: Path) -> None:
    """The message names them and the command that adds one; nothing is made by a slip of the pen."""
    commands = (["search", "x"], ["index", shop.parent / "acme.jsonl"], ["info"], ["verify"], ["models", "registered"])
    for command in (*commands, ["reindex", "--embed", "none"], ["tenants", "remove", "acmee"]):
        tenant = [] if "remove" in command else ["--tenant", "acmee"]
        done = run(*command, "--db", shop, *tenant)
        assert done.exit_code == 1
        assert "no tenant 'acmee' (there are: acme)" in done.stderr
        assert "`vectorsearch tenants add NAME --db" in done.stderr
    assert not (shop / "tenants" / "acmee").exists()


@pytest.mark.parametrize(
    ("arguments", "exit_code", "message"),
    [
        (("add", "Acme"), 2, "lower-case letters"),
        (("add", "acme"), 1, "tenants set acme --db"),
        (("add", "new", "--quota", "512"), 2, "is no size: write 512MiB"),
        (("add", "new", "--quota", "1MB", "--guaranteed", "1MiB"), 2, "guarantee can't be larger"),
        (("add", "new", "--embed", "no-such-model"), 1, "no-such-model"),
        (("set", "acme"), 2, "say what to change"),
        (("set", "globex", "--quota", "1MB"), 1, "no tenant 'globex'"),
    ],
)
def test_nothing_is_changed_when_a_command_is_wrong(
    run: Callable, shop: Path, arguments: tuple[str, ...], exit_code: int, message: str
) -> None:
    """The message says what to do, and the tenants are as before."""
    before = run("tenants", "list", "--db", shop, "--json").json
    done = run("tenants", *arguments, "--db", shop)
    assert done.exit_code == exit_code
    assert message in " ".join(done.stderr.split())
    assert run("tenants", "list", "--db", shop, "--json").json == before


@pytest.mark.parametrize(
    ("arguments", "exit_code"),
    [
        (("Acme",), 2),
        (("acme", "--quota", "1MB", "--guaranteed", "1MiB"), 2),
        (("acme", "--embed", "no-such-model"), 1),
    ],
)
def test_no_database_is_left_when_its_first_tenant_is_refused(
    run: Callable, tmp_path: Path, arguments: tuple[str, ...], exit_code: int
) -> None:
    """A name, a size or an embedder that can't be makes no folder, and takes none away that was there."""
    assert run("tenants", "add", *arguments, "--db", tmp_path / "shop.db").exit_code == exit_code
    assert not (tmp_path / "shop.db").exists()
    (tmp_path / "kept.db").mkdir()
    assert run("tenants", "add", *arguments, "--db", tmp_path / "kept.db").exit_code == exit_code
    assert (tmp_path / "kept.db").exists()


def test_nothing_is_removed_when_another_has_the_database_open(run: Callable, shop: Path, features: Path) -> None:
    """Commands that write name the process that has it open; those that read go on beside it."""
    with vs.open(shop):
        for command in (
            ["tenants", "remove", "acme"],
            ["tenants", "add", "new"],
            ["tenants", "set", "acme", "--quota", "none"],
            ["models", "register", "x", features, "--task", "embedder"],
            ["models", "unregister", "x"],
            ["compact"],
        ):
            done = run(*command, "--db", shop)
            assert done.exit_code == 1
            assert "is open for writing in process" in done.stderr
            assert "commands that only read" in done.stderr
        assert run("tenants", "list", "--db", shop).exit_code == 0
        assert run("models", "registered", "--db", shop).exit_code == 0
        assert run("search", "reads", "--db", shop, "--tenant", "acme").exit_code == 0


def test_a_models_life_is_told_when_it_is_registered(run: Callable, shop: Path, features: Path) -> None:
    """It is listed for its tenant alone, shown in full, taken into use, exchanged and forgotten."""
    options = ("--db", shop, "--tenant", "acme")
    made = run("models", "register", "words", features, *options, "--task", "embedder", "--ttl", 300, "--json")
    assert made.exit_code == 0
    assert (made.json["tenant"], made.json["config"]["ttl_s"], made.json["replaced"]) == ("acme", 300.0, False)
    again = run(
        "models", "register", "words", features, *options, "--task", "embed", "--no-warm-up", "--pinned", "--json"
    )
    assert again.json["replaced"]
    assert (again.json["config"]["warm_up"], again.json["config"]["pinned"]) == (False, True)
    listed = run("models", "registered", "--db", shop).stdout.splitlines()
    assert listed[1].split()[:3] == ["acme", "words", "embed"]
    assert "pinned" in listed[1]
    assert run("models", "registered", "words", "--db", shop).stdout.splitlines()[0].split() == ["tenant", "acme"]
    assert run("models", "registered", *options, "--json").json["models"][0]["name"] == "words"
    assert run("tenants", "list", "--db", shop, "--json").json["tenants"][0]["models"] == 1
    assert run("reindex", "--embed", "words", *options, "--json").json == {
        "db": str(shop),
        "embed": "words",
        "vectors": 1,
        "truncated": 0,
    }
    assert run("search", "csv file", *options, "--mode", "dense", "--json").json["hits"][0]["id"] == "csv.reader"
    assert run("reindex", "--embed", "words", "--db", shop).exit_code == 1
    kept = run("models", "unregister", "words", *options)
    assert (kept.exit_code, "has embedded the documents of acme" in kept.stderr) == (1, True)
    slip = run("search", "x", *options, "--rerank", "word")
    assert (slip.exit_code, "registered here: words" in slip.stderr) == (1, True)
    assert run("models", "register", "new", features, *options, "--task", "embedder").exit_code == 0
    assert run("reindex", "--embed", "new", *options).exit_code == 0
    assert run("models", "unregister", "words", *options).exit_code == 0
    gone = run("models", "unregister", "words", *options)
    assert (gone.exit_code, "no model 'words' is registered" in gone.stderr) == (1, True)


def test_a_stores_embedder_stays_when_a_tenants_documents_have_its_vectors(
    run: Callable, shop: Path, features: Path
) -> None:
    """What a tenant took over from the store is kept for it, until it is embedded again or gone."""
    options = ("--db", shop, "--task", "embedder")
    assert run("models", "register", "words", features, *options).exit_code == 0
    assert run("reindex", "--embed", "words", "--db", shop).exit_code == 0
    assert run("tenants", "add", "globex", "--db", shop, "--json").json["embedder"] == "words"
    other = shop.with_name("other")
    assert run("models", "fit-features", "--db", shop, "--dim", 2, "--out", other).exit_code == 0
    assert run("reindex", "--embed", other, "--db", shop).exit_code == 0
    for command in (["unregister", "words", "--db", shop], ["register", "words", other, *options]):
        kept = run("models", *command)
        assert (kept.exit_code, "has embedded the documents of tenant globex" in kept.stderr) == (1, True)
    assert run("info", "--db", shop, "--tenant", "globex").exit_code == 0
    assert run("tenants", "remove", "globex", "--db", shop).exit_code == 0
    assert run("models", "unregister", "words", "--db", shop).exit_code == 0


def test_the_owners_are_named_when_a_models_name_is_two_tenants(run: Callable, shop: Path, features: Path) -> None:
    """`models registered NAME` shows the database's own; of several tenants it asks which."""
    assert run("tenants", "add", "globex", "--db", shop).exit_code == 0
    for owner in ("acme", "globex"):
        options = ("--db", shop, "--tenant", owner, "--task", "embedder")
        assert run("models", "register", "words", features, *options).exit_code == 0
    asked = run("models", "registered", "words", "--db", shop)
    assert (asked.exit_code, "a model of acme, globex: say which with --tenant" in asked.stderr) == (1, True)
    assert run("models", "registered", "words", "--db", shop, "--tenant", "globex", "--json").json["tenant"] == "globex"
    assert "there are words" in run("models", "registered", "other", "--db", shop).stderr
    assert run("models", "register", "words", features, "--db", shop, "--task", "embedder").exit_code == 0
    assert run("models", "registered", "words", "--db", shop, "--json").json["tenant"] == ""


@pytest.mark.parametrize(
    ("arguments", "expected"),
    [
        (("own", "no-such-model", "--task", "embedder"), (1, "no model 'no-such-model'")),
        (("own", "FOLDER", "--task", "cross-encoder"), (1, "is for 'embed'")),
        (("own", "FOLDER", "--task", "classify"), (2, "is none of embed")),
        (("own", "FOLDER", "--task", "embedder", "--load-policy", "soon"), (2, "is none of lazy, eager")),
        (("../own", "FOLDER", "--task", "embedder"), (1, "a letter or digit first")),
        (("own", "FOLDER"), (2, "Missing option '--task'")),
    ],
)
def test_nothing_is_registered_when_a_command_is_wrong(
    run: Callable, shop: Path, features: Path, arguments: tuple[str, ...], expected: tuple[int, str]
) -> None:
    """The message names the cause, and no model is there afterwards."""
    given = (str(features) if argument == "FOLDER" else argument for argument in arguments)
    done = run("models", "register", *given, "--db", shop)
    assert done.exit_code == expected[0]
    assert expected[1] in " ".join(done.stderr.split())
    assert run("models", "registered", "--db", shop, "--json").json["models"] == []


@pytest.mark.parametrize(
    ("text", "nbytes"), [("512MiB", 512 << 20), ("1.5GiB", 3 << 29), ("2gb", 2 * 10**9), ("7B", 7)]
)
def test_sizes_are_bytes_when_read(text: str, nbytes: int) -> None:
    """Binary and decimal units, in any case, with a fraction."""
    assert _parse_size(text, option="--quota") == nbytes
