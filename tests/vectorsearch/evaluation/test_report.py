from __future__ import annotations

import html
import json
import re
from html.parser import HTMLParser
from typing import TYPE_CHECKING

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from vectorsearch.evaluation.report.changes import gained_most, lost_most, shown_documents
from vectorsearch.evaluation.report.markup import Markup, element, escape
from vectorsearch.evaluation.report.plots import differences_by_query, interval_scale, round_steps
from vectorsearch.evaluation.results import judge

if TYPE_CHECKING:
    from pathlib import Path

    from vectorsearch.evaluation.results import ExperimentResult

VOID = {"meta", "br", "hr"}


class Page(HTMLParser):
    """What a page is made of: its tags, attributes and texts; an end tag that fits none is an error."""

    def __init__(self, text: str) -> None:
        super().__init__()
        self.tags: list[str] = []
        self.attributes: list[tuple[str, str | None]] = []
        self.texts: list[str] = []
        self.open: list[str] = []
        self.feed(text)
        self.close()

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        """Note a tag and its attributes."""
        self.tags.append(tag)
        self.attributes += attrs
        if tag not in VOID:
            self.open.append(tag)

    def handle_endtag(self, tag: str) -> None:
        """Check that it ends the tag that is open."""
        assert self.open.pop() == tag

    def handle_data(self, data: str) -> None:
        """Note a text."""
        self.texts.append(data)


def read(result: ExperimentResult, folder: Path) -> Page:
    """Write the report and return its page."""
    return Page(result.report(folder).read_text(encoding="utf-8"))


def test_no_text_becomes_markup_when_a_report_is_written(result: ExperimentResult, tmp_path: Path) -> None:
    """Every text of a hostile collection is shown as text: no script, no image, no handler, all tags closed."""
    page = read(result, tmp_path)
    assert not {"script", "img", "iframe", "object", "link", "a", "form"} & set(page.tags)
    assert not [name for name, _ in page.attributes if name.startswith("on") or name in {"style", "src", "href"}]
    assert page.open == []
    shown = "".join(page.texts)
    for name in ("collection", "query q1", "better", "title", "text"):
        assert f"{name} <script>document.title" in shown
    assert not re.search("[\x00\u202e\ud800]", shown)


def test_the_page_needs_nothing_else_when_it_is_opened(result: ExperimentResult, tmp_path: Path) -> None:
    """There is no address in the page, and its policy lets no source but its own style sheet act."""
    text = result.report(tmp_path).read_text(encoding="utf-8")
    assert not re.search(r"(https?:)?//[a-z]", text.replace("<!doctype", ""))
    assert "default-src &#x27;none&#x27;; style-src &#x27;sha256-" in text
    assert "@import" not in text
    assert "url(" not in text


def test_the_page_is_the_same_when_written_twice(result: ExperimentResult, tmp_path: Path) -> None:
    """A report depends on its result alone: no date, no chance."""
    assert result.report(tmp_path / "a").read_bytes() == result.report(tmp_path / "b").read_bytes()


def test_markdown_and_json_stand_beside_the_page(result: ExperimentResult, tmp_path: Path, hostile: str) -> None:
    """The Markdown holds table and changes, each on its line; the JSON holds each query's values."""
    result.report(tmp_path)
    markdown = (tmp_path / "report.md").read_text(encoding="utf-8")
    assert "| base |" in markdown
    assert "<script>" not in re.sub(r"\\.", "", markdown)
    values = json.loads((tmp_path / "report.json").read_text(encoding="utf-8"))
    assert values["baseline"] == "base"
    assert values["by_query"]["q1"]["values"]["base"]["RR@10"] == pytest.approx(0.5)
    assert values["by_query"]["q1"]["text"] == f"query q1 {hostile}"


