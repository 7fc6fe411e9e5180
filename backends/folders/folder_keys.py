"""Which keys of which file of a model's folder are obeyed, which can't matter, and which are refused unless neutral.

One table for all describing files; what isn't in it is refused by its name, so that nothing is passed over in silence.
Whoever knows better vouches for a key (`accept_keys`), which then counts as harmless and is part of the model's digest.
"""

from __future__ import annotations

import json
import re
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any, Literal

from backends.errors import InvalidModel
from backends.folders.architecture_keys import KEYS

if TYPE_CHECKING:
    from collections.abc import Collection, Mapping

Treatment = Literal["obeyed", "harmless", "neutral"]


@dataclass(frozen=True, slots=True)
class Rule:
    """How one key is treated: `neutral` values of a key that is refused otherwise, and why or where it counts."""

    treatment: Treatment
    why: str = ""
    neutral: tuple[Any, ...] = ()


def _obeyed(names: str, why: str = "") -> dict[str, Rule]:
    return dict.fromkeys(names.split(), Rule("obeyed", why))


def _harmless(names: str, why: str) -> dict[str, Rule]:
    return dict.fromkeys(names.split(), Rule("harmless", why))


def _neutral(names: str, why: str, *values: Any) -> dict[str, Rule]:  # noqa: ANN401  (any JSON)
    return dict.fromkeys(names.split(), Rule("neutral", why, (None, *values)))


_NAMES = "a name or a version"
_GENERATION = "for generating text"
_TRAINING = "for training"
_TOKEN_IDS = "a token's id, which tokenizer.json says"  # noqa: S105  (no password)
_OTHERS = "of another task, or written by a tool that nothing here reads"

