"""Distilling from a database: a real teacher, student and graph, small ones, and what is registered."""

from __future__ import annotations

import json
from dataclasses import replace
from typing import TYPE_CHECKING, Any

import numpy as np
import pytest
from tokenizers import Tokenizer, models, pre_tokenizers, processors
from typer.testing import CliRunner

import vectorsearch as vs
from backends.catalogue import catalogue
from backends.errors import InvalidInput, InvalidModel
from rerank import CrossEncoder
from rerank.distilling.distil import Recipe
from vectorsearch.cli import app
from vectorsearch.training.distillation import distil_reranker

if TYPE_CHECKING:
    from collections.abc import Iterator
    from pathlib import Path

    from vectorsearch.training.distillation import Distillation

torch = pytest.importorskip("torch")
transformers = pytest.importorskip("transformers")

WORDS = [f"word{i}" for i in range(60)]
SIZES = {"hidden_size": 32, "num_hidden_layers": 4, "num_attention_heads": 4, "intermediate_size": 64}
RECIPE = Recipe(layers=2, max_length=24, pairs=400, texts_a_query=10, held_out=12, keep=5)


def write_teacher(folder: Path, *, spread: float = 0.08) -> Path:
    """Write a random cross-encoder over a few words; where its weights are small, all layers say nearly the same."""
    vocabulary = {word: i for i, word in enumerate(["[PAD]", "[UNK]", "[CLS]", "[SEP]", *WORDS])}
    tokenizer = Tokenizer(models.WordLevel(vocabulary, unk_token="[UNK]"))  # noqa: S106 -- no password
    tokenizer.pre_tokenizer = pre_tokenizers.Whitespace()
    tokenizer.post_processor = processors.TemplateProcessing(
        single="[CLS] $A [SEP]", pair="[CLS] $A [SEP] $B:1 [SEP]:1", special_tokens=[("[CLS]", 2), ("[SEP]", 3)]
    )
    torch.manual_seed(1)
    config = transformers.BertConfig(
        **SIZES, vocab_size=len(vocabulary), num_labels=1, initializer_range=spread, max_position_embeddings=64
    )
    transformers.BertForSequenceClassification(config).save_pretrained(folder)
    tokenizer.save(str(folder / "tokenizer.json"))
    return folder


def documents(n: int) -> list[dict[str, Any]]:
    """Return documents of some sentences of random words."""
    rng = np.random.default_rng(2)

    def sentence() -> str:
        return " ".join(rng.choice(WORDS, 6)) + "."

    return [{"id": f"d{i}", "title": sentence(), "text": f"{sentence()} {sentence()}"} for i in range(n)]


