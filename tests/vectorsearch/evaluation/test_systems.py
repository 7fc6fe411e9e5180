from __future__ import annotations

import json
from typing import TYPE_CHECKING

import pytest

from backends.errors import InvalidInput
from vectorsearch import config
from vectorsearch.evaluation.systems import System, parse_system, read_systems, unique_systems
from vectorsearch.query.planning.rerankers import Rerank

if TYPE_CHECKING:
    from pathlib import Path


@pytest.mark.parametrize(
    ("text", "system"),
    [
        ("BM25: mode=lexical", System(name="BM25", mode="lexical")),
        ("mode=dense k=50", System(mode="dense", k=50)),
        ("", System()),
        (
            "best: mode=hybrid rerank=default depth=20",
            System(name="best", rerank=config.DEFAULT_RERANKER, rerank_depth=20),
        ),
        ("no: rerank=none", System(name="no")),
        (
            "weighted:weights=lexical:0.5,dense:2 rrf_k=30",
            System(name="weighted", weights={"lexical": 0.5, "dense": 2.0}, rrf_k=30.0),
        ),
        ("weights=lexical:0,dense:1", System(weights={"lexical": 0.0, "dense": 1.0})),
        ("two words: fusion=zscore", System(name="two words", fusion="zscore")),
        (
            "mix: rerank=m blend=0.35 max_length=256",
            System(name="mix", rerank=Rerank("m", depth=50, blend=0.35, max_length=256)),
        ),
        ("long: rerank=m passages=true depth=9", System(name="long", rerank=Rerank("m", depth=9, passages=True))),
        (
            "two: rerank=small>large depth=100>15 max_length=128>512 field=title",
            System(
                name="two",
                rerank=Rerank(
                    cascade=(
                        Rerank("small", depth=100, max_length=128, field="title"),
                        Rerank("large", depth=15, max_length=512, field="title"),
                    )
                ),
            ),
        ),
        ("own: rerank='a folder/model'", System(name="own", rerank="a folder/model")),
    ],
)
def test_a_system_is_read_from_a_line(text: str, system: System) -> None:
    """Name, options and quoted values are understood; what is left out has its default."""
    assert parse_system(text) == system


@pytest.mark.parametrize(
    ("text", "told"),
    [
        ("a: mode", "'mode' is not KEY=VALUE"),
        ("a: mode=magic", "magic"),
        ("a: colour=red", "'colour' is no option"),
        ("a: rerank=m depth=many", "number"),
        ("a: k=2.5", "whole number"),
        ("a: k=10 k=20", "twice"),
        ("a: rerank='x", "quotation"),
        ("a: weights=lexical:heavy", "lexical"),
        ("a: depth=20", "nothing reranks"),
        ("a: rerank=m blend=much", "number"),
        ("a: rerank=m passages=some", "true or false"),
        ("a: rerank=m>n depth=20", "1 values for 2 rerankers"),
    ],
)
def test_a_line_is_refused_when_it_is_malformed(text: str, told: str) -> None:
    """The error shows the part that is wrong."""
    with pytest.raises(InvalidInput, match=told):
        parse_system(text)


def test_systems_are_read_from_a_file(tmp_path: Path) -> None:
    """Each [[system]] table of a TOML file is a system, in order, with the keys of a line."""
    path = tmp_path / "systems.toml"
    path.write_text(
        '[[system]]\nname = 25\nmode = "lexical"\n'
        '[[system]]\nname = "best"\nrerank = "default"\ndepth = 20\nweights = {lexical = 1, dense = 2.0}\n',
        encoding="utf-8",
    )
    assert read_systems(path) == [
        System(name="25", mode="lexical"),
        System(name="best", rerank=config.DEFAULT_RERANKER, rerank_depth=20, weights={"lexical": 1, "dense": 2.0}),
    ]


@pytest.mark.parametrize(
    ("text", "told"),
    [
        ("system = 3", "no \\[\\[system\\]\\]"),
        ("system = [1]", "no \\[\\[system\\]\\]"),
        ("", "no \\[\\[system\\]\\]"),
        ("[[system]\n", "TOML"),
        (f"system = {'[' * 10_000}", "TOML"),
        ('[[system]]\nk = "ten"\n', "number"),
        ("[[system]]\nk = true\n", "number"),
        ("[[system]]\nnoise = 1\n", "noise"),
    ],
)
def test_a_file_is_refused_when_it_is_malformed(tmp_path: Path, text: str, told: str) -> None:
    """The error names the file and what is wrong."""
    path = tmp_path / "systems.toml"
    path.write_text(text, encoding="utf-8")
    with pytest.raises(InvalidInput, match=told) as error:
        read_systems(path)
    assert "systems.toml" in str(error.value)


def test_names_must_differ_when_there_are_several_systems() -> None:
    """Two systems of one name can't be told apart in a table, and none makes no experiment."""
    with pytest.raises(InvalidInput, match="'lexical' is the name of several"):
        unique_systems([System(mode="lexical"), System(mode="lexical", k=50)])
    with pytest.raises(InvalidInput, match="no system"):
        unique_systems([])


@pytest.mark.parametrize(
    ("system", "name"), [(System(mode="lexical"), "lexical"), (System(rerank="some-model"), "hybrid + rerank")]
)
def test_a_system_is_named_for_its_stages_when_it_has_no_name(system: System, name: str) -> None:
    """The name tells the mode and whether hits are reranked."""
    assert system.name == name


def test_the_name_is_no_option_when_answers_are_remembered() -> None:
    """What a system is called, and the depth of a reranker that it hasn't, change nothing that it finds."""
    assert System(name="a").options == System(name="b", rerank_depth=9).options
    assert System(rerank="m", rerank_depth=9).options != System(rerank="m").options


def test_options_are_plain_values_when_a_reranker_is_spelt_out() -> None:
    """What is remembered and reported of a spec is JSON, without what it leaves open; its models' names are known."""
    system = parse_system("rerank=small>large depth=100>15 blend=0.5")
    assert json.loads(json.dumps(system.options))["rerank"]["cascade"][0] == {
        "model": "small",
        "depth": 100,
        "blend": 0.5,
    }
    assert system.reranker_names == ("small", "large")
    assert [stage.depth for stage in system.stages] == [100, 15]
    assert system.search_options()["rerank_depth"] is None
    assert System(rerank=Rerank(["a", len])).reranker_names == ("a",)
