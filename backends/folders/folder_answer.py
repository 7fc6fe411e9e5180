"""How a folder's answers are read: pooling and what follows it, prompts, lengths, labels; or why they can't be."""

from __future__ import annotations

from dataclasses import replace
from typing import TYPE_CHECKING, Any

from backends.base import HeadStep
from backends.catalogue.entries import Answer
from backends.engines.static_backend import width_of
from backends.errors import InvalidModel
from backends.features import feature_model
from backends.folders import folder_keys, folder_modules
from backends.folders.architectures import positions_of
from backends.folders.folder_json import flag, read_object, text, whole
from backends.folders.folder_tokenizer import longest
from backends.graph.reading import signature
from backends.running import head

if TYPE_CHECKING:
    from pathlib import Path

    from backends.base import Similarity
    from backends.folders.folder_keys import Vouched
    from backends.folders.folder_modules import Modules
    from backends.folders.folder_weights import Weights
    from backends.graph.reading.signature import Signature

_MOST_TOKENS = 512  # where nothing says how many
_NO_LIMIT = 1_000_000  # tokenizers say 1e30 for none
# Heads of another task: as an embedder such a model was trained for something else. Without modules.json nothing says
# that it was trained again; masked-LM checkpoints are the usual base models, and their head is left out.
_OTHER_TASKS = ("ForTokenClassification", "ForQuestionAnswering", "ForMultipleChoice", "ForNextSentencePrediction")
_MANY_VECTORS = ("ColBERT", "ForRetrieval", "ColPali", "ColQwen", "MultiVector")
_PROMPTS = ("document", "passage", "corpus")


def read_embedder(
    folder: Path, config: dict[str, Any], graph: Signature | None, vouched: Vouched, *, weights: Weights
) -> Answer:
    """Return how an embedder's answers are read.

    Raises:
        InvalidModel: it says something that isn't served, or isn't known; the message has the file and the key.
    """
    static = weights.static
    modules = folder_modules.read_modules(folder, vouched)
    if modules.static != static and (modules.stated or not static):
        raise InvalidModel(f"{folder}: modules.json and the weights beside it say different kinds of model")
    _check_purpose(config, folder, stated=modules.stated)
    settings = _sentence_transformers(folder, "SentenceTransformer", vouched)
    hidden = next((size for key in ("hidden_size", "dim", "d_model", "n_embd") if (size := config.get(key))), None)
    pooled = None if hidden is None else int(hidden) * (modules.pooling.count("+") + 1)
    if static:
        pooled = width_of(folder / weights.file)
    # Without modules.json nothing says how vectors compare; length 1 makes inner product and cosine agree.
    is_bare = static and not flag(config, "normalize", folder / "config.json")
    steps = modules.head if modules.stated or is_bare else (HeadStep("normalize"),)
    if (cut := whole(settings, "truncate_dim", folder / "config_sentence_transformers.json")) is not None:
        steps = (*steps, HeadStep("truncate", size=cut))
    steps = _shortened(steps)
    prompts = _prompts(settings, folder)
    default = prompts.get(text(settings, "default_prompt_name", folder / "config_sentence_transformers.json"), "")
    return Answer(
        task="embed",
        max_length=longest(folder / weights.tokenizer) or feature_model.MAX_LENGTH
        if static
        else _max_length(folder, config, modules, vouched),
        dim=head.width(steps, pooled),
        pooling="none" if static else modules.pooling or _guessed(config, graph),
        normalize=steps == (HeadStep("normalize"),),
        query_prefix=prompts.get("query", default),
        passage_prefix=next((prompts[each] for each in _PROMPTS if each in prompts), default),
        include_prompt=modules.include_prompt,
        similarity=_similarity(settings, steps, folder, vouched),
        head=() if steps in ((), (HeadStep("normalize"),)) else steps,
        lower_case=_lowers(folder, modules),
    )


