"""The picture of a search."""

from __future__ import annotations

import xml.etree.ElementTree as ET
from typing import Any

import pytest

from vectorsearch.query.explaining.timeline import Bar, draw

SVG = "{http://www.w3.org/2000/svg}"


def rects(svg: str) -> list[dict[str, str]]:
    """Return the bars of a picture, which must be well-formed: no page, no legend."""
    found = [rect.attrib for rect in ET.fromstring(svg).iter(f"{SVG}rect")]  # noqa: S314 -- of our own making
    return [rect for rect in found if rect.get("height") == "16.0"]


def test_bars_lie_where_their_times_are() -> None:
    """A bar's place and length are its times on one scale, so that what overlaps is seen to overlap."""
    one, other = rects(draw([Bar("a", "retrieve", 0, 50), Bar("b", "rerank", 25, 75)], title="t"))
    width = float(other["x"]) + float(other["width"]) - float(one["x"])
    assert float(one["width"]) == pytest.approx(width / 2, abs=0.2)
    assert float(other["x"]) - float(one["x"]) == pytest.approx(width / 4, abs=0.2)


def test_waiting_is_drawn_over_the_bar() -> None:
    """What a stage waits for its model is a part of its bar."""
    bar, wait = rects(draw([Bar("a", "rerank", 0, 100, wait_ms=40)], title="t"))
    assert wait["class"] == "wait"
    assert float(wait["width"]) == pytest.approx(0.4 * float(bar["width"]), abs=0.2)


@pytest.mark.parametrize("text", ["<script>&\"'", "a\x00b", "\ud800", "🙂 苹果", "x" * 500])
def test_any_text_is_drawn_as_text(text: str) -> None:
    """A query is never markup, whatever is in it, and the picture stays well-formed and can be written to a file."""
    svg = draw([Bar(text, "retrieve", 0, 1)], title=text, subtitle=text)
    svg.encode()
    assert len(rects(svg)) == 1


def test_nothing_from_elsewhere_is_needed() -> None:
    """The picture refers to nothing outside itself, and has colours for dark pages."""
    svg = draw([Bar("a", "retrieve", 0, 1)], title="t")
    assert svg.count("http") == 1
    assert "xmlns" in svg
    assert "prefers-color-scheme:dark" in svg


def test_picture_shows_stages_loads_and_what_was_left_out(open_database: Any) -> None:
    """Every stage and load of a search has a bar; a plan that was not run is drawn as an expectation."""
    db = open_database()
    db.add([{"id": "a", "text": "alpha"}])
    planned = db.explain("alpha", rerank=True).to_svg()
    assert "load test-reranker" in planned
    assert all("hollow" in rect["class"] for rect in rects(planned))
    ran = db.explain("alpha", rerank=True, analyze=True, timeout_s=60.0)
    assert ran.result is not None
    labels = [text.text for text in ET.fromstring(ran.to_svg()).iter(f"{SVG}text")]  # noqa: S314 -- of our own making
    assert {"lexical", "dense", "fuse", "fetch"} < set(labels)
    assert "load test-reranker" in labels
    assert "limit 60 s" in labels
    failing = db.explain("alpha", rerank=lambda _query, _texts: [], analyze=True).to_svg()
    assert [rect["class"] for rect in rects(failing)][-1] == "failed"
    assert "Left out: rerank:error." in failing
