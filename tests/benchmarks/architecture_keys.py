"""Write `backends/folders/architecture_keys.py`: which keys of config.json each architecture of transformers reads.

    python tests/benchmarks/architecture_keys.py > backends/folders/architecture_keys.py

A key counts as read if the configuration class has it, or the code of the model asks for it. Run it again when the
reference (`.ci/constraints.txt`) is moved to another release; `make format` lays the file out.
"""

from __future__ import annotations

import importlib
import inspect
import re
import textwrap
from pathlib import Path

import transformers
from transformers import CONFIG_MAPPING, PreTrainedConfig

SERVED = (
    "albert bert camembert data2vec-text deberta deberta-v2 distilbert electra gemma3_text gpt2 llama mistral "
    "modernbert mpnet qwen2 qwen3 roberta roberta-prelayernorm xlm-roberta xlm-roberta-xl xmod"
)
OTHERS = (
    "big_bird bloom convbert ernie esm eurobert flaubert fnet funnel gemma gemma2 gpt_neox jina_embeddings_v3 "
    "layoutlm longformer luke megatron-bert mobilebert modernbert-decoder mt5 nomic_bert nystromformer opt phi3 "
    "rembert roformer splinter squeezebert t5 umt5 xlm xlnet"
)
_ASKED = re.compile(r"""config\.([a-z_0-9]+)\b(?!\()|getattr\((?:self\.)?config, ["']([a-z_0-9]+)["']""")


def main() -> None:
    """Print the module."""
    common = set(PreTrainedConfig().to_dict())
    common |= {name for base in PreTrainedConfig.__mro__ for name in inspect.get_annotations(base)}
    print(f'"""Which keys of config.json each architecture reads, of transformers {transformers.__version__}.\n')
    print('Written by `tests/benchmarks/architecture_keys.py`; not by hand.\n"""\n')
    print('from __future__ import annotations\n\n_LINES = """')
    for name in (*SERVED.split(), *OTHERS.split()):
        if name in CONFIG_MAPPING:
            keys = sorted(key for key in keys_of(name) - common if not key.startswith("_"))
            print(textwrap.fill(f"{name}: {' '.join(keys)}", 118, subsequent_indent=" ", break_on_hyphens=False))
    print('"""')
    print("KEYS = {")
    print("    name: frozenset(keys.split())")
    print(
        '    for name, _, keys in (line.partition(": ") for line in _LINES.replace("\\n ", " ").splitlines() if line)'
    )
    print("}")


def keys_of(model_type: str) -> set[str]:
    """Return the keys that an architecture's configuration class has, and those that its model's code asks for."""
    kind = CONFIG_MAPPING[model_type]
    keys = set(kind().to_dict()) | set(kind.attribute_map)
    keys |= {name for base in kind.__mro__ for name in inspect.get_annotations(base)}
    folder = Path(str(importlib.import_module(kind.__module__).__file__)).parent
    for path in folder.glob("modeling_*.py"):
        keys |= {first or second for first, second in _ASKED.findall(path.read_text(encoding="utf-8"))}
    return keys


if __name__ == "__main__":
    main()
