"""What a folder asks for, against sentence-transformers: each is computed alike, or refused by its name."""

from __future__ import annotations

import json
from typing import TYPE_CHECKING, Any

import numpy as np
import pytest
from module_files import modules, pooled

from backends.catalogue import catalogue, export
from backends.errors import InvalidModel
from backends.running.pooling import l2_normalize

torch = pytest.importorskip("torch")
sentence_transformers = pytest.importorskip("sentence_transformers")

if TYPE_CHECKING:
    from pathlib import Path

    from numpy.typing import NDArray

QUERY = "how read csv"
TEXTS = ["dog cat", "how read a csv file", "a b c dog parse file csv cat a b", ""]
PROMPTS = {"query": "how: ", "document": "a file: "}


def reference(folder: Path) -> NDArray[np.float32]:
    """Return the reference's vectors of the query and the texts, each alone, of length 1."""
    model = sentence_transformers.SentenceTransformer(str(folder), device="cpu", local_files_only=True)
    return l2_normalize(np.stack([model.encode_query(QUERY), *(model.encode_document(text) for text in TEXTS)]))


def ours(model: Any) -> NDArray[np.float32]:
    """Return this project's vectors of the same, the texts in one batch, of length 1."""
    query = model.embed([QUERY], kind="query").vectors
    return l2_normalize(np.concatenate([query, model.embed(TEXTS, kind="passage").vectors]))


def agree(model: Any, folder: Path) -> None:
    """Insist on a cosine of 0.9999 and more for each text."""
    expected, found = reference(folder), ours(model)
    assert found.shape == expected.shape
    assert (found * expected).sum(axis=1).min() > 0.9999


def add_weights(folder: Path, place: str, **weights: tuple[int, ...]) -> None:
    """Write random weights of these shapes into a module's folder."""
    from safetensors.torch import save_file  # noqa: PLC0415  (only with PyTorch)

    torch.manual_seed(5)
    (folder / place).mkdir(exist_ok=True)
    made = {name.replace("__", "."): torch.randn(*shape) / 4 for name, shape in weights.items()}
    save_file(made, folder / place / "model.safetensors")


@pytest.mark.parametrize(
    "pooling",
    ["cls", "max", "mean_sqrt_len_tokens", "weightedmean", "lasttoken", ["cls", "mean"], ["max", "weightedmean"]],
)
def test_pooling_is_the_references_when_it_is_one_mode_or_several(
    folder_of: Any, load_torch: Any, pooling: Any
) -> None:
    """M5: every mode, and several joined, give the reference's vector in its whole length."""
    folder = folder_of(files=pooled(pooling))
    agree(load_torch(folder), folder)


def test_pooling_is_read_where_modules_json_names_it(folder_of: Any, load_torch: Any) -> None:
    """M5: the folder's name is modules.json's, and old flags are joined in the reference's order."""
    files = {
        "modules.json": [modules()[0], {**modules("Pooling")[1], "path": "pooled_here"}],
        "pooled_here/config.json": {
            "word_embedding_dimension": 32,
            "pooling_mode_mean_tokens": True,
            "pooling_mode_cls_token": True,
            "pooling_mode_max_tokens": False,
        },
        "1_Pooling/config.json": {"pooling_mode": "max"},
    }
    folder = folder_of(files=files)
    model = load_torch(folder)
    assert (model.spec.pooling, model.spec.dim) == ("cls+mean", 64)
    agree(model, folder)


@pytest.mark.parametrize("pooling", ["mean", "cls", "weightedmean", "lasttoken"])
def test_prompt_is_left_out_of_the_pooling_when_the_folder_says_so(
    folder_of: Any, load_torch: Any, pooling: str
) -> None:
    """M6: with include_prompt false the prompt is read, and its tokens aren't pooled."""
    settings = {"config_sentence_transformers.json": {"prompts": PROMPTS}}
    folder = folder_of(files=pooled(pooling, include_prompt=False) | settings)
    agree(load_torch(folder), folder)


@pytest.mark.parametrize(
    ("settings", "query", "passage"),
    [
        ({"prompts": {"query": "q", "document": "d", "passage": "p"}}, "q", "d"),
        ({"prompts": {"corpus": "c", "passage": "p"}}, "", "p"),
        ({"prompts": {"corpus": "c"}}, "", "c"),
        ({"prompts": {"query": "q", "x": "x"}, "default_prompt_name": "x"}, "q", "x"),
        ({"prompts": {"query": "q", "document": ""}, "default_prompt_name": "query"}, "q", ""),
    ],
)
def test_prompts_are_found_in_the_references_order(
    make_folder: Any, settings: dict[str, Any], query: str, passage: str
) -> None:
    """M6: query; document, passage, corpus; and the default where none of them is there."""
    files = pooled("mean") | {"config_sentence_transformers.json": settings}
    spec = catalogue.resolve(make_folder(files=files))
    assert (spec.query_prefix, spec.passage_prefix) == (query, passage)


