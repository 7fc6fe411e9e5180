"""How Hypothesis works here: the same examples on every run, however slow the machine is.

HYPOTHESIS_SEARCH=1 looks for new ones; what it finds becomes an example or a test of its own.
"""

from __future__ import annotations

import os

from hypothesis import settings

settings.register_profile("repeatable", deadline=None, derandomize=True)
settings.register_profile("search", deadline=None)
settings.load_profile("search" if os.environ.get("HYPOTHESIS_SEARCH") else "repeatable")
