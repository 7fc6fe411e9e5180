"""D12, D14: what names no folder, or another one on another system, is refused and leaves nothing behind."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING

import pytest

from vectorsearch.database.place import local_folder
from vectorsearch.database.tenants import check_name
from vectorsearch.errors import InvalidInput

if TYPE_CHECKING:
    from ..conftest import OpenDatabase

ELSEWHERE = (
    "milvus://localhost:19530",
    "milvus:./file.db",
    "s3://bucket/key",
    "S3://bucket",
    "postgres://user@host/db",
    "postgresql+psycopg://host/db",
    "http://host/db",
    "https://host/db",
    "file:///tmp/db",
    "sqlite:///my.db",
    "redis:0",
)


@pytest.mark.parametrize("place", ELSEWHERE)
def test_a_place_elsewhere_is_refused_when_it_is_named(
    open_database: OpenDatabase, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, place: str
) -> None:
    """D14: as text and as a path, which drops a slash; also as a snapshot's; nothing is made."""
    monkeypatch.chdir(tmp_path)
    with open_database(tmp_path / "db") as db:
        for named in (place, Path(place)):
            with pytest.raises(InvalidInput, match=r"is of '(?i:milvus|s3|postgres|http|file|sqlite|redis)"):
                open_database(named)  # type: ignore[arg-type]  # a str is what a caller gives
            with pytest.raises(InvalidInput, match="databases are folders"):
                db.snapshot(named)
    assert [path.name for path in tmp_path.iterdir()] == ["db"]


@pytest.mark.parametrize("place", ["my.db", "./my.db", "2024:01", "a b:c", "/data/s3:/x", "C:\\data\\my.db", "c:my.db"])
def test_a_folder_is_a_folder_when_its_name_has_a_colon(place: str) -> None:
    """A Windows drive, a date, and a colon within an absolute path name no engine."""
    assert local_folder(place) == Path(place)


def test_a_database_is_opened_when_its_name_looks_like_a_place(
    open_database: OpenDatabase, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """What an earlier release made under such a name is not locked away."""
    monkeypatch.chdir(tmp_path)
    open_database(tmp_path / "milvus:file.db").close()
    open_database(Path("milvus:file.db")).close()


@pytest.mark.parametrize(
    "name", ["a.", "a..", "con", "nul", "prn", "aux", "com1", "com0", "lpt9", "con.txt", "nul.a.b"]
)
def test_a_tenant_is_refused_when_its_name_means_another_folder_elsewhere(
    open_database: OpenDatabase, tmp_path: Path, name: str
) -> None:
    """D12: on every system, as a database may be moved; the message proposes another name."""
    db = open_database(tmp_path / "db")
    with pytest.raises(InvalidInput, match="means another folder on Windows"):
        db.tenant(name)
    assert db.tenants() == ()
    assert not (tmp_path / "db" / "tenants" / name).exists()


@pytest.mark.parametrize("name", ["a", "console", "nul1", "com10", "a.con", "com", "lpt", "con-1", "0", "a.b"])
def test_a_tenant_is_made_when_its_name_means_the_same_everywhere(name: str) -> None:
    """Only whole names of devices, with or without what follows a dot, are taken."""
    check_name(name)


def test_a_tenant_is_served_when_an_earlier_release_made_it(
    open_database: OpenDatabase, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Documents under a name that is refused today are there all the same."""
    with open_database(tmp_path / "db") as db, monkeypatch.context() as patched:
        patched.setattr("vectorsearch.database.tenants.check_name", lambda _: None)
        db.tenant("con").add([{"id": "x", "text": "alpha"}])
    db = open_database(tmp_path / "db")
    assert [hit.id for hit in db.search("alpha", tenant="con")] == ["x"]
