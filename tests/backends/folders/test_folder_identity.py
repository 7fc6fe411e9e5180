"""A model's digest covers all that any backend reads of it, and what was read is compared at a load."""

from __future__ import annotations

import json
import os
import shutil
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest
from module_files import pooled

from backends.base import ModelSpec
from backends.catalogue import catalogue, entries
from backends.errors import InvalidModel
from backends.folders import folder_keys
from backends.folders.architecture_keys import KEYS
from backends.folders.folder import read_folder
from backends.folders.folder_keys import Vouched

BERT = {"architectures": ["BertModel"], "model_type": "bert", "hidden_size": 8, "num_hidden_layers": 12}


def change(path: Path, **values: Any) -> None:
    """Change some keys of a JSON file, and keep its size and time if the values are as long."""
    status, content = path.stat(), json.loads(path.read_text())
    path.write_text(json.dumps(content | values))
    os.utime(path, ns=(status.st_atime_ns, status.st_mtime_ns))


@pytest.mark.parametrize(
    ("file", "values"),
    [
        ("config.json", {"num_hidden_layers": 1}),
        ("config.json", {"hidden_act": "relu"}),
        ("tokenizer_config.json", {"truncation_side": "left"}),
        ("tokenizer_config.json", {"model_input_names": ["input_ids"]}),
        ("sentence_bert_config.json", {"max_seq_length": 12}),
        ("1_Pooling/config.json", {"include_prompt": False}),
        ("config_sentence_transformers.json", {"prompts": {"query": "q"}}),
    ],
)
def test_digest_is_another_when_anything_changes_that_is_read(
    make_folder: Any, file: str, values: dict[str, Any]
) -> None:
    """M14: the configuration is the model's too: a copy with one layer is another model."""
    files = {"config.json": BERT, "sentence_bert_config.json": {}, "config_sentence_transformers.json": {}}
    files["tokenizer_config.json"] = {"tokenizer_class": "PreTrainedTokenizerFast"}
    made = make_folder(files=files | pooled("mean"))
    before = catalogue.resolve(made).digest
    change(made / file, **values)
    assert catalogue.resolve(made).digest != before


def test_digest_is_the_same_when_only_names_and_order_change(make_folder: Any) -> None:
    """The configuration is taken by what it says: order, blanks, versions and names don't count."""
    first = catalogue.resolve(make_folder("one", files={"config.json": BERT})).digest
    other = dict(reversed(BERT.items())) | {"transformers_version": "4.1", "_name_or_path": "anybody/x"}
    assert catalogue.resolve(make_folder("two", files={"config.json": other})).digest == first