CONFIG: dict[str, Rule] = {
    **_obeyed("architectures model_type", "the task, and which module computes"),
    **_obeyed("id2label num_labels", "a cross-encoder needs one label"),
    **_obeyed("hidden_size dim d_model n_embd", "the length of a vector"),
    **_obeyed("max_position_embeddings n_positions", "the longest text"),
    **_obeyed("pad_token_id", "what a batch is padded with"),
    **_obeyed("rope_theta rope_scaling rope_parameters partial_rotary_factor is_causal", "by the module that computes"),
    **_neutral("sentence_transformers", "a cross-encoder's activation, which must keep the order", {}),
    **_neutral("sbert_ce_default_activation_function", "as `sentence_transformers`"),
    **_neutral("auto_map custom_pipelines", "code in the folder is never run", {}),
    **_neutral("quantization_config compression_config", "weights in a packed form", {}),
    **_neutral("is_encoder_decoder", "only encoders and decoders are served", False),
    **_neutral("add_cross_attention", "only one text is read", False),
    **_neutral("pruned_heads", "heads that were cut away", {}),
    **_neutral("position_embedding_type", "transformers has only absolute positions", "absolute"),
    **_neutral("return_dict", "answers are read by their names", True),
    **_neutral("adapters adapter_config peft_config", "adapters are not applied", {}),
    **_harmless("_name_or_path name_or_path transformers_version _commit_hash _attn_implementation", _NAMES),
    **_harmless("torch_dtype dtype use_bfloat16 use_cache output_attentions output_hidden_states torchscript", _OTHERS),
    **_harmless("attn_implementation _attn_implementation_internal _attn_implementation_autoset", "the same numbers"),
    **_harmless("problem_type finetuning_task task_specific_params label2id loss_type tie_word_embeddings", _TRAINING),
    **_harmless(
        "gradient_checkpointing chunk_size_feed_forward tie_encoder_decoder deterministic_flash_attn", _TRAINING
    ),
    **_harmless("initializer_range initializer_factor initializer_cutoff_factor reference_compile", _TRAINING),
    **_harmless("classifier_dropout attention_probs_dropout_prob hidden_dropout_prob attention_dropout", _TRAINING),
    **_harmless("dropout seq_classif_dropout qa_dropout summary_first_dropout attn_pdrop embd_pdrop", _TRAINING),
    **_harmless("resid_pdrop activation_dropout cls_dropout pooler_dropout stable_dropout", _TRAINING),
    **_harmless("min_length do_sample early_stopping num_beams num_beam_groups diversity_penalty", _GENERATION),
    **_harmless("max_length temperature top_k top_p typical_p repetition_penalty length_penalty", _GENERATION),
    **_harmless("no_repeat_ngram_size encoder_no_repeat_ngram_size bad_words_ids num_return_sequences", _GENERATION),
    **_harmless("output_scores return_dict_in_generate forced_bos_token_id forced_eos_token_id prefix", _GENERATION),
    **_harmless("remove_invalid_values exponential_decay_length_penalty suppress_tokens", _GENERATION),
    **_harmless("begin_suppress_tokens decoder_start_token_id cross_attention_hidden_size", _GENERATION),
    **_harmless("bos_token_id eos_token_id sep_token_id cls_token_id mask_token_id unk_token_id", _TOKEN_IDS),
    **_harmless("bos_token eos_token pad_token unk_token eos_token_ids tokenizer_class", _TOKEN_IDS),
    **_harmless("directionality pooler_fc_size pooler_num_attention_heads pooler_num_fc_layers", _OTHERS),
    **_harmless("pooler_size_per_head pooler_type vocab_size n_special predict_special_tokens output_past", _OTHERS),
    **_harmless("gap_size net_structure_type num_memory_blocks down_scale_factor inner_group_num", _OTHERS),
    **_harmless("summary_activation summary_type summary_use_proj summary_proj_to_labels tf_legacy_loss", _OTHERS),
    **_harmless("transformers.js_config unsloth_version unsloth_fixed use_return_dict model_name language", _OTHERS),
    **_harmless("_num_labels num_choices xla_device amp loss_function smoothing augmentation output_dim", _OTHERS),
    **_harmless("sentence_bert_config similarity_fn_name dataset task pipeline_tag library_name license", _OTHERS),
}
MODULES: dict[str, Rule] = {
    **_obeyed("type path", "the module, and the folder of its files"),
    **_harmless("idx name", "the order is the list's"),
    **_neutral("kwargs", "of a call", [], {}),
}
SENTENCE_TRANSFORMERS: dict[str, Rule] = {
    **_obeyed(
        "prompts default_prompt_name", "`query`, and the first of `document`, `passage`, `corpus`; else the default"
    ),
    **_obeyed("similarity_fn_name", "cosine and dot product; a distance only of vectors of length 1"),
    **_obeyed("truncate_dim", "the first numbers of a vector"),
    **_obeyed("model_type", "SentenceTransformer or CrossEncoder, as the task"),
    **_neutral("activation_fn", "of a cross-encoder's scores, which are logits here: one that keeps the order"),
    **_harmless("__version__ requirements base_model tags language license", _NAMES),
    **_harmless("keep_in_fp32_modules", "float32 is what is computed in"),
}
TRANSFORMER: dict[str, Rule] = {
    **_obeyed("max_seq_length", "the longest text"),
    **_obeyed("do_lower_case", "texts are lowered first"),
    **_neutral("transformer_task", "as the task", "feature-extraction", "sequence-classification"),
    **_neutral(
        "modality_config",
        "text in, token vectors or logits out",
        {"text": {"method": "forward", "method_output_name": "last_hidden_state"}},
        {"text": {"method": "forward", "method_output_name": "logits"}},
    ),
    **_neutral("module_output_name", "as the task", "token_embeddings", "scores"),
    **_neutral("processing_kwargs", "how texts are cut", {}),
    **_neutral("query_length document_length query_expansion", "for models of many vectors"),
    **_neutral("model_args tokenizer_args config_args", "arguments of a load", {}),
    **_neutral("model_kwargs processor_kwargs config_kwargs", "arguments of a load", {}),
    **_neutral("tokenizer_name_or_path", "the tokenizer is the folder's"),
    **_harmless("unpad_inputs cache_dir backend", "the same numbers"),
}
POOLING: dict[str, Rule] = {
    **_obeyed("pooling_mode pooling_mode_cls_token pooling_mode_max_tokens pooling_mode_mean_tokens", "which tokens"),
    **_obeyed(
        "pooling_mode_mean_sqrt_len_tokens pooling_mode_weightedmean_tokens pooling_mode_lasttoken", "which tokens"
    ),
    **_obeyed("include_prompt", "whether a prompt's tokens count"),
    **_harmless("word_embedding_dimension embedding_dimension", "the weights' own"),
}
DENSE: dict[str, Rule] = {
    **_obeyed("in_features out_features bias activation_function use_residual", "the layer"),
    **_neutral("module_input_name module_output_name", "one vector a text", "sentence_embedding"),
}
NORMALIZE: dict[str, Rule] = _neutral("module_input_name module_output_name", "one vector a text", "sentence_embedding")
LAYER_NORM: dict[str, Rule] = _obeyed("dimension", "the layer")
DROPOUT: dict[str, Rule] = _harmless("dropout", _TRAINING)
TOKENIZER: dict[str, Rule] = {
    **_obeyed("model_max_length", "the longest text"),
    **_obeyed("model_input_names tokenizer_class", "whether token types are fed"),
    **_obeyed("truncation_side", "which end of a long text is cut"),
    **_obeyed("do_lower_case strip_accents tokenize_chinese_chars keep_accents", "must be what tokenizer.json does"),
    **_obeyed("add_bos_token add_eos_token", "must be what tokenizer.json does"),
    **_neutral("auto_map", "code in the folder is never run", {}),
    **_neutral("split_special_tokens", "special tokens in a text are found", False),
    **_harmless("padding_side padding pad_to_multiple_of pad_token_type_id", "padding is masked"),
    **_harmless("truncation truncation_strategy max_length stride max_len", "texts are cut at the longest"),
    **_harmless("name_or_path tokenizer_file vocab_file merges_file special_tokens_map_file spm_file", _NAMES),
    **_harmless("backend is_local local_files_only processor_class transformers_version cache_dir revision", _NAMES),
    **_harmless("unk_token sep_token pad_token cls_token mask_token bos_token eos_token", "in tokenizer.json"),
    **_harmless("added_tokens_decoder additional_special_tokens extra_special_tokens", "in tokenizer.json"),
    **_harmless("extra_ids image_token boi_token eoi_token model_specific_special_tokens", "in tokenizer.json"),
    **_harmless("do_basic_tokenize never_split wordpieces_prefix clean_text basic_tokenizer", "in tokenizer.json"),
    **_harmless("add_prefix_space trim_offsets legacy from_slow use_fast sp_model_kwargs unk_id", "in tokenizer.json"),
    **_harmless("split_by_punct remove_space vocab_type pre_tokenizer unicode_normalizer", "in tokenizer.json"),
    **_harmless("sp_model_kwargs tokenize_chinese do_word_tokenize do_subword_tokenize", "in tokenizer.json"),
    **_harmless("word_tokenizer_type subword_tokenizer_type mecab_kwargs sudachi_kwargs", "in tokenizer.json"),
    **_harmless("jumanpp_kwargs normalization tokenizer_type return_token_type_ids", "in tokenizer.json"),
    **_harmless("clean_up_tokenization_spaces spaces_between_special_tokens errors", "for turning tokens into text"),
    **_harmless("chat_template use_default_system_prompt response_template return_tensors verbose", _GENERATION),
    **_harmless("add_special_tokens fix_mistral_regex language max_seq_length max_model_input_sizes", _OTHERS),
    **_neutral("post_processor tokenizer_object tokenizer_padding tokenizer_truncation vocab merges", "an object"),
    **_harmless("pretrained_init_configuration init_inputs do_normalize src_lang tgt_lang mask_token_sent", _OTHERS),
}
TABLE: dict[str, dict[str, Rule]] = {
    "config.json": CONFIG,
    "modules.json": MODULES,
    "config_sentence_transformers.json": SENTENCE_TRANSFORMERS,
    "sentence_bert_config.json": TRANSFORMER,
    "Pooling/config.json": POOLING,
    "Dense/config.json": DENSE,
    "Normalize/config.json": NORMALIZE,
    "LayerNorm/config.json": LAYER_NORM,
    "Dropout/config.json": DROPOUT,
    "tokenizer_config.json": TOKENIZER,
}
# What model2vec writes; the reference reads the table and its tokenizer alone.
_MODEL2VEC = {
    **_obeyed("normalize", "length 1, where there is no modules.json"),
    **_harmless("apply_zipf sif_coefficient hidden_dim seq_length tokenizer_name embedding_dtype", _OTHERS),
    **_harmless("vocabulary_quantization token_remove_pattern pca_dims base_model_name quantize_to", _OTHERS),
}
# What config.json says of how answers are read; all else of it says how the network is computed.
_OF_ANSWERS = {
    "sentence_transformers",
    "sbert_ce_default_activation_function",
    "adapters",
    "adapter_config",
    "peft_config",
}
UNREAD = Rule("harmless", "neither the configuration class nor the code of the architecture reads it")
_ANY_OF_THEM = frozenset(key for keys in KEYS.values() for key in keys)
# What only changes how the numbers are got, or is dropped by the reference itself.
_IDLE_ARGUMENTS = {
    "trust_remote_code",
    "attn_implementation",
    "torch_dtype",
    "dtype",
    "low_cpu_mem_usage",
    "device_map",
}
_ARGUMENTS = {name for name in TRANSFORMER if name.endswith(("_args", "_kwargs")) and name != "processing_kwargs"}
# Activations that keep the order of scores: with one of these logits rank alike.
_MONOTONE = re.compile(
    r"torch\.nn\.(modules\.(linear|activation)\.)?(Identity|Sigmoid|Tanh|LogSigmoid|Softplus|Softsign)"
)