def read_cross_encoder(folder: Path, config: dict[str, Any], vouched: Vouched, *, counted: bool) -> Answer:
    """Return how a cross-encoder's answers are read.

    Raises:
        InvalidModel: as `read_embedder`, or it has several labels.
    """
    modules = folder_modules.cross_encoder_modules(folder, vouched)
    _check_labels(config, folder, counted=counted)
    settings = _sentence_transformers(folder, "CrossEncoder", vouched)
    name = text(settings, "default_prompt_name", folder / "config_sentence_transformers.json")
    return Answer(
        task="cross-encode",
        max_length=_max_length(folder, config, modules, vouched),
        query_prefix=_prompts(settings, folder).get(name, ""),
        lower_case=_lowers(folder, modules),
    )


def _sentence_transformers(folder: Path, kind: str, vouched: Vouched) -> dict[str, Any]:
    path = folder / "config_sentence_transformers.json"
    settings = read_object(path)
    folder_keys.check(path, settings, path.name, vouched)
    if (stated := settings.get("model_type", kind)) != kind:
        raise InvalidModel(
            f"{path}: model_type is {stated!r}, and served as {kind} here: many or sparse vectors are not served"
        )
    return settings


def _prompts(settings: dict[str, Any], folder: Path) -> dict[str, str]:
    path = folder / "config_sentence_transformers.json"
    prompts = settings.get("prompts") or {}
    if not isinstance(prompts, dict):
        raise InvalidModel(f"{path} has values of another kind than a model's: prompts is {prompts!r:.60}")
    default = settings.get("default_prompt_name")
    if default is not None and default not in prompts:
        raise InvalidModel(
            f"{path}: default_prompt_name is {default!r}, and the prompts are {', '.join(prompts) or 'none'}"
        )
    return {name: text(prompts, name, path) for name in prompts}


def _similarity(settings: dict[str, Any], steps: tuple[HeadStep, ...], folder: Path, vouched: Vouched) -> Similarity:
    """Return what ranks the vectors: of length 1 they rank alike by cosine, dot product and distance.

    Raises:
        InvalidModel: it is a distance of vectors of any length, or isn't known.
    """
    path, key = folder / "config_sentence_transformers.json", "similarity_fn_name"
    stated = text(settings, key, path, "cosine")
    is_unit = steps[-1:] == (HeadStep("normalize"),)
    if stated == "cosine" or (is_unit and stated in {"dot", "dot_product", "euclidean"}) or vouched.accepts(key):
        return "cosine"
    if stated in {"dot", "dot_product"}:
        return "dot"
    raise folder_keys.refusal(path, key, stated, "ranks otherwise than the cosine and the dot product")


def _check_purpose(config: dict[str, Any], folder: Path, *, stated: bool) -> None:
    for each in map(str, config.get("architectures") or ()):
        if any(part in each for part in _MANY_VECTORS):
            raise InvalidModel(f"{folder / 'config.json'}: {each} gives a vector for each token, which is not served")
        if not stated and each.endswith(_OTHER_TASKS):
            raise InvalidModel(
                f"{folder / 'config.json'}: {each} is for another task than embedding; if it was trained to embed, "
                "modules.json has to say so"
            )
    if (folder / "adapter_config.json").is_file():
        raise InvalidModel(
            f"{folder / 'adapter_config.json'}: adapters are not applied: merge them into the model first"
        )
    if (folder / "artifact.metadata").is_file():
        raise InvalidModel(
            f"{folder / 'artifact.metadata'}: ColBERT gives a vector for each token, which is not served"
        )


def _guessed(config: dict[str, Any], graph: Signature | None) -> str:
    """Return the pooling of a folder that says none, as the reference guesses it."""
    if graph is not None and any(out.name == "sentence_embedding" for out in graph.outputs):
        return "none"
    first = str((config.get("architectures") or [""])[0])
    return "last" if first.endswith("ForCausalLM") and config.get("is_causal", True) else "mean"