@pytest.fixture(scope="module")
def teacher(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return write_teacher(tmp_path_factory.mktemp("teacher"))


@pytest.fixture(scope="module")
def deep_teacher(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Return a teacher of which two layers say nothing."""
    return write_teacher(tmp_path_factory.mktemp("deep"), spread=1.0)


@pytest.fixture
def db(tmp_path: Path) -> Iterator[vs.Database]:
    with vs.open(tmp_path / "db", embed=None) as database:
        database.add(documents(80))
        yield database


def distilled(db: vs.Database, folder: Path, teacher: Path | str, **options: Any) -> Distillation:
    return distil_reranker(db, folder, teacher=teacher, **{"recipe": RECIPE, **options})


def test_student_is_registered_and_searched_with_when_it_keeps_enough(
    db: vs.Database, tmp_path: Path, teacher: Path
) -> None:
    """Blended, it keeps more of its teacher's best than the first stage does; it is served by name, as trained."""
    steps: list[tuple[str, int, int]] = []
    result = distilled(db, tmp_path / "out", teacher, register="first", progress=lambda *at: steps.append(at))
    made = result.distilled
    assert result.registered == "first", result.verdict
    assert result.gain.mean == pytest.approx(made.blended.kept - made.first_stage.kept)
    assert 0 < made.blend <= 1
    assert made.blended.tau > 0.3
    assert (made.layers, made.queries, made.spec.max_length) == ((0, 3), 40, 24)
    assert made.training.steps == made.training.planned > 30
    assert made.parity < 1e-4
    assert [step for step, done, total in steps if done == total] == ["searching", "scoring", "training"]
    found = db.search(
        "word1 word2",
        rerank=vs.Rerank(cascade=[vs.Rerank("first", depth=40, blend=made.blend), vs.Rerank(teacher, depth=5)]),
    )
    assert not found.degraded
    assert [stage.model for stage in found.stats if stage.stage.startswith("rerank")] == ["first", teacher.name]


def test_student_is_not_registered_when_it_does_not_help(db: vs.Database, tmp_path: Path, deep_teacher: Path) -> None:
    """A student that has hardly learned is written and not registered; the teacher may be the tenant's own model."""
    db.register_model("large", deep_teacher, "cross-encoder")
    result = distilled(db, tmp_path / "out", "large", register="first", recipe=replace(RECIPE, pairs=10))
    assert (result.registered, result.is_better, result.distilled.teacher) == (None, False, "large")
    assert result.verdict.startswith("not registered: with blend=")
    assert [model.name for model in db.registered_models()] == ["large"]
    assert catalogue.resolve(tmp_path / "out").task == "cross-encode"


def test_same_student_comes_out_when_the_seed_is_the_same(db: vs.Database, tmp_path: Path, teacher: Path) -> None:
    """Equal seeds give equal scores, of the users' own queries too, whatever was distilled before."""
    queries = [f"word{i} word{i + 1}" for i in range(40)]
    scores = []
    for name in ("a", "b"):
        distilled(db, tmp_path / name, teacher, recipe=replace(RECIPE, pairs=80), queries=queries)
        with CrossEncoder(tmp_path / name, backend="onnx") as model:
            scores.append(model.score("word1", ["word2 word3", "word4"]))
    np.testing.assert_array_equal(scores[0], scores[1])
    assert scores[0][0] != scores[0][1]


def test_minutes_are_kept_to_within_a_step_when_a_student_is_distilled(
    db: vs.Database, tmp_path: Path, teacher: Path
) -> None:
    """T2: searching, the teacher's reading and training look at one clock, and each leaves time to the next."""
    now, steps, step_s, minutes = [0.0], [], 5.0, 5.0

    def progress(step: str, done: int, total: int) -> None:
        now[0] += step_s
        steps.append((step, done, total))

    recipe = replace(RECIPE, minutes=minutes, pairs=4000)
    result = distilled(db, tmp_path / "out", teacher, recipe=recipe, progress=progress, clock=lambda: now[0])
    assert 60 * minutes - step_s <= now[0] <= 60 * minutes + step_s
    assert 0 < result.distilled.training.steps < result.distilled.training.planned
    assert {step for step, _, _ in steps} == {"searching", "scoring", "training"}


@pytest.mark.parametrize(
    ("phase", "told"), [("searching", "anything to learn"), ("scoring", "the student was trained")]
)
def test_no_student_is_written_when_the_time_is_up_before_it_is_trained(
    db: vs.Database, tmp_path: Path, teacher: Path, phase: str, told: str
) -> None:
    """T1: no step is taken, least of all at a negative rate; the error tells the times; no folder is left."""
    now = [0.0]

    def progress(step: str, done: int, total: int) -> None:
        if step == phase and (done == total or phase == "searching"):
            now[0] = 61.0

    recipe = replace(RECIPE, minutes=1.0)
    with pytest.raises(InvalidInput, match=f"the time was up before .*{told}.*, after 61 s of 60"):
        distilled(db, tmp_path / "out", teacher, recipe=recipe, progress=progress, clock=lambda: now[0])
    assert not (tmp_path / "out").exists()


def test_no_student_is_written_when_it_scores_all_texts_alike(
    db: vs.Database, tmp_path: Path, teacher: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """T1: a ruined student is refused, and not praised with the first stage's agreement."""
    monkeypatch.setattr("rerank.distilling.distil_training.LEARNING_RATE", 1e4)
    with pytest.raises(InvalidModel, match=r"the training has ruined the model: it gives .* nothing was written"):
        distilled(db, tmp_path / "out", teacher, register="first")
    assert not (tmp_path / "out").exists()
    assert db.registered_models() == ()


def test_nothing_is_written_when_there_is_too_little_to_learn_from(tmp_path: Path, teacher: Path) -> None:
    """A database with too few documents is refused in words, and no folder is left."""
    with vs.open(tmp_path / "db", embed=None) as db:
        db.add(documents(5))
        with pytest.raises(InvalidInput, match="5 documents, and the best 5 of each query count"):
            distilled(db, tmp_path / "out", teacher)
    assert not (tmp_path / "out").exists()


def test_folder_is_refused_before_the_work_when_it_is_there(db: vs.Database, tmp_path: Path, teacher: Path) -> None:
    """What lies in a folder is not overwritten."""
    with pytest.raises(InvalidInput, match="already there"):
        distilled(db, tmp_path, teacher)


def test_command_says_what_came_of_it_when_nothing_is_registered(
    db: vs.Database, tmp_path: Path, deep_teacher: Path
) -> None:
    """The command prints one JSON document, ends with 1 if a student isn't registered, and refuses unknown tenants."""
    db.close()
    out = tmp_path / "out"
    asked = ["distil-reranker", "--db", str(tmp_path / "db"), "--teacher", str(deep_teacher), "--layers", "2", "--json"]
    ended = CliRunner().invoke(app, [*asked, "--pairs", "16", "--register", "first", "--out", str(out)])
    assert ended.exit_code == 1, ended.output
    facts = json.loads(ended.stdout)
    assert facts["registered"] is None
    assert facts["layers"] == [0, 3]
    assert facts["held_out"].keys() == facts["blended"].keys() == facts["first_stage_alone"].keys()
    assert (facts["gain"]["is_better"], facts["verdict"].split(":")[0]) == (False, "not registered")
    assert (out / "model.onnx").is_file()
    refused = CliRunner().invoke(app, [*asked, "--tenant", "nobody"])
    assert refused.exit_code == 1
    assert json.loads(refused.stdout)["error"]["type"] == "UnknownTenant"