@dataclass(slots=True)
class Vouched:
    """The keys that somebody vouches for, and which of them were needed."""

    keys: tuple[str, ...] = ()
    used: set[str] = field(default_factory=set)

    def accepts(self, key: str) -> bool:
        """Tell whether a key is vouched for, and remember that it had to be."""
        if key in self.keys:
            self.used.add(key)
        return key in self.keys

    def check_used(self, folder: object) -> None:
        """Raise `InvalidModel` if some were never needed: a slip of the pen vouches for nothing."""
        if idle := [key for key in self.keys if key not in self.used]:
            raise InvalidModel(
                f"{folder}: accept_keys names {', '.join(idle)}, which no file there has to be vouched for"
            )


def check(
    where: object,
    values: Mapping[str, Any],
    kind: str,
    vouched: Vouched,
    *,
    model_type: str = "",
    computed: bool = False,
) -> None:
    """Refuse what isn't understood of one describing file.

    Args:
        where: its path, for the message.
        values: what it says.
        kind: its name in `TABLE`.
        vouched: keys that count as harmless.
        model_type: the architecture, for config.json.
        computed: a graph computes all that config.json says of the network, which nothing reads then.

    Raises:
        InvalidModel: a key is unknown, or refused with this value; the message says how to vouch for it.
    """
    for key, value in values.items():
        if computed and key not in _OF_ANSWERS:
            continue
        rule = _rule(kind, key, model_type)
        if rule is None:
            if not vouched.accepts(key):
                raise refusal(where, key, value, "isn't known")
        elif rule.treatment == "neutral" and not _is_neutral(key, value, rule) and not vouched.accepts(key):
            raise refusal(where, key, value, f"isn't served ({rule.why})")


