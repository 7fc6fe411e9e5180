"""Make the golden databases of release 0.1.0: `python tests/golden/release_0_1_0/make_release.py`.

Run once, by the code of that release, and checked in: `databases.zip`, and in `answers.json` what its searches gave. A
later release must open them and answer the same, so they are never made again. Torch and transformers make a random
reranker.
"""

from __future__ import annotations

import json
import shutil
import tempfile
import zipfile
from pathlib import Path
from typing import Any

import numpy as np

import vectorsearch as vs

HERE = Path(__file__).parent
WORDS = (
    "lease",
    "model",
    "budget",
    "query",
    "index",
    "vector",
    "score",
    "document",
    "tenant",
    "quota",
    "evict",
    "load",
    "rank",
    "word",
    "filter",
    "snapshot",
)
QUERIES = ("lease budget", "which tenant has a quota", "rank the documents", "snapshot")
KEPT_AS_IS = (zipfile.ZIP_DEFLATED, 9)


def documents(seed: int, n: int) -> list[dict[str, Any]]:
    """Give documents of a few words each, with a title now and then, and metadata of every kind."""
    rng = np.random.default_rng(seed)
    return [
        {
            "id": f"d{i}",
            "text": " ".join(rng.choice(WORDS, 6)) + f" number{i} 我喜欢苹果",
            "title": f"{rng.choice(WORDS)} {i}" if i % 3 else "",
            "metadata": {"lang": "en" if i % 2 else "de", "year": 2000 + i, "tags": ["a", None, 1.5], "deep": {"i": i}},
        }
        for i in range(n)
    ]


def vector(seed: int) -> list[float]:
    """Give a vector of eight numbers."""
    return [round(float(x), 4) for x in np.random.default_rng(seed).standard_normal(8)]


def write_reranker(folder: Path) -> Path:
    """Write a BERT of random weights that scores pairs: hidden 16, one layer, a vocabulary of the words above."""
    import torch  # noqa: PLC0415 -- only who makes them needs it
    from tokenizers import Tokenizer, models, pre_tokenizers, processors  # noqa: PLC0415 -- as above
    from transformers import BertConfig, BertForSequenceClassification  # noqa: PLC0415 -- as above

    torch.manual_seed(1)
    vocabulary = {token: i for i, token in enumerate(["[PAD]", "[UNK]", "[CLS]", "[SEP]", *WORDS])}
    tokenizer = Tokenizer(models.WordLevel(vocabulary, unk_token="[UNK]"))  # noqa: S106 -- a word
    tokenizer.pre_tokenizer = pre_tokenizers.Whitespace()
    tokenizer.post_processor = processors.TemplateProcessing(
        single="[CLS] $A [SEP]", pair="[CLS] $A [SEP] $B:1 [SEP]:1", special_tokens=[("[CLS]", 2), ("[SEP]", 3)]
    )
    config = BertConfig(
        vocab_size=len(vocabulary),
        hidden_size=16,
        num_hidden_layers=1,
        num_attention_heads=2,
        intermediate_size=32,
        max_position_embeddings=64,
        num_labels=1,
        initializer_range=0.5,
    )
    plain = folder.with_name("plain")
    BertForSequenceClassification(config).eval().save_pretrained(plain)
    tokenizer.save(str(plain / "tokenizer.json"))
    from backends.export import export  # noqa: PLC0415  (names of release 0.1.0, which alone writes these databases)
    from backends.folder import read_folder  # noqa: PLC0415

    return export(read_folder(plain), folder, form="onnx").spec.folder  # which every backend can serve


def make_store(folder: Path, scratch: Path) -> None:
    """Make a store with an embedder of its own and two tenants, with deletions, one with a quota and a reranker."""
    with vs.open(scratch / "words.db", embed=None, rerank=None) as db:
        db.add(documents(1, 40))
        from vectorsearch.features import fit_features  # noqa: PLC0415  (as above)

        fit_features(db, scratch / "features", dim=8)
    reranker = write_reranker(scratch / "reranker")
    with vs.open(folder, embed=None, rerank=None, backend="numpy") as db:
        db.register_model("words", scratch / "features", "embed")
        db.add(documents(2, 24))
        db.reindex(embed="words")
        acme = db.tenant("acme", quota_nbytes=256 << 20, guaranteed_nbytes=1 << 20)
        acme.register_model("ranker", reranker, "cross-encoder", ttl_s=60.0, priority=3)
        acme.add(documents(3, 20))
        globex = db.tenant("globex", embed=None, dense_index="Flat")
        globex.add([{**row, "vector": vector(i)} for i, row in enumerate(documents(4, 16))])
        for database in (db, acme, globex):
            database.delete(["d3", "d4"])
        globex.upsert([{"id": "d5", "text": "lease replaced", "vector": vector(99)}])
        acme.update_metadata({"d6": {"year": 1999}})
    with vs.open(folder, backend="numpy") as db:  # as an idle store lies there: closed twice, its indexes written
        for database in (db, db.tenant("acme"), db.tenant("globex", dense_index="Flat")):
            database.refresh()


