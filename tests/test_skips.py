"""In continuous integration a skip is a failure, unless it is listed."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path
from typing import TYPE_CHECKING

import pytest

if TYPE_CHECKING:
    from collections.abc import Mapping

TESTS = """
import pytest

def test_passes():
    pass

def test_listed():
    pytest.skip("fork is a POSIX call")

def test_forgotten():
    pytest.skip("no browser is installed")

@pytest.mark.skipif(True, reason="somebody was tired")
def test_marked():
    pass

@pytest.mark.xfail(reason="known", strict=True)
def test_known():
    raise AssertionError
"""
FILE = 'import pytest\npytest.importorskip("no_such_package")\n'


@pytest.mark.parametrize(
    ("environment", "told"),
    [
        ({"CI": "true"}, "1 failed, 1 passed, 1 skipped, 1 xfailed, 2 errors"),
        ({"CI": "false"}, "1 passed, 4 skipped, 1 xfailed"),
        ({}, "1 passed, 4 skipped, 1 xfailed"),
    ],
)
def test_a_skip_is_a_failure_when_it_is_not_listed(tmp_path: Path, environment: Mapping[str, str], told: str) -> None:
    """Of a test and of a whole file, in continuous integration alone; what is known to fail is another thing."""
    (tmp_path / "conftest.py").write_text(
        Path(__file__).with_name("conftest.py").read_text(encoding="utf-8"), encoding="utf-8"
    )
    (tmp_path / "test_some.py").write_text(TESTS, encoding="utf-8")
    (tmp_path / "test_file.py").write_text(FILE, encoding="utf-8")
    (tmp_path / "pytest.ini").write_text("[pytest]\n", encoding="utf-8")
    kept = {name: value for name, value in os.environ.items() if name != "CI" and not name.startswith("PYTEST_")}
    command = [sys.executable, "-m", "pytest", "-q", "-p", "no:cacheprovider", "--continue-on-collection-errors"]
    done = subprocess.run(
        [*command, str(tmp_path)],
        env={**kept, **environment},
        cwd=tmp_path,
        capture_output=True,
        text=True,
        check=False,
        timeout=600,
    )
    assert told in done.stdout, done.stdout