def test_copy_with_one_layer_is_another_model_when_the_weights_are_the_catalogues(
    make_folder: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    """M14: the catalogue's files with their own configuration are that model; with another they are another."""
    former = catalogue.resolve(make_folder("before", files={"config.json": BERT})).former_digest
    monkeypatch.setattr(entries, "ENTRIES", {"tiny": SimpleNamespace(digest=former)})
    monkeypatch.setattr(entries, "config_files", lambda _: {"config.json": json.dumps(BERT)})
    assert catalogue.resolve(make_folder("genuine", files={"config.json": BERT})).digest == former
    poisoned = catalogue.resolve(make_folder("poisoned", files={"config.json": BERT | {"num_hidden_layers": 1}}))
    assert poisoned.digest != former
    assert poisoned.former_digest == ""


def test_rot_is_found_when_size_and_time_are_kept(make_folder: Any) -> None:
    """M14: whoever reads anew compares the configuration too, though size and time say that nothing changed."""
    made = make_folder(files={"config.json": BERT})
    spec = catalogue.resolve(made)
    change(made / "config.json", num_hidden_layers=11)
    assert read_folder(made, anew=True).digest != spec.digest


def test_another_place_serves_when_the_first_is_gone(make_folder: Any) -> None:
    """M16: the same bytes lie in two folders; the one that is left serves, and none other does."""
    one, two = make_folder("one"), make_folder("two")
    first, second = catalogue.resolve(one), catalogue.resolve(two)
    assert first.digest == second.digest
    shutil.rmtree(one)
    assert catalogue.ensure(first).folder == two
    make_folder("two", poison=True)
    with pytest.raises(InvalidModel, match="has no file"):
        catalogue.ensure(first)


def test_former_digest_is_release_010s_when_answers_are_the_same(make_folder: Any) -> None:
    """A database of release 0.1.0 knows its model again; where the model would now answer otherwise it doesn't."""
    plain = catalogue.resolve(make_folder(files=pooled("mean")))
    hashes = {path: catalogue.sha256_of(plain.folder / path) for path in ("model.onnx", "tokenizer.json")}
    answer = entries.Answer(task="embed", dim=8, pooling="mean", normalize=False)
    assert plain.former_digest == entries.digest_of(hashes, answer)
    assert catalogue.is_same_model(plain, plain.former_digest[:16])
    assert catalogue.is_same_model(plain, plain.digest)
    assert not catalogue.is_same_model(plain, "0" * 16)
    assert catalogue.resolve(make_folder(files=pooled(["cls", "mean"]))).former_digest == ""


def test_spec_is_the_same_when_it_was_written_and_read(make_folder: Any) -> None:
    """What a child process or the cache is given of a spec makes the same spec again."""
    files = pooled("mean", "Normalize") | {"config_sentence_transformers.json": {"truncate_dim": 4}}
    spec = catalogue.resolve(make_folder(files=files))
    assert spec.head
    assert ModelSpec.of_plain(json.loads(json.dumps(spec.plain()))) == spec


def test_key_is_passed_over_when_it_is_vouched_for(make_folder: Any) -> None:
    """A key that isn't understood is refused with the way to vouch for it; vouched for, it is in spec and digest."""
    config = BERT | {"model_type": "brand-new", "made_up": 2}
    made = make_folder(files={"config.json": config, "config_sentence_transformers.json": {"odd": 1}})
    (made / "model.safetensors").write_bytes(b"weights")
    with pytest.raises(InvalidModel, match=r"made_up is 2.*accept_keys=\['made_up'\] or --accept-key made_up"):
        catalogue.resolve(made)
    with pytest.raises(InvalidModel, match="odd"):
        catalogue.resolve(made, accept_keys=["made_up"])
    spec = catalogue.resolve(made, accept_keys=["odd", "made_up"])
    assert spec.accept_keys == ("made_up", "odd")
    assert catalogue.ensure(spec) == spec
    change(made / "config.json", made_up=3)
    assert catalogue.resolve(made, accept_keys=["made_up", "odd"]).digest != spec.digest


def test_key_is_passed_over_when_the_architecture_never_reads_it(make_folder: Any) -> None:
    """Programs write what they like into config.json: of a listed architecture every key that it reads is known."""
    assert catalogue.resolve(make_folder(files={"config.json": BERT | {"uniem_strategy": "x", "n_ctx": 12}}))


def test_network_is_the_graphs_when_there_are_no_other_weights(make_folder: Any) -> None:
    """A graph needs no code of the folder's, whatever config.json says; beside safetensors the same is refused."""
    config = {"model_type": "new", "auto_map": {"AutoModel": "x.X"}, "rope_kind": "ntk", "hidden_size": 8}
    made = make_folder(files={"config.json": config})
    assert catalogue.resolve(made).dim == 8
    (made / "model.safetensors").write_bytes(b"weights")
    with pytest.raises(InvalidModel, match="auto_map"):
        catalogue.resolve(made)


def test_vouching_is_refused_when_nothing_needs_it(make_folder: Any) -> None:
    """A slip of the pen in accept_keys is told, and not taken for a word of honour."""
    with pytest.raises(InvalidModel, match="made_up"):
        catalogue.resolve(make_folder(), accept_keys=["made_up"])


@pytest.mark.parametrize(
    "text",
    [
        '{"hidden_size": Infinity}',
        '{"hidden_size": NaN}',
        '{"num_attention_heads": 0}',
        '{"num_hidden_layers": "2"}',
        '{"hidden_size": 30, "num_attention_heads": 4}',
        '{"vocab_size": true}',
        '{"architectures": ["XForSequenceClassification"], "num_labels": "1"}',
        '{"architectures": ["XForSequenceClassification"], "id2label": ["x"]}',
        '{"max_position_embeddings": 1e400}',
    ],
)
def test_config_is_refused_when_its_numbers_are_none(make_folder: Any, text: str) -> None:
    """U5: infinity, no heads, and words for numbers are the model's fault, told with the file."""
    made = make_folder(task="cross-encode" if "XFor" in text else "embed")
    (made / "config.json").write_text(text)
    with pytest.raises(InvalidModel, match=r"config\.json"):
        catalogue.resolve(made)


@pytest.mark.parametrize("stated", [10**30, 1e30, 10**9])
def test_length_is_the_usual_one_when_what_is_said_is_no_length(make_folder: Any, stated: float) -> None:
    """U5: a number beyond all texts means no limit, wherever it is said, and none is taken for that of a text."""
    files = {"tokenizer_config.json": {"model_max_length": stated}}
    files["config.json"] = {"hidden_size": 8, "max_position_embeddings": int(stated)}
    files["sentence_bert_config.json"] = {"max_seq_length": int(stated)}
    assert catalogue.resolve(make_folder(files=files)).max_length == 512


@pytest.mark.parametrize("stated", ["12", 12.5, -1, 0, True])
def test_folder_is_refused_when_its_length_is_no_number_of_tokens(make_folder: Any, stated: object) -> None:
    """What no text can be as long as is the folder's fault, told with the file and the key."""
    with pytest.raises(InvalidModel, match=r"tokenizer_config\.json.*model_max_length"):
        catalogue.resolve(make_folder(files={"tokenizer_config.json": {"model_max_length": stated}}))


def test_known_keys_hold_those_of_every_served_architecture() -> None:
    """The table is written for each served architecture, and a key that one of them reads is known for all."""
    assert {"bert", "modernbert", "deberta-v2", "gpt2", "qwen3", "gemma3_text", "xlm-roberta-xl"} <= KEYS.keys()
    assert {"pos_att_type", "rope_theta", "n_embd"} <= set(folder_keys.known_keys("config.json"))


def test_readme_tells_the_table_when_a_key_is_changed() -> None:
    """What is served is documented by the table itself."""
    text = Path(folder_keys.__file__).with_name("README.md").read_text(encoding="utf-8")
    assert text.partition("<!-- folder_keys.told() -->\n")[2].partition("\n<!-- end -->")[0] == folder_keys.told()


@pytest.mark.parametrize("name", ["onnx/model_quantized.onnx", "onnx/model_int8.onnx", "encoder.onnx"])
def test_graph_is_found_when_it_is_the_only_one(make_folder: Any, name: str) -> None:
    """A graph of another name serves where there is no other, and two of them are named."""
    made = make_folder(weights=name)
    assert catalogue.resolve(made).weights_file == name
    shutil.copyfile(made / name, made / "other.onnx")
    with pytest.raises(InvalidModel, match=r"other\.onnx"):
        catalogue.resolve(made)


def test_shards_are_the_weights_when_there_is_an_index(folder_of: Any, load_torch: Any) -> None:
    """Weights in several files are served as in one, belong to the digest, and must all be there."""
    import numpy as np  # noqa: PLC0415  (only here)
    from safetensors.torch import load_file, save_file  # noqa: PLC0415  (only with PyTorch)

    folder = folder_of()
    before = load_torch(folder).embed(["how read csv"], kind="query").vectors
    weights = load_file(folder / "model.safetensors")
    (folder / "model.safetensors").unlink()
    halves = {"model-1.safetensors": sorted(weights)[::2], "model-2.safetensors": sorted(weights)[1::2]}
    for name, part in halves.items():
        save_file({key: weights[key] for key in part}, folder / name, metadata={"format": "pt"})
    index = {"metadata": {}, "weight_map": {key: name for name, part in halves.items() for key in part}}
    (folder / "model.safetensors.index.json").write_text(json.dumps(index))
    spec = catalogue.resolve(folder)
    assert spec.weights_nbytes > 10_000
    np.testing.assert_array_equal(load_torch(folder).embed(["how read csv"], kind="query").vectors, before)
    save_file({key: weights[key] * 2 for key in halves["model-2.safetensors"]}, folder / "model-2.safetensors")
    assert catalogue.resolve(folder).digest != spec.digest
    (folder / "model-2.safetensors").unlink()
    with pytest.raises(InvalidModel, match=r"model-2\.safetensors"):
        catalogue.resolve(folder)
    index["weight_map"]["x"] = "../secret.safetensors"
    (folder / "model.safetensors.index.json").write_text(json.dumps(index))
    with pytest.raises(InvalidModel, match="secret"):
        catalogue.resolve(folder)


@pytest.mark.parametrize("model_type", sorted(KEYS.keys() - {"mt5", "t5", "umt5"}))  # a decoder has to be vouched for
def test_config_is_not_refused_when_its_class_wrote_its_defaults(model_type: str) -> None:
    """Each key that a configuration class writes is obeyed, harmless, or neutral as it stands (issue 13.1a)."""
    transformers = pytest.importorskip("transformers")
    written = transformers.CONFIG_MAPPING[model_type]().to_dict()
    folder_keys.check("config.json", written, "config.json", Vouched(), model_type=model_type)