def test_a_report_is_written_when_there_is_one_system_without_times(tmp_path: Path) -> None:
    """A single run of another engine has figures and a method, and nothing to compare or to plot."""
    page = read(judge({"only": {"q": ["a"]}}, {"q": {"a": 1}}), tmp_path)
    shown = "".join(page.texts)
    assert "Figures" in shown
    assert "Difference" not in shown
    assert "svg" not in page.tags


def test_a_report_is_written_when_systems_dont_differ(tmp_path: Path) -> None:
    """Equal systems have intervals of no width, plots of no height and no query to show."""
    page = read(judge({"a": {"q": ["x"]}, "b": {"q": ["x"]}}, {"q": {"y": 1}}), tmp_path)
    assert "".join(page.texts).count("None.") == 2


def test_the_largest_changes_come_first() -> None:
    """Gains fall, losses fall, equal queries are in neither list, and no more than n are given."""
    qrels = {f"q{i}": {"a": 1} for i in range(30)}
    base = {query: ["x", "y", "z", "a"] for query in qrels}
    other = {query: [f"n{j}" for j in range(i % 9)] + ["a"] for i, query in enumerate(qrels)}
    comparison = judge({"base": base, "other": other}, qrels, measures=["RR"]).comparison
    gains, losses = gained_most(comparison, "other", 6), lost_most(comparison, "other", 6)
    assert [change.difference for change in gains] == sorted((c.difference for c in gains), reverse=True)
    assert [change.difference for change in losses] == sorted(c.difference for c in losses)
    assert (len(gains), len(losses)) == (6, 6)
    assert all(change.difference > 0 for change in gains)
    assert all(change.difference < 0 for change in losses)
    assert {"x", "y", "z", "a"} <= shown_documents(comparison, {"base": base, "other": other})


@given(st.text(st.characters(codec="utf-16-le") | st.sampled_from("<>&\"'\x00\ud800\u202e/=`")))
def test_text_is_read_back_when_it_is_escaped(text: str) -> None:
    """In an element and in an attribute, a parser reads the text, less what HTML can't hold."""
    page = Page(element("p", text, title=text))
    kept = html.unescape(escape(text))
    assert "".join(page.texts) == kept
    assert page.attributes == [("title", kept)]
    assert page.tags == ["p"]
    kept.encode()  # no half of a pair is left


def test_attributes_are_written_as_html_wants_them() -> None:
    """Underscores become hyphens, True has no value, None and False are left out, and lists are flattened."""
    written = element(
        "a", ["x", None, Markup("<b>")], class_="c", aria_label="l", hidden=True, id=None, open=False, r=0.5
    )
    assert written == '<a class="c" aria-label="l" hidden r="0.5">x<b></a>'
    assert element("br") == "<br>"


@given(st.floats(-1, 1), st.floats(0, 2))
def test_steps_hold_what_they_are_for(low: float, width: float) -> None:
    """Round steps begin at or below the lowest value, end at or above the highest, and are few and equal."""
    steps = round_steps(low, low + width)
    assert steps[0] <= low + 1e-6
    assert steps[-1] >= low + width - 1e-6
    assert 2 <= len(steps) <= 8
    assert np.allclose(np.diff(steps), steps[1] - steps[0])


@given(st.lists(st.floats(-1, 1), max_size=5))
def test_a_scale_has_room_for_zero_and_all_ends(ends: list[float]) -> None:
    """Each end of an interval, and 0, is within the plot."""
    scale = interval_scale(ends)
    assert all(0.0 <= scale.position(value) <= 100.0 for value in [0.0, *ends])


def test_bars_are_chosen_evenly_when_there_are_very_many_queries() -> None:
    """Of seven thousand queries six hundred bars are drawn, the first and the last among them."""
    values = np.linspace(-1, 1, 7000).tolist()
    drawn = differences_by_query(values, [f"query {i}" for i in range(7000)], measure="AP", limit=1.0)
    assert drawn.count("<rect") == 600
    assert "query 0<" in drawn
    assert "query 6999<" in drawn
