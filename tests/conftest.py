"""How Hypothesis works here, and what may be skipped where everything is to run.

Hypothesis takes the same examples on every run, however slow the machine is. HYPOTHESIS_SEARCH=1 looks for new ones;
what it finds becomes an example or a test of its own.

In continuous integration (CI is set) a skip is a failure, unless its reason is one of those below: what can't be where
it runs is another thing than what somebody forgot to install.
"""

from __future__ import annotations

import os
import re
from typing import TYPE_CHECKING, TypeVar

import pytest
from hypothesis import settings

if TYPE_CHECKING:
    from collections.abc import Generator

R = TypeVar("R", pytest.TestReport, pytest.CollectReport)

settings.register_profile("repeatable", deadline=None, derandomize=True)
settings.register_profile("search", deadline=None)
settings.load_profile("search" if os.environ.get("HYPOTHESIS_SEARCH") else "repeatable")

MAY_BE_SKIPPED = (
    r"no process is forked there",  # Windows
    r"fork is a POSIX call",
    r"SIGKILL is POSIX",
    r"an open file can't be removed there",
    r"the system has no full device",  # macOS
    r"Core ML (runs|compiles) here",
    r"VECTORSEARCH_COLLECTIONS is not set",  # they can't be given on
    r"the library's parser warns from Python 3\.12 on",
    r"not a git checkout",
    r"None is never, or the config's",  # a combination that makes no sense
)


def is_ci() -> bool:
    """Return whether this is continuous integration."""
    return os.environ.get("CI", "").lower() not in {"", "0", "false"}


def _judged(report: R) -> R:
    """Return the report, failed if it is of a skip that may not be."""
    if report.skipped and is_ci() and not hasattr(report, "wasxfail"):
        told = report.longrepr
        reason = told[2] if isinstance(told, tuple) else str(told)
        if not any(re.search(pattern, reason) for pattern in MAY_BE_SKIPPED):
            report.outcome = "failed"
            report.longrepr = f"in continuous integration nothing may be skipped but what {__file__} lists: {reason}"
    return report


@pytest.hookimpl(wrapper=True)
def pytest_runtest_makereport() -> Generator[None, pytest.TestReport, pytest.TestReport]:
    """Judge what a test has skipped."""
    return _judged((yield))


@pytest.hookimpl(wrapper=True)
def pytest_make_collect_report() -> Generator[None, pytest.CollectReport, pytest.CollectReport]:
    """Judge what a whole file has skipped."""
    return _judged((yield))
