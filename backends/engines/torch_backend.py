"""PyTorch: serves a Hugging Face folder with safetensors, or an 8-bit graph of BERT's kin, in float32 or bfloat16.

The numerical reference. The weights of an 8-bit graph become floats when it is loaded.
"""

from __future__ import annotations

import functools
import gc
import importlib.util
import json
from contextlib import ExitStack
from pathlib import Path
from typing import TYPE_CHECKING, Any

from backends.base import Serves
from backends.catalogue.entries import ENTRIES
from backends.choosing.portable import is_packed
from backends.choosing.precision import choose_precision
from backends.engines.static_backend import is_static
from backends.errors import InvalidModel, MissingExtra, TransientBackendError, VectorSearchError
from backends.folders.architectures import WRITTEN_OUT
from backends.folders.folder_weights import INDEX, find_weights
from backends.running.memory import trim
from backends.running.process import usable_cores
from backends.runtimes.torch_runtime.torch_memory import PART_TOKENS, is_out_of_memory

if TYPE_CHECKING:
    from collections.abc import Mapping

    import torch

    from backends.base import Backend, LoadedModel, ModelSpec
    from backends.runtimes.torch_runtime.torch_model import Encoder

SAFETENSORS = "model.safetensors"
FLOATS_FACTOR = 4  # of an 8-bit file's bytes
# Measured with ragged batches of every length (README.md, PyTorch): activations and the threads' heaps, and kernels.
WORKSPACE_NBYTES_PER_TOKEN = 72 * 1024
KERNELS_NBYTES = 96 << 20


def backend() -> Backend:
    """Return this file's backend; the registry calls it on first use."""
    return TorchBackend()


class TorchBackend:
    """Loads safetensors with PyTorch; without a precision, in the one that is faster here and keeps the answers."""

    priority: int | None = 40
    runtime = ("torch", "transformers", "safetensors.torch", "tokenizers")
    precisions = ("float32", "bfloat16")

    def __init__(self, precision: str | None = None) -> None:
        self._precision = precision
        self.name = f"torch:{precision}" if precision else "torch"

    def with_precision(self, precision: str) -> Backend:
        """Return this backend in one precision."""
        return TorchBackend(precision)

    def can_serve(self, spec: ModelSpec) -> Serves:
        """Say yes to safetensors of a known architecture, and to an 8-bit graph of BERT's kin."""
        missing = [name for name in ("torch", "transformers") if importlib.util.find_spec(name) is None]
        if missing:
            return Serves(ok=False, reason=f"{missing[0]} is not installed: pip install 'vectorsearch[torch]'")
        if not _has_safetensors(spec) and not _is_8_bit(spec):
            is_graph = spec.weights_file.endswith(".onnx")
            known_as = spec.name if spec.name in ENTRIES else spec.folder
            step = f": run 'vectorsearch models export {known_as} --to safetensors'" if is_graph else ""
            return Serves(
                ok=False,
                reason=f"it reads {SAFETENSORS}, and {spec.name!r} has only {spec.weights_file or 'no weights'}{step}",
            )
        architecture = _config(spec.folder).get("model_type")
        if architecture is not None and not _is_known(str(architecture)):
            return Serves(
                ok=False,
                reason=f"the installed transformers has no architecture {architecture!r}, and code that lies in a "
                "model's folder is never run: pip install -U transformers",
            )
        return Serves(ok=True)

    def estimate(self, spec: ModelSpec) -> int:
        """Return the weights, both precisions of them where one is still to be chosen, and the workspace, in bytes."""
        files = [spec.folder / name for name in _parts(spec)] if _has_safetensors(spec) and spec.folder.is_dir() else []
        unpacked = spec.weights_nbytes * (1 if _has_safetensors(spec) else FLOATS_FACTOR)
        size = sum(file.stat().st_size for file in files if file.is_file()) or unpacked
        factor = {"float32": 1.0, "bfloat16": 0.5}.get(self._precision or "", 1.5)
        return int(size * factor) + workspace_nbytes(spec)

    def load_model(self, spec: ModelSpec) -> LoadedModel:
        """Load the weights; see `Backend.load_model`."""
        try:
            import torch  # noqa: F401, PLC0415  (heavy: only where a model is loaded)
        except ImportError as exc:
            raise MissingExtra("this model needs PyTorch: pip install 'vectorsearch[torch]'") from exc
        from backends.runtimes.torch_runtime.torch_model import TorchModel, Workers, find_device  # noqa: PLC0415  (imports PyTorch)

        device = find_device()
        workers = Workers(usable_cores() if device.type == "cpu" else 0)
        with ExitStack() as undo:
            undo.callback(workers.close)
            try:
                encoder, name = workers.submit(functools.partial(self._build, spec, device)).result()
            except VectorSearchError:
                raise
            except Exception as exc:  # an architecture's own code raises anything
                if is_out_of_memory(exc):
                    raise TransientBackendError(f"no memory to load model {spec.name!r} on {device}: {exc}") from exc
                raise InvalidModel(f"PyTorch can't load {spec.folder}: {type(exc).__name__}: {exc}") from exc
            undo.pop_all()
        gc.collect()
        trim()
        return TorchModel(spec, encoder, workers, device=f"{device}:torch:{name}", nbytes=workspace_nbytes(spec))

    def _build(self, spec: ModelSpec, device: torch.device) -> tuple[Encoder, str]:
        from backends.runtimes.torch_runtime import torch_precision  # noqa: PLC0415  (imports PyTorch)

        make = functools.partial(_encoder, spec, device)
        if self._precision or not torch_precision.bfloat16_pays(device):
            name = self._precision or "float32"
            return make(name), name
        if not _has_safetensors(spec):  # loading compares it with the graph itself
            return make("bfloat16"), "bfloat16"
        return choose_precision(
            (spec.digest, device.type),
            make,
            lambda encoder: torch_precision.answers_of(encoder, device, longest=spec.max_length),
        )


