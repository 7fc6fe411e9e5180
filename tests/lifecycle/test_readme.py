"""The README's example is a program that does what it says."""

from __future__ import annotations

import re
from pathlib import Path

import lifecycle


def test_example_runs_when_it_is_copied_from_the_readme(capsys: object) -> None:
    """The example prints the words it leases, and at the end the two that were used last."""
    text = (Path(lifecycle.__file__).parent / "README.md").read_text(encoding="utf-8")
    (example,) = re.findall(r"```python\n(.*?)```", text, re.DOTALL)
    exec(compile(example, "README.md", "exec"), {})  # noqa: S102 - it is our own
    printed = capsys.readouterr().out.split("\n")  # type: ignore[attr-defined] - pytest's fixture
    assert printed[:5] == ["HELLO", "WORLD", "HELLO", "AGAIN", "['hello', 'again']"]
