from __future__ import annotations

import json
import os
import subprocess
import sys
from collections import Counter
from pathlib import Path
from typing import Any

import pytest

from backends.errors import InvalidInput, VectorSearchError
from vectorsearch.evaluation.collecting import stdlib_corpus, stdlib_objects
from vectorsearch.evaluation.collecting.collections import TestCollection, read_collection
from vectorsearch.evaluation.collecting.stdlib_corpus import build_corpus, find_questions, write_collection
from vectorsearch.evaluation.collecting.stdlib_objects import SKIPPED, find_objects

# Judged names that some supported Python lacks; everything else must be there.
FROM_3_12 = {"pdb.set_trace", "pdb.post_mortem"}
FROM_3_13 = {"re.PatternError", "warnings.deprecated"}
UNTIL_3_12 = {"re.error"}
LINUX_ONLY = {"selectors.EpollSelector"}
# An interpreter is built without these where a C library was missing.
OPTIONAL_MODULES = {"bz2", "ctypes", "curses", "lzma", "sqlite3", "ssl", "zlib"}

PROGRAM = Path(stdlib_objects.__file__)


@pytest.fixture(scope="module")
def corpus() -> dict[str, dict[str, Any]]:
    """Give the corpus of this interpreter by id."""
    return {row["_id"]: row for row in build_corpus()}


@pytest.fixture(scope="module")
def collection(tmp_path_factory: pytest.TempPathFactory) -> TestCollection:
    """Give the collection as it is written and read back."""
    return read_collection(write_collection(tmp_path_factory.mktemp("built") / "stdlib"))


def run_program(*options: str, **environment: str) -> subprocess.CompletedProcess[str]:
    """Run the program that describes the standard library, open to its environment, with warnings as errors."""
    command = [sys.executable, "-S", "-P", "-W", "error", *options]
    return subprocess.run(
        command,
        env={**os.environ, **environment},
        capture_output=True,
        text=True,
        check=False,
        stdin=subprocess.DEVNULL,
    )


def test_corpus_is_byte_identical_when_hash_seed_and_environment_differ(corpus: dict[str, dict[str, Any]]) -> None:
    """Interpreters with other hash seeds, locales, homes and terminals write the same bytes, and nothing else."""
    here = "".join(f"{json.dumps(row)}\n" for row in corpus.values())
    for seed, terminal, locale in (("1", "xterm", "C"), ("4242", "dumb", "C.UTF-8")):
        done = run_program(str(PROGRAM), PYTHONHASHSEED=seed, TERM=terminal, LC_ALL=locale, HOME=f"/nowhere/{seed}")
        assert (done.returncode, done.stderr) == (0, "")
        assert done.stdout == here


def test_no_module_with_side_effects_is_imported_when_building() -> None:
    """Modules that act when they are imported, programs and tests stay out of sys.modules."""
    show = "import runpy, sys; runpy.run_path(sys.argv[1], run_name=sys.argv[2]); print(*sys.modules, file=sys.stderr)"
    built, plain = (run_program("-c", show, str(PROGRAM), name) for name in ("__main__", "imported"))
    imported = set(built.stderr.split()) - set(plain.stderr.split())
    acting = {"antigravity", "this", "readline", "rlcompleter", "tkinter", "turtle", "turtledemo", "idlelib"}
    assert acting <= {name for names in SKIPPED.values() for name in names}
    assert len(imported) > 200
    # From 3.13 on pdb itself completes names; in a process of its own, without a terminal, that does nothing.
    assert imported & acting <= ({"readline", "rlcompleter"} if sys.version_info >= (3, 13) else set())
    assert [name for name in imported if {"__main__", "test", "tests"} & set(name.split("."))] == []


def test_this_process_is_untouched_when_building() -> None:
    """Building imports nothing here, and sees nothing that was patched here."""
    before = set(sys.modules)
    with pytest.MonkeyPatch.context() as patched:
        patched.setattr("shutil.which", lambda: None)
        rows = {row["_id"]: row["title"] for row in build_corpus()}
    assert set(sys.modules) == before
    assert rows["shutil.which"].startswith("shutil.which(cmd, mode=")