def _encoder(spec: ModelSpec, device: torch.device, precision: str) -> Encoder:
    """Return the encoder that is written out here where it computes this architecture, else transformers' module."""
    import torch  # noqa: PLC0415  (heavy: only where a model is loaded)
    from safetensors import SafetensorError  # noqa: PLC0415  (as above)
    from safetensors.torch import load_file  # noqa: PLC0415  (as above)

    from backends.runtimes.torch_runtime.bert_encoder import BertEncoder  # noqa: PLC0415  (imports PyTorch)

    config = _config(spec.folder)
    classify = spec.task == "cross-encode"
    like = torch.empty(0, dtype=getattr(torch, precision), device=device)
    write_out = functools.partial(
        BertEncoder, config, like=like, classify=classify, first_only=spec.pooling == "cls" and spec.include_prompt
    )
    try:
        if not _has_safetensors(spec):
            from backends.runtimes.torch_runtime.torch_graph import encoder_of  # noqa: PLC0415  (imports PyTorch)

            return encoder_of(spec, write_out, device)
        if is_written_out(config):
            parts = (load_file(spec.folder / name) for name in _parts(spec))
            return write_out({name: weight for part in parts for name, weight in part.items()})
        from backends.runtimes.torch_runtime.transformers_encoder import TransformersEncoder  # noqa: PLC0415  (imports transformers)

        return TransformersEncoder(spec.folder, like=like, classify=classify, longest=spec.max_length)
    except (OSError, SafetensorError) as exc:
        raise InvalidModel(f"{spec.folder / _parts(spec)[0]} can't be read: {exc}") from exc


def is_written_out(config: Mapping[str, Any]) -> bool:
    """Return whether `bert_encoder` computes a model of this config.json as transformers would."""
    return (
        config.get("model_type") in WRITTEN_OUT
        and config.get("hidden_act", "gelu") == "gelu"
        and config.get("position_embedding_type", "absolute") == "absolute"
        and not config.get("is_decoder")
    )


def _is_8_bit(spec: ModelSpec) -> bool:
    """Return whether the spec is of a graph of 8-bit products, of a family that is written out here."""
    if not spec.weights_file.endswith(".onnx"):
        return False
    config = _config(spec.folder)  # empty where the folder was not fetched yet, which is taken at its name
    try:
        return (not config or is_written_out(config)) and is_packed(spec)
    except (InvalidModel, MissingExtra):
        return False


def _has_safetensors(spec: ModelSpec) -> bool:
    """Return whether the spec is of safetensors, or of an ONNX graph with safetensors beside it."""
    files = (SAFETENSORS, INDEX)
    lies_beside = spec.weights_file.endswith(".onnx") and any((spec.folder / name).is_file() for name in files)
    return (spec.weights_file in files and not is_static(spec)) or lies_beside


def _parts(spec: ModelSpec) -> list[str]:
    """Return the files of safetensors, as paths in the folder."""
    found = find_weights(spec.folder)
    return [name for name in (*found.shards, *found.beside, found.file) if name.endswith(".safetensors")]


def _config(folder: Path) -> Mapping[str, Any]:
    """Return config.json; empty where the folder was not fetched yet."""
    try:
        found: Mapping[str, Any] = json.loads((folder / "config.json").read_text(encoding="utf-8"))
    except FileNotFoundError:
        return {}
    except (OSError, ValueError, RecursionError) as exc:
        raise InvalidModel(f"can't read {folder / 'config.json'}: {exc}") from exc
    return found


def _is_known(architecture: str) -> bool:
    """Return whether the installed transformers has this architecture, without importing it if its name tells."""
    package = importlib.util.find_spec("transformers")
    places = (package.submodule_search_locations if package else None) or ()
    if any((Path(place) / "models" / architecture.replace("-", "_")).is_dir() for place in places):
        return True
    # Several architectures may lie in one folder, under another name: data2vec-text, gemma3_text.
    from transformers.models.auto import configuration_auto  # noqa: PLC0415  (takes seconds)

    names: Mapping[str, str] = vars(configuration_auto)["CONFIG_MAPPING_NAMES"]
    return architecture in names


def workspace_nbytes(spec: ModelSpec) -> int:
    """Return what all cores together take beside the weights, and oneDNN's compiled kernels."""
    return usable_cores() * max(PART_TOKENS, spec.max_length) * WORKSPACE_NBYTES_PER_TOKEN + KERNELS_NBYTES