def make_compacted(folder: Path) -> None:
    """Make a database whose deletions are forgotten, so that it is of format 2."""
    with vs.open(folder, embed=None, rerank=None, dense_index="Flat") as db:
        db.add([{**row, "vector": vector(i)} for i, row in enumerate(documents(5, 16))])
        db.delete(["d1", "d2"])
        db.compact()
        db.add([{"id": "late", "text": "lease late", "vector": vector(50)}])


def make_killed(folder: Path, scratch: Path) -> None:
    """Make what a killed process leaves: commits that are in the log alone, and indexes older than they are."""
    with vs.open(scratch / "open.db", embed=None, rerank=None, dense_index="Flat") as db:
        db.add([{**row, "vector": vector(i)} for i, row in enumerate(documents(6, 8))])
        db.refresh()
        db.upsert([{"id": "d1", "text": "lease after the index", "vector": vector(60)}])
        shutil.copytree(scratch / "open.db", folder)
        for name in ("documents.sqlite-shm", "top.json", "top.watch"):
            (folder / name).unlink(missing_ok=True)


def answers(db: vs.Database) -> dict[str, Any]:
    """Return what a database is and answers, as plain values."""
    query = np.array(vector(7), np.float32)
    found: dict[str, Any] = {
        "documents": {doc.id: [doc.text, doc.title, doc.metadata, _plain(doc.vector)] for doc in db.iter()},
        "models": [[m.tenant, m.name, m.task] for m in db.registered_models()],
        "lexical": {text: _hits(db.search(text, mode="lexical", k=8)) for text in QUERIES},
        "filtered": _hits(db.search("苹果", mode="lexical", k=50, filter={"lang": "en", "tags": 1.5})),
    }
    if db.embedder is not None:
        found["hybrid"] = {text: _hits(db.search(text, mode="hybrid", k=8)) for text in QUERIES}
        found["dense"] = {text: _hits(db.search(text, mode="dense", k=8)) for text in QUERIES}
    else:
        found["by vector"] = _hits(db.search(vector=query, k=8))
    if any(model.task == "cross-encode" for model in db.registered_models()):
        found["reranked"] = {text: _hits(db.search(text, k=8, rerank="ranker")) for text in QUERIES}
    return found


def store_answers(folder: Path) -> dict[str, Any]:
    """Return the answers of a database and its tenants."""
    with vs.open(folder, rerank=None, backend="numpy", dense_index="Flat") as db:
        told = {"": answers(db)}
        for tenant in db.tenants():
            told[tenant.name] = {
                "sizes": [tenant.quota_nbytes, tenant.guaranteed_nbytes],
                **answers(db.tenant(tenant.name)),
            }
        return told


def _plain(values: Any) -> list[float] | None:
    return None if values is None else [round(float(x), 4) for x in values]


def _hits(result: Any) -> list[list[Any]]:
    assert not result.degraded, result.degraded
    return [[hit.id, round(float(hit.score), 4)] for hit in result]


def main() -> None:
    """Make them in a scratch folder, keep their answers, and pack them."""
    with tempfile.TemporaryDirectory() as temporary:
        made, scratch = Path(temporary) / "made", Path(temporary) / "scratch"
        made.mkdir()
        make_store(made / "store", scratch)
        make_compacted(made / "compacted")
        make_killed(made / "killed", scratch)
        told = {}
        for name in ("store", "compacted", "killed"):
            shutil.copytree(made / name, Path(temporary) / "asked" / name)
            told[name] = store_answers(Path(temporary) / "asked" / name)
        (HERE / "answers.json").write_text(json.dumps(told, ensure_ascii=False, indent=1) + "\n", encoding="utf-8")
        with zipfile.ZipFile(HERE / "databases.zip", "w", *KEPT_AS_IS) as packed:
            for path in sorted(p for p in made.rglob("*") if p.is_file()):
                packed.write(path, path.relative_to(made))


if __name__ == "__main__":
    main()