def as_graph(answer: Answer, graph: Signature, config: dict[str, Any], folder: Path) -> Answer:
    """Return how a graph's answers are read, which may pool itself.

    Raises:
        InvalidModel: it can't be fed, or gives something else than vectors, or logits of one label.
    """
    signature.check_inputs(graph.inputs, folder.name)
    pooling = answer.pooling
    if answer.task == "embed" and not any(len(out.shape) in (0, 3) for out in graph.outputs if out.is_float):
        pooling = "none"
    output = signature.choose_output(graph.outputs, task=answer.task, pooling=pooling, model=folder.name)
    if answer.task != "embed":
        return answer
    given = output.shape[-1] if output.shape else None
    hidden = config.get("hidden_size") or config.get("dim")
    if pooling != "none" and hidden and given not in (None, hidden):
        raise InvalidModel(
            f"model {folder.name!r}: output {output.name!r} of the graph is {given} wide, and config.json's "
            f"hidden_size is {hidden}: that is no token vector (a model for another task?)"
        )
    if pooling == "none" and any(step.kind in {"dense", "layer-norm"} for step in answer.head):
        raise InvalidModel(
            f"model {folder.name!r}: the graph pools itself, and modules.json has modules after the pooling: whether "
            "the graph has them in it can't be told; export the network alone"
        )
    if given is None:
        return replace(answer, pooling=pooling)
    pooled = int(given) * (1 if pooling == "none" else pooling.count("+") + 1)
    return replace(answer, pooling=pooling, dim=head.width(answer.head, pooled))


def _check_labels(config: dict[str, Any], folder: Path, *, counted: bool) -> None:
    path = folder / "config.json"
    # transformers' own default is two labels; a graph that was read has been counted instead.
    named = config.get("id2label")
    if named is not None and not isinstance(named, dict):
        raise InvalidModel(f"{path} has values of another kind than a model's: id2label is {named!r:.60}")
    stated = whole(config, "num_labels", path)
    labels = stated or len(named or ()) or (1 if counted else 2)
    if labels != 1:
        raise InvalidModel(
            f"{path} gives {labels} labels (two labels or more); a cross-encoder for ranking gives "
            "one: use a model trained with a single label"
        )


def check_sizes(config: dict[str, Any], path: Path) -> None:
    """Refuse sizes that no network can have."""
    for key in ("hidden_size", "dim", "d_model", "n_embd", "num_attention_heads", "num_hidden_layers", "n_heads"):
        whole(config, key, path)
    for key in ("n_layers", "n_layer", "n_head", "num_key_value_heads", "intermediate_size", "vocab_size", "head_dim"):
        whole(config, key, path)
    whole(config, "max_position_embeddings", path, least=-1)
    hidden, heads = config.get("hidden_size"), config.get("num_attention_heads")
    if hidden and heads and not config.get("head_dim") and "attention_head_size" not in config and hidden % heads:
        raise InvalidModel(f"{path}: hidden_size is {hidden}, which {heads} attention heads can't share evenly")


def _lowers(folder: Path, modules: Modules) -> bool:
    _, settings = folder_modules.settings_of(folder, modules.transformer)
    return settings.get("do_lower_case") is True


def _max_length(folder: Path, config: dict[str, Any], modules: Modules, vouched: Vouched) -> int:
    path, settings = folder_modules.settings_of(folder, modules.transformer)
    folder_keys.check(path, settings, "sentence_bert_config.json", vouched)
    asked = whole(settings, "max_seq_length", path)
    file = folder / "tokenizer_config.json"
    tokenizer = read_object(file)
    stated = tokenizer.get("model_max_length")
    if not (isinstance(stated, float) and stated >= _NO_LIMIT):  # how tokenizers say that there is no limit
        stated = whole(tokenizer, "model_max_length", file)
    return min((int(n) for n in (positions_of(config), asked, stated) if n and n < _NO_LIMIT), default=_MOST_TOKENS)


def _shortened(steps: tuple[HeadStep, ...]) -> tuple[HeadStep, ...]:
    """Leave out a second Normalize right after another."""
    return tuple(step for i, step in enumerate(steps) if not (step.kind == "normalize" and steps[i - 1 : i] == (step,)))
