"""Try the table of `folder_keys` on real describing files: which keys of them are refused, and how many files.

    python tests/benchmarks/folder_corpus.py DIR

DIR holds files of public models by their own names, at any depth (`config.json`, `tokenizer_config.json`,
`modules.json`, `config_sentence_transformers.json`, `sentence_bert_config.json`, a module's `config.json`); nothing of
them is kept here. Counted are those of the served architectures, each entry of a modules.json by itself. One counts as
refused if it has a key that isn't known, or that isn't served with its value; whether that is right is for whoever
reads the list.
"""

from __future__ import annotations

import argparse
import json
from collections import Counter
from pathlib import Path
from typing import TYPE_CHECKING, Any

from backends.errors import InvalidModel
from backends.folders import folder_keys
from backends.folders.folder_keys import Vouched

if TYPE_CHECKING:
    from collections.abc import Iterator

# `architecture_keys.py` beside this has the same list.
_NAMES = """albert bert camembert data2vec-text deberta deberta-v2 distilbert electra gemma3_text gpt2 llama mistral
modernbert mpnet qwen2 qwen3 roberta roberta-prelayernorm xlm-roberta xlm-roberta-xl xmod"""
SERVED = frozenset(_NAMES.split())


def main() -> None:
    """Print a line for each refusal, and the counts."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("folder", type=Path)
    tried, refused, architectures = Counter[str](), Counter[str](), Counter[str]()
    for path in sorted(parser.parse_args().folder.rglob("*.json")):
        for kind, values, model_type in described(path):
            tried[kind] += 1
            architectures[model_type] += kind == "config.json"
            try:
                folder_keys.check(path, values, kind, Vouched(), model_type=model_type)
            except InvalidModel as exc:
                refused[kind] += 1
                print(f"{path.name} ({model_type or kind}): {str(exc).partition(': ')[2].partition(': passed')[0]}")
    total, no = tried.total(), refused.total()
    print(f"{total} files, {no} refused ({no / max(1, total):.1%}):", dict(tried), "refused", dict(refused))
    print("architectures:", dict(architectures.most_common()))


def described(path: Path) -> Iterator[tuple[str, dict[str, Any], str]]:
    """Yield the kind of each object of a file, the object, and the architecture, if it is of a model served here."""
    values = json.loads(path.read_text(encoding="utf-8"))
    near = path.parent / "config.json"
    config = json.loads(near.read_text(encoding="utf-8")) if near.is_file() else {}
    model_type = str(config.get("model_type", ""))
    if path.name == "modules.json":
        yield from (("modules.json", module, model_type) for module in values)
    elif path.name == "config.json" and "pooling_mode_mean_tokens" in values:
        yield "Pooling/config.json", values, ""
    elif path.name == "config.json" and "in_features" in values:
        yield "Dense/config.json", values, ""
    elif path.name.startswith("sentence_") and path.name.endswith("_config.json"):
        yield "sentence_bert_config.json", values, model_type
    elif path.name in folder_keys.TABLE and model_type in SERVED:
        yield path.name, values, model_type


if __name__ == "__main__":
    main()