def test_prompt_is_refused_when_the_default_is_none_of_them(make_folder: Any) -> None:
    """M6: a default prompt that isn't there is the folder's fault."""
    files = {"config_sentence_transformers.json": {"prompts": {"query": "q"}, "default_prompt_name": "x"}}
    with pytest.raises(InvalidModel, match="default_prompt_name"):
        catalogue.resolve(make_folder(files=pooled("mean") | files))


def test_vector_is_cut_when_the_folder_says_its_length(folder_of: Any, load_torch: Any) -> None:
    """M6: truncate_dim keeps the first numbers of each vector."""
    files = pooled("mean", "Normalize") | {"config_sentence_transformers.json": {"truncate_dim": 12}}
    folder = folder_of(files=files)
    model = load_torch(folder)
    assert model.spec.dim == 12
    agree(model, folder)


@pytest.mark.parametrize("activation", ["activation.Tanh", "linear.Identity", "activation.GELU", "activation.SiLU"])
def test_dense_follows_the_pooling_when_modules_json_has_it(folder_of: Any, load_torch: Any, activation: str) -> None:
    """M5: Dense after the pooling, with its activation, then Normalize: the reference's vector."""
    dense = {
        "in_features": 32,
        "out_features": 12,
        "bias": True,
        "activation_function": f"torch.nn.modules.{activation}",
    }
    folder = folder_of(files=pooled("mean", "Dense", "Normalize") | {"2_Dense/config.json": dense})
    add_weights(folder, "2_Dense", linear__weight=(12, 32), linear__bias=(12,))
    model = load_torch(folder)
    assert model.spec.dim == 12
    agree(model, folder)


def test_export_keeps_what_follows_the_pooling(folder_of: Any, load_torch: Any, tmp_path: Path) -> None:
    """A graph made of a folder with a Dense gives the same vectors on another backend."""
    dense = {"in_features": 64, "out_features": 12, "bias": False}
    folder = folder_of(files=pooled(["cls", "mean"], "Dense") | {"2_Dense/config.json": dense})
    add_weights(folder, "2_Dense", linear__weight=(12, 64))
    made = export.export(catalogue.resolve(folder), tmp_path / "made", form="onnx").spec
    assert (made.head, made.dim, made.weights_file) == (catalogue.resolve(folder).head, 12, "model.onnx")
    agree(load_torch(made.folder, "numpy:float32"), folder)


def test_layer_norm_and_a_residual_are_computed_when_modules_json_has_them(folder_of: Any, load_torch: Any) -> None:
    """M5: LayerNorm, and a Dense with a residual of another width."""
    dense = {"in_features": 32, "out_features": 12, "bias": False, "use_residual": True}
    files = pooled(["mean"], "LayerNorm", "Dense", "Dropout") | {
        "2_LayerNorm/config.json": {"dimension": 32},
        "3_Dense/config.json": dense,
        "4_Dropout/config.json": {"dropout": 0.1},
    }
    folder = folder_of(files=files)
    add_weights(folder, "2_LayerNorm", norm__weight=(32,), norm__bias=(32,))
    add_weights(folder, "3_Dense", linear__weight=(12, 32), residual__weight=(12, 32))
    agree(load_torch(folder), folder)


@pytest.mark.parametrize(
    ("files", "named"),
    [
        (pooled("mean") | {"2_X/config.json": {}, "modules.json": modules("Pooling", "CNN")}, "CNN"),
        ({"modules.json": modules()}, "Pooling"),
        ({"modules.json": modules("Dense")}, "Dense"),
        ({"modules.json": modules("SpladePooling")}, "SpladePooling"),
        ({"modules.json": [{"type": "custom_st.Transformer", "path": ""}]}, "custom_st"),
        ({"modules.json": []}, "nothing"),
        ({"modules.json": modules("Pooling")}, "1_Pooling/config.json"),
        (pooled("first"), "first"),
        (pooled(3), "pooling_mode"),
        (pooled("mean", include_prompt="no"), "include_prompt"),
        (pooled("mean", pooling_mode_new_tokens=True), "pooling_mode_new_tokens"),
        (
            pooled("mean") | {"config_sentence_transformers.json": {"similarity_fn_name": "euclidean"}},
            "similarity_fn_name",
        ),
        (pooled("mean") | {"config_sentence_transformers.json": {"model_type": "SparseEncoder"}}, "SparseEncoder"),
        (pooled("mean") | {"sentence_bert_config.json": {"query_length": 32}}, "query_length"),
        (pooled("mean") | {"config.json": {"architectures": ["HF_ColBERT"]}}, "ColBERT"),
        ({"config.json": {"architectures": ["BertForTokenClassification"]}}, "BertForTokenClassification"),
        ({"config.json": {"architectures": ["BertForQuestionAnswering"]}}, "BertForQuestionAnswering"),
        ({"adapter_config.json": {}}, "adapter"),
        ({"config.json": {"model_type": "brand-new", "embedding_scale": 2.0}}, "embedding_scale"),
        ({"config.json": {"model_type": "bert", "quantization_config": {"bits": 4}}}, "quantization_config"),
        ({"config.json": {"model_type": "bert", "auto_map": {"AutoModel": "x.X"}}}, "auto_map"),
        ({"tokenizer_config.json": {"split_special_tokens": True}}, "split_special_tokens"),
        (
            {"tokenizer_config.json": {"tokenizer_class": "AlbertTokenizer", "do_lower_case": False}},
            "do_lower_case",
        ),
        (
            {"tokenizer_config.json": {"tokenizer_class": "AlbertTokenizer", "add_eos_token": False}},
            "add_eos_token",
        ),
    ],
)
def test_folder_is_refused_by_name_when_it_asks_for_what_is_not_served(
    make_folder: Any, files: dict[str, Any], named: str
) -> None:
    """M5 to M8: a module, a mode, a similarity, a kind of model or a key that isn't served is named."""
    folder = make_folder(files=files)
    (folder / "model.safetensors").write_bytes(b"weights")  # what computes them is told by config.json
    with pytest.raises(InvalidModel, match=named):
        catalogue.resolve(folder)


