"""Model folders that an answer could be read off wrongly without a word: equal to sentence-transformers, or refused."""

from __future__ import annotations

import json
import sys
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest

sys.path.insert(0, str(Path(__file__).parent / "support"))
from kinds import KINDS, POSITIONS, Kind

from backends.catalogue import catalogue, export
from backends.choosing import registry
from backends.errors import InvalidModel
from backends.running.text_model import TextLoader

if TYPE_CHECKING:
    from collections.abc import Callable

    from backends.running.text_model import TextModel

pytestmark = pytest.mark.filterwarnings("ignore")  # of the runtimes' own


@pytest.fixture
def save(tmp_path: Path) -> Callable[..., Path]:
    """Return a function that writes a random model into a folder."""
    pytest.importorskip("sentence_transformers")
    import tiny_models  # noqa: PLC0415  (heavy)
    from transformers.utils import logging  # noqa: PLC0415  (as above)

    logging.disable_progress_bar()
    return lambda kind, *, classify=False: tiny_models.save(kind, tmp_path / "model", classify=classify)


def compare(folder: Path, backends: tuple[str, ...] = ("torch:float32",), *, classify: bool) -> None:
    """Compare backends' answers, together and alone, with the reference's."""
    import against_reference  # noqa: PLC0415  (heavy)

    expected, texts = against_reference.expect(folder, classify=classify)
    spec = catalogue.resolve(folder)
    served = [backend for backend in backends if registry.get(backend).can_serve(spec)]
    assert served
    for backend in served:
        against_reference.check(spec, backend, expected, texts)


def load(folder: Path, backend: str = "torch:float32") -> TextModel:
    """Load a folder's model."""
    return TextLoader(registry.get(backend)).load_model(catalogue.resolve(folder))


def rewrite(path: Path, **values: Any) -> None:
    """Change values of a JSON file."""
    path.write_text(json.dumps({**json.loads(path.read_text(encoding="utf-8")), **values}), encoding="utf-8")


XLNET = Kind("xlnet", {"d_model": 32, "n_layer": 2, "n_head": 4, "d_inner": 64}, "eos")
FNET = Kind("fnet", KINDS["BERT"].settings | {"tpu_short_seq_length": POSITIONS}, typed=True)


@pytest.mark.parametrize(
    ("kind", "pad_id"),
    [(KINDS["Llama"], None), (KINDS["Llama"], 1), (KINDS["Qwen3"], 2), (XLNET, 5), (FNET, 0)],
    ids=["no padding", "padded with what ends a text", "another id than the tokenizer's", "XLNet", "FNet"],
)
def test_score_is_read_where_the_reference_reads_it_when_rows_are_padded(
    save: Callable[..., Path], kind: Kind, pad_id: int | None
) -> None:
    """M1: by config's padding, by the last token, or by whatever sees the padding: as each text alone has it."""
    folder = save(kind, classify=True)
    rewrite(folder / "config.json", pad_token_id=pad_id)
    compare(folder, classify=True)


def test_export_is_refused_when_rows_have_to_be_alone(save: Callable[..., Path], tmp_path: Path) -> None:
    """M1: a graph, whose rows are padded, can't be had of a classifier without a padding token; the message says so."""
    folder = save(KINDS["Llama"], classify=True)
    rewrite(folder / "config.json", pad_token_id=None)
    with pytest.raises(InvalidModel, match="set pad_token_id in config"):
        export.export(catalogue.resolve(folder), tmp_path / "graph")


@pytest.mark.parametrize("names", [["input_ids", "attention_mask"], None])
def test_types_are_fed_as_the_tokenizer_names_them(save: Callable[..., Path], tmp_path: Path, names: Any) -> None:
    """M2: without token types in model_input_names, or in the tokenizer's class, a BERT gets none, on any backend."""
    folder = save(KINDS["BERT"], classify=True)
    rewrite(folder / "tokenizer_config.json", model_input_names=names)
    if names is None:  # left out: then the class tells, and this one names none
        stated = json.loads((folder / "tokenizer_config.json").read_text(encoding="utf-8"))
        del stated["model_input_names"]
        (folder / "tokenizer_config.json").write_text(json.dumps(stated), encoding="utf-8")
    compare(folder, classify=True)
    graph = export.export(catalogue.resolve(folder), tmp_path / "graph").spec.folder
    compare(graph, ("onnx", "numpy"), classify=True)


@pytest.mark.parametrize("name", ["GPT-2", "ALBERT"])
def test_types_are_left_out_when_absent_is_not_zero(save: Callable[..., Path], name: str) -> None:
    """M2: GPT-2 has a module for token types, and gets none from its tokenizer."""
    compare(save(KINDS[name]), classify=False)


@pytest.mark.parametrize("side", ["left", "right"])
def test_same_end_is_cut_as_the_tokenizer_says(save: Callable[..., Path], side: str) -> None:
    """truncation_side: a text too long loses its head where the folder says so."""
    folder = save(KINDS["BERT"])
    rewrite(folder / "tokenizer_config.json", truncation_side=side)
    compare(folder, classify=False)


@pytest.mark.parametrize("name", ["BERT", "DistilBERT"])
@pytest.mark.parametrize(("layers", "found"), [(1, r"layer\.1\."), (3, r"layer\.2\.")])
def test_weights_are_refused_when_they_are_not_the_architectures(
    save: Callable[..., Path], name: str, layers: int, found: str
) -> None:
    """M14: a layer more or less than config.json says is refused by its weights' names."""
    folder = save(KINDS[name])
    key = "n_layers" if name == "DistilBERT" else "num_hidden_layers"
    rewrite(folder / "config.json", **{key: layers})
    with pytest.raises(InvalidModel, match=found):
        load(folder)


def test_float32_is_taken_when_an_architecture_fails_in_bfloat16(
    save: Callable[..., Path], monkeypatch: pytest.MonkeyPatch
) -> None:
    """M11: DeBERTa v1 computes in float32 alone; that is taken unasked, and the other is refused by name."""
    folder = save(KINDS["DeBERTa v1"])
    from backends.runtimes.torch_runtime import torch_precision  # noqa: PLC0415  (imports PyTorch)

    monkeypatch.setattr(torch_precision, "bfloat16_pays", lambda _: True)
    model = load(folder, "torch")
    assert model.device == "cpu:torch:float32"
    model.close()
    with pytest.raises(InvalidModel, match=r"DebertaModel .* fails in torch\.bfloat16"):
        load(folder, "torch:bfloat16")


def test_settings_of_the_output_change_nothing_when_they_are_stored(save: Callable[..., Path]) -> None:
    """A config.json that asks for hidden states is served as the reference serves it."""
    folder = save(KINDS["ModernBERT"])
    rewrite(folder / "config.json", output_hidden_states=True)
    compare(folder, classify=False)


def test_model_is_refused_when_its_order_of_texts_would_matter(save: Callable[..., Path]) -> None:
    """BigBird turns its sparse attention off for good at the first short text: it is refused by that setting."""
    kind = Kind("big_bird", KINDS["BERT"].settings | {"block_size": 4, "num_random_blocks": 1})
    folder = save(kind)
    with pytest.raises(InvalidModel, match="attention_type to 'original_full'"):
        load(folder)
    rewrite(folder / "config.json", attention_type="original_full")
    compare(folder, classify=False)