def refusal(where: object, key: str, value: object, why: str) -> InvalidModel:
    """Return the error for a key that is refused, which names the way to vouch for it."""
    return InvalidModel(
        f"{where}: {key} is {f'{value!r}':.120}, which {why}: passed over, it could change what the model answers. "
        f"If you know that it doesn't, vouch for it with accept_keys=[{key!r}] or --accept-key {key}"
    )


def canonical(config: Mapping[str, Any]) -> dict[str, Any]:
    """Return what of config.json belongs to a model's identity: all but what can't matter to any architecture."""
    kept = (key for key in config if (rule := CONFIG.get(key)) is None or rule.treatment != "harmless")
    return {key: config[key] for key in sorted(kept)}


def keeps_order(activation: object) -> bool:
    """Tell whether scores rank alike after an activation, named by PyTorch's class."""
    return isinstance(activation, str) and bool(_MONOTONE.fullmatch(activation))


def known_keys(kind: str) -> Collection[str]:
    """Return the keys of a file that are known for some architecture."""
    return TABLE[kind].keys() | (_ANY_OF_THEM if kind == "config.json" else set())


def told() -> str:
    """Return the table in words, file by file, as backends/README.md has it."""
    names = {
        "obeyed": "obeyed",
        "neutral": "refused with any other value than none, or than the one named",
        "harmless": "harmless",
    }
    lines = []
    for file, rules in TABLE.items():
        lines.append(f"- **`{file}`**")
        for treatment, what in names.items():
            keys = [_told(key, rule) for key, rule in rules.items() if rule.treatment == treatment]
            if keys:
                lines.append(f"  - {what}: {', '.join(keys)}")
    return "\n".join(lines)


def _told(key: str, rule: Rule) -> str:
    simple = [value for value in rule.neutral if value is not None and not isinstance(value, dict | list)]
    return f"`{key}`" + (f" ({', '.join(f'`{json.dumps(value)}`' for value in simple)})" if simple else "")


def _rule(kind: str, key: str, model_type: str) -> Rule | None:
    rule = TABLE[kind].get(key)
    if rule is None and kind == "config.json" and model_type == "model2vec":
        rule = _MODEL2VEC.get(key)
    if rule is not None or kind not in {"config.json", "tokenizer_config.json"}:
        return rule
    if kind == "tokenizer_config.json":
        return UNREAD
    if key in KEYS.get(model_type, ()):
        return Rule("obeyed", "by the module that computes")
    # Of an architecture in the list all keys that it reads are known; programs write many others into the file.
    return UNREAD if model_type in KEYS or key in _ANY_OF_THEM else None


def _is_neutral(key: str, value: object, rule: Rule) -> bool:
    if key in {"activation_fn", "sbert_ce_default_activation_function"}:
        return value is None or keeps_order(value)
    if key == "sentence_transformers" and isinstance(value, dict):
        return not set(value) - {"activation_fn", "version"} and keeps_order(
            value.get("activation_fn", "torch.nn.Identity")
        )
    if key in _ARGUMENTS and isinstance(value, dict):
        return not set(value) - _IDLE_ARGUMENTS
    return any(value == each and isinstance(value, bool) == isinstance(each, bool) for each in rule.neutral)