def test_a_users_module_is_not_run_when_it_has_the_name_of_a_standard_one(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A ./sched.py, also on PYTHONPATH, is neither run nor described."""
    (tmp_path / "sched.py").write_text('"""Mine."""\nraise SystemExit("ran")\n', encoding="utf-8")
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("PYTHONPATH", str(tmp_path))
    assert {row["_id"]: row["text"] for row in build_corpus()}["sched"] != "Mine."


def test_error_has_the_last_line_when_the_interpreter_fails(monkeypatch: pytest.MonkeyPatch) -> None:
    """A program that fails, and an interpreter that can't be started, are reported with the reason."""
    monkeypatch.setattr(stdlib_objects, "__file__", "/nowhere/stdlib_objects.py")
    with pytest.raises(VectorSearchError, match=r"failed to build the stdlib corpus \(2\): .*can't open file"):
        build_corpus()
    monkeypatch.setattr(sys, "executable", "/nowhere/python")
    with pytest.raises(VectorSearchError, match="can't start '/nowhere/python'"):
        build_corpus()


def test_corpus_has_thousands_of_entries_when_built(corpus: dict[str, dict[str, Any]]) -> None:
    """The corpus has 4,000 entries or more, sorted by id, each with title, text, module and kind."""
    assert len(corpus) >= 4000
    assert list(corpus) == sorted(corpus)
    kinds = {"attribute", "class", "function", "method", "module", "property", "special form"}
    for name, row in corpus.items():
        assert row["title"].startswith(name)
        assert row["text"].strip()
        assert row["metadata"]["kind"] in kinds
        assert name == row["metadata"]["module"] or row["metadata"]["module"] in {"builtins", *_prefixes(name)}


def _prefixes(name: str) -> set[str]:
    parts = name.split(".")
    return {".".join(parts[:end]) for end in range(1, len(parts))}


def test_each_object_comes_once_when_it_has_several_names() -> None:
    """No object has two entries, and no alias of one is the id of another."""
    found = find_objects()
    assert len({id(entry.obj) for entry in found}) == len(found) == len({entry.name for entry in found})
    assert {entry.name for entry in found}.isdisjoint(alias for entry in found for alias in entry.aliases)


@pytest.mark.parametrize(
    ("name", "alias"),
    [
        ("open", "io.open"),
        ("OSError", "IOError"),
        ("json.JSONDecoder", "json.decoder.JSONDecoder"),
        ("random.randint", "random.Random.randint"),
        ("multiprocessing.Pool", None),
        ("os.path.join", None),
        ("csv.reader", None),
        ("str.split", None),
        ("pathlib.Path.glob", None),
        ("pathlib.PurePath.name", None),
        ("collections.Counter.most_common", None),
        ("socket.socket.bind", None),
        ("asyncio.gather", "asyncio.tasks.gather"),
        ("typing.Protocol", None),
        ("hashlib.scrypt", None),
    ],
)
def test_an_object_has_its_best_known_name_when_there_are_several(
    corpus: dict[str, dict[str, Any]], name: str, alias: str | None
) -> None:
    """Objects of private and implementing modules appear under their public name; the others are aliases."""
    assert name in corpus
    assert alias is None or alias in corpus[name]["metadata"]["aliases"]
    assert alias not in corpus


def test_a_title_is_name_and_signature_when_there_is_one(corpus: dict[str, dict[str, Any]]) -> None:
    """Signatures have no `self`, no annotations; objects as defaults are shown as `...`."""
    assert corpus["pathlib.Path.mkdir"]["title"].startswith("pathlib.Path.mkdir(mode=511")
    assert corpus["textwrap.fill"]["title"] == "textwrap.fill(text, width=70, **kwargs)"
    assert "timeout=..." in corpus["urllib.request.urlopen"]["title"]
    assert "AddressFamily.AF_INET" in corpus["socket.create_server"]["title"]


def test_nothing_of_this_machine_is_in_the_corpus_when_built(corpus: dict[str, dict[str, Any]]) -> None:
    """No memory address, no folder of the interpreter, of the user or of this project is in any row."""
    text = json.dumps(list(corpus.values()))
    assert " at 0x" not in text
    for place in (sys.prefix, sys.base_prefix, str(Path.home()), str(Path.cwd()), sys.executable):
        assert place not in text or place in {"/", "/usr", "/root", "/home"}


def test_inherited_texts_are_left_out_when_they_repeat(corpus: dict[str, dict[str, Any]]) -> None:
    """Slot wrappers and methods whose text is their base's have no entry; a special method's own text has."""
    assert {"int.__add__", "dict.__init__", "collections.OrderedDict.__sizeof__"}.isdisjoint(corpus)
    assert "collections.defaultdict.__missing__" in corpus
    special = Counter((name.rpartition(".")[2], row["text"]) for name, row in corpus.items() if "__" in name)
    assert [key for key, count in special.items() if count > 1] == []


def test_every_judged_name_exists_when_this_python_should_have_it(corpus: dict[str, dict[str, Any]]) -> None:
    """Every judged name is an id of the corpus, but for the few listed that came or went with a Python version."""
    source = find_questions()
    lines = (source / "qrels" / "test.tsv").read_text(encoding="utf-8").splitlines()[1:]
    missing = {line.split("\t")[1] for line in lines} - set(corpus)
    allowed = set() if sys.version_info >= (3, 12) else set(FROM_3_12)
    allowed |= UNTIL_3_12 if sys.version_info >= (3, 13) else FROM_3_13
    allowed |= set() if sys.platform == "linux" else LINUX_ONLY
    assert {name for name in missing - allowed if name.partition(".")[0] not in OPTIONAL_MODULES} == set()


def test_questions_are_many_and_answered_when_the_collection_is_built(collection: TestCollection) -> None:
    """There are 120 questions or more, all different, each with a grade 2, over dozens of modules."""
    assert len(collection.queries) >= 120
    assert len({text.casefold() for text in collection.queries.values()}) == len(collection.queries)
    assert [query for query, grades in collection.qrels.items() if 2 not in grades.values()] == []
    assert {grade for grades in collection.qrels.values() for grade in grades.values()} == {1, 2}
    modules = {row["_id"]: row["metadata"]["module"] for row in map(_as_row, collection.documents())}
    answering = {modules[name] for grades in collection.qrels.values() for name, grade in grades.items() if grade == 2}
    assert len(answering) >= 60


def _as_row(document: dict[str, Any]) -> dict[str, Any]:
    return {"_id": document["id"], "metadata": document["metadata"]}


def test_written_collection_reads_back_when_it_is_complete(
    collection: TestCollection, corpus: dict[str, dict[str, Any]]
) -> None:
    """The BEIR files hold the corpus row by row; build.json counts what is there and what was dropped."""
    assert [document["id"] for document in collection.documents()] == list(corpus)
    report = json.loads((collection.corpus_path.parent / "build.json").read_text(encoding="utf-8"))
    assert report["documents"] == len(corpus)
    assert report["queries"] == len(collection.queries)
    assert report["judgments"] == sum(map(len, collection.qrels.values()))
    total = len((find_questions() / "qrels" / "test.tsv").read_text(encoding="utf-8").splitlines()) - 1
    assert report["judgments"] + report["dropped_judgments"] == total


@pytest.fixture
def few(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """Give a folder to write to, with two documents and questions that name one more."""
    source = tmp_path / "questions"
    (source / "qrels").mkdir(parents=True)
    (source / "queries.jsonl").write_text(
        '{"_id": "q1", "text": "one"}\n{"_id": "q2", "text": "two"}\n', encoding="utf-8"
    )
    (source / "qrels" / "test.tsv").write_text("q1\ta\t2\nq1\tgone\t1\nq2\tgone\t2\n", encoding="utf-8")
    rows = [{"_id": name, "title": name, "text": "text"} for name in ("a", "b")]
    monkeypatch.setattr(stdlib_corpus, "build_corpus", lambda: iter(rows))
    monkeypatch.setattr(stdlib_corpus, "find_questions", lambda: source)
    return tmp_path / "out" / "stdlib"


def test_judgments_are_dropped_and_counted_when_this_python_lacks_the_name(few: Path) -> None:
    """A judgment of an absent name is left out, a question without any left is too, and build.json says so."""
    seen: list[tuple[int, int]] = []
    collection = read_collection(write_collection(few, progress=lambda done, total: seen.append((done, total))))
    assert collection.qrels == {"q1": {"a": 2}}
    assert seen == [(1, 2), (2, 2)]
    report = json.loads((few / "build.json").read_text(encoding="utf-8"))
    assert (report["dropped_judgments"], report["dropped_names"], report["dropped_queries"]) == (2, ["gone"], ["q2"])


def test_folder_is_replaced_when_it_holds_an_earlier_build(few: Path) -> None:
    """Building again replaces the folder whole and leaves nothing beside it."""
    write_collection(few)
    (few / "corpus.jsonl").write_text("damaged", encoding="utf-8")
    assert len(list(read_collection(write_collection(few)).documents())) == 2
    assert [path.name for path in few.parent.iterdir()] == ["stdlib"]
    assert sorted(path.name for path in few.iterdir()) == ["build.json", "corpus.jsonl", "qrels", "queries.jsonl"]


def test_foreign_folder_stays_as_it_was_when_asked_to_write_there(few: Path) -> None:
    """A folder with something else in it, or a file, is refused and not touched."""
    few.mkdir(parents=True)
    (few / "thesis.txt").write_text("mine", encoding="utf-8")
    with pytest.raises(InvalidInput, match="is no collection of this command"):
        write_collection(few)
    with pytest.raises(InvalidInput, match="is no collection of this command"):
        write_collection(few / "thesis.txt")
    assert [path.name for path in few.iterdir()] == ["thesis.txt"]


def test_nothing_is_left_when_building_fails(few: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """When the build fails half way there is no folder, not even a partial one."""

    def fail() -> Any:
        raise VectorSearchError("failed half way")

    monkeypatch.setattr(stdlib_corpus, "build_corpus", fail)
    with pytest.raises(VectorSearchError, match="half way"):
        write_collection(few)
    assert list(few.parent.iterdir()) == []


def test_questions_are_found_when_installed_from_a_wheel(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Without a checkout the questions are those of the environment's share folder; without any, the error says so."""
    monkeypatch.setattr(stdlib_corpus, "__file__", str(tmp_path / "site-packages" / "vectorsearch" / "e" / "s.py"))
    monkeypatch.setattr(sys, "prefix", str(tmp_path))
    monkeypatch.setattr("site.getuserbase", lambda: str(tmp_path / "user"))
    with pytest.raises(VectorSearchError, match="no questions of the stdlib collection"):
        find_questions()
    installed = tmp_path / "share" / "vectorsearch" / "datasets" / "stdlib"
    installed.mkdir(parents=True)
    (installed / "queries.jsonl").touch()
    assert find_questions() == installed
