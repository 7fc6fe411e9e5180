"""Closing a database from several threads."""

from __future__ import annotations

import threading
from typing import TYPE_CHECKING

import vectorsearch as vs
from vectorsearch.collection.collection import Collection

if TYPE_CHECKING:
    from pathlib import Path

    import pytest


def test_a_second_close_returns_when_the_first_is_done(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Whoever closes a database may open it again at once, also if another thread was closing it already."""
    inside, go_on = threading.Event(), threading.Event()
    flush = Collection.flush

    def held(self: Collection) -> None:
        inside.set()
        assert go_on.wait(600)
        flush(self)

    db = vs.open(tmp_path / "db", embed=None)
    monkeypatch.setattr(Collection, "flush", held)
    first = threading.Thread(target=db.close)
    first.start()
    assert inside.wait(600)
    second = threading.Thread(target=lambda: (db.close(), vs.open(tmp_path / "db", embed=None).close()), daemon=True)
    second.start()
    second.join(0.05)
    assert second.is_alive()
    go_on.set()
    for thread in (first, second):
        thread.join(600)
        assert not thread.is_alive()
    assert db.closed
