"""The report in a real browser, where one is installed: no errors, no script, and it fits a phone."""

from __future__ import annotations

import html
import re
import shutil
import subprocess
from typing import TYPE_CHECKING

import pytest

if TYPE_CHECKING:
    from collections.abc import Callable
    from pathlib import Path

    from vectorsearch.evaluation.results import ExperimentResult

    Browse = Callable[..., tuple[str, str]]

NAMES = ("chromium", "chromium-browser", "google-chrome", "google-chrome-stable")
PNG = b"\x89PNG\r\n"
DARK = "--blink-settings=preferredColorScheme=0"
PHONE = 390
MEASURE = (
    "<script>onload = () => {{ const page = document.getElementById('page').contentDocument.documentElement;"
    "document.title = `${{page.scrollWidth}} of {width}` }}</script>"
    '<iframe id=page style="width:{width}px;height:800px;border:0" srcdoc="{page}"></iframe>'
)


@pytest.fixture
def browse(tmp_path: Path) -> Browse:
    """Give a function that opens a file headless and returns what it printed and what it logged to the console."""
    found = next(filter(None, map(shutil.which, NAMES)), None)
    if found is None:
        pytest.skip(f"no browser is installed: none of {', '.join(NAMES)} is on the PATH")

    def call(page: Path, *flags: str) -> tuple[str, str]:
        profile = tmp_path / "profile"
        shutil.rmtree(profile, ignore_errors=True)
        profile.mkdir()
        command = [found, "--headless", "--no-sandbox", "--disable-gpu", "--disable-background-networking"]
        command += [f"--user-data-dir={profile}", "--enable-logging=stderr", "--v=0", "--hide-scrollbars", *flags]
        done = subprocess.run([*command, page.as_uri()], capture_output=True, check=False, timeout=600)
        assert done.returncode == 0, done.stderr.decode(errors="replace")[-2000:]
        log = [line for line in done.stderr.decode(errors="replace").splitlines() if "CONSOLE" in line]
        return done.stdout.decode(errors="replace"), "\n".join(log)

    return call


def test_the_console_is_heard_when_a_page_has_an_error(browse: Browse, tmp_path: Path) -> None:
    """Positive control: an error in a page's script reaches the log that the other tests look at."""
    page = tmp_path / "bad.html"
    page.write_text("<!doctype html><script>throw Error('heard')</script>", encoding="utf-8")
    assert "heard" in browse(page, "--dump-dom")[1]


@pytest.mark.parametrize("flags", [["--window-size=1280,2000"], ["--window-size=1280,2000", DARK]])
def test_a_browser_shows_the_report_without_an_error(
    browse: Browse, result: ExperimentResult, tmp_path: Path, flags: list[str]
) -> None:
    """Light and dark, nothing is logged to the console, and a screenshot can be taken of a page that isn't blank."""
    picture = tmp_path / "picture.png"
    _, log = browse(result.report(tmp_path / "report"), *flags, f"--screenshot={picture}")
    assert log == ""
    assert picture.read_bytes().startswith(PNG)
    assert picture.stat().st_size > 50_000


def test_light_and_dark_differ_when_shown(browse: Browse, result: ExperimentResult, tmp_path: Path) -> None:
    """The preference for a dark page changes the picture."""
    page = result.report(tmp_path / "report")
    pictures = []
    for name, flags in (("light.png", []), ("dark.png", [DARK])):
        browse(page, *flags, "--window-size=600,400", f"--screenshot={tmp_path / name}")
        pictures.append((tmp_path / name).read_bytes())
    assert pictures[0] != pictures[1]


def test_no_script_runs_when_a_document_holds_one(browse: Browse, result: ExperimentResult, tmp_path: Path) -> None:
    """The page that the browser has made of a hostile collection holds no script, and its title is its own."""
    dom, _ = browse(result.report(tmp_path / "report"), "--dump-dom")
    assert "<script" not in dom
    assert "<img" not in dom
    title = re.search(r"<title>(.*?)</title>", dom, re.DOTALL)
    assert title is not None
    assert title[1].startswith("collection &lt;script&gt;")


def test_nothing_is_wider_than_a_phone(browse: Browse, result: ExperimentResult, tmp_path: Path) -> None:
    """At 390 pixels the page isn't scrolled sideways; wide tables are, within themselves."""
    page = result.report(tmp_path / "report").read_text(encoding="utf-8")
    page = re.sub(r"<meta http-equiv[^>]*>", "", page)  # the frame that measures it has another policy
    frame = tmp_path / "frame.html"
    frame.write_text("<!doctype html>" + MEASURE.format(width=PHONE, page=html.escape(page)), encoding="utf-8")
    dom, log = browse(frame, "--dump-dom", "--window-size=800,900")
    assert log == ""
    assert f"<title>{PHONE} of {PHONE}</title>" in dom