def test_task_is_embedding_when_a_classifiers_modules_have_a_pooling(make_folder: Any) -> None:
    """M8: modules.json tells what a folder is for, whatever its weights were trained for before."""
    config = {"architectures": ["TinyForSequenceClassification"], "hidden_size": 8, "id2label": {"0": "x", "1": "y"}}
    assert catalogue.resolve(make_folder(files=pooled("mean") | {"config.json": config})).task == "embed"


@pytest.mark.parametrize("similarity", ["dot", "dot_product", "euclidean"])
def test_similarity_is_served_when_length_one_makes_it_the_cosine(make_folder: Any, similarity: str) -> None:
    """M7: vectors of length 1 rank alike by dot product, distance and cosine."""
    files = pooled("mean", "Normalize") | {"config_sentence_transformers.json": {"similarity_fn_name": similarity}}
    assert catalogue.resolve(make_folder(files=files)).normalize


def test_last_token_is_pooled_when_a_causal_model_says_nothing(make_folder: Any) -> None:
    """M4: a …ForCausalLM without modules.json is pooled at its last token, unless it isn't causal."""
    causal = {"architectures": ["Qwen3ForCausalLM"], "model_type": "qwen3"}
    pooling = [
        catalogue.resolve(make_folder(files={"config.json": config})).pooling
        for config in (causal, {**causal, "is_causal": False}, {"architectures": ["BertForMaskedLM"]})
    ]
    assert pooling == ["last", "mean", "mean"]


def test_texts_are_lowered_when_the_transformer_says_so(folder_of: Any, load_torch: Any) -> None:
    """M6: do_lower_case of sentence_bert_config.json comes before a tokenizer that doesn't lower."""
    settings = {"do_lower_case": True, "max_seq_length": 40}
    folder = folder_of(files=pooled("mean") | {"sentence_bert_config.json": settings})
    file = json.loads((folder / "tokenizer.json").read_text())
    (folder / "tokenizer.json").write_text(json.dumps(file | {"normalizer": None}))
    model = load_torch(folder)
    upper, lower = (model.embed([text], kind="passage").vectors for text in ("HOW Read CSV", "how read csv"))
    np.testing.assert_array_equal(upper, lower)
    assert model.spec.max_length == 40


@pytest.mark.parametrize(
    "settings",
    [
        {"sentence_transformers": {"activation_fn": "torch.nn.modules.activation.Sigmoid", "version": "4.0.0"}},
        {"sbert_ce_default_activation_function": "torch.nn.modules.linear.Identity"},
    ],
)
def test_activation_is_passed_over_when_it_keeps_the_order(make_folder: Any, settings: dict[str, Any]) -> None:
    """M6: scores are logits here; an activation that ranks them alike changes nothing, another is refused."""
    config = {"architectures": ["TinyForSequenceClassification"], "id2label": {"0": "x"}}
    assert catalogue.resolve(make_folder(task="cross-encode", files={"config.json": config | settings}))
    wrong = json.loads(json.dumps(settings).replace("Sigmoid", "Softmax").replace("linear.Identity", "activation.ReLU"))
    with pytest.raises(InvalidModel, match=next(iter(settings))):
        catalogue.resolve(make_folder(task="cross-encode", files={"config.json": config | wrong}))


def test_prompt_goes_before_the_query_when_a_cross_encoder_has_a_default(folder_of: Any, load_torch: Any) -> None:
    """M6: a cross-encoder's default prompt is put before the query, as the reference does."""
    files = {
        "modules.json": modules(),
        "sentence_bert_config.json": {
            "transformer_task": "sequence-classification",
            "modality_config": {"text": {"method": "forward", "method_output_name": "logits"}},
            "module_output_name": "scores",
        },
        "config_sentence_transformers.json": {
            "model_type": "CrossEncoder",
            "prompts": {"rank": "parse a file: "},
            "default_prompt_name": "rank",
            "activation_fn": "torch.nn.modules.linear.Identity",
        },
    }
    folder = folder_of(classify=True, files=files)
    model = sentence_transformers.CrossEncoder(str(folder), device="cpu", local_files_only=True)
    expected = [float(model.predict([(QUERY, text)])[0]) for text in TEXTS[:3]]
    np.testing.assert_allclose(load_torch(folder).score(QUERY, TEXTS[:3]).scores, expected, atol=1e-4)
