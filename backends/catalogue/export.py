"""Write a model's folder in another form: a portable ONNX graph of safetensors, or safetensors of an ONNX graph.

An export counts only after its parity check: both forms, on ragged and padded batches, agree to 1e-4 in float32.
PyTorch's older exporter is used: its graphs have only operators that every backend knows.
"""

from __future__ import annotations

import json
import shutil
import tempfile
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any, Literal

import numpy as np

from backends.base import TokenBatch
from backends.catalogue import catalogue
from backends.engines.onnx_backend import runtime_errors
from backends.errors import InvalidInput, InvalidModel, MissingExtra, TransientBackendError, VectorSearchError
from backends.folders.folder import read_folder
from backends.graph import graph
from backends.graph.reading import signature
from backends.runtimes.torch_runtime.torch_memory import is_out_of_memory

if TYPE_CHECKING:
    from collections.abc import Callable

    from numpy.typing import NDArray

    from backends.base import ModelSpec

Form = Literal["onnx", "safetensors"]

TOLERANCE = 1e-4
SAFETENSORS = "model.safetensors"
_OPSET = 17  # the first with LayerNormalization, which keeps the graph small
_COPIED = {".json", ".txt", ".model", ".md", ""}  # configuration, vocabularies, licences; never weights
_IDENTITY = {"activation_fn": "torch.nn.modules.linear.Identity"}


@dataclass(frozen=True, slots=True)
class Export:
    """A folder that was written: its spec, how far both forms are apart, and operators that only ONNX Runtime knows."""

    spec: ModelSpec
    form: Form
    max_difference: float
    unsupported: tuple[str, ...] = ()


def other_form(spec: ModelSpec) -> Form:
    """Return the form that the model's folder lacks."""
    return "safetensors" if spec.weights_file.endswith(".onnx") else "onnx"


def export(
    spec: ModelSpec, out: Path, *, form: Form | None = None, progress: Callable[[str], object] = lambda _: None
) -> Export:
    """Write the model in `form` (the one it lacks) into the folder `out`, which must not be there yet.

    The folder is in Hugging Face layout, and put in place as a whole once the parity check has passed. ONNX goes beside
    the safetensors it was made of, so that every backend can serve that folder.

    Raises:
        InvalidInput: `out` is there, or the model has no weights that this form can be made of.
        InvalidModel: it can't be converted, or the forms differ; the message says by how much.
        MissingExtra: PyTorch is not installed.
    """
    form = form or other_form(spec)
    out = out.expanduser().absolute()
    if out.exists():
        raise InvalidInput(f"{out} is already there: give another folder with --out, or remove it")
    catalogue.ensure(spec)
    needed = SAFETENSORS if form == "onnx" else spec.weights_file
    if not (needed.endswith(".onnx" if form == "safetensors" else SAFETENSORS) and (spec.folder / needed).is_file()):
        raise InvalidInput(
            f"{form} is made of {'an ONNX graph' if form == 'safetensors' else SAFETENSORS}, and "
            f"{spec.name!r} has only {spec.weights_file or 'no weights'}"
        )
    out.parent.mkdir(parents=True, exist_ok=True)
    with tempfile.TemporaryDirectory(dir=out.parent, prefix=".export-") as scratch:
        made = Path(scratch) / out.name
        _copy(spec, made)
        difference = (_write_onnx if form == "onnx" else _write_safetensors)(spec, made, progress)
        unsupported = graph.unsupported(made / "model.onnx") if form == "onnx" else ()
        read_folder(made, accept_keys=spec.accept_keys)
        made.rename(out)
    return Export(read_folder(out, accept_keys=spec.accept_keys), form, difference, unsupported)


def _write_onnx(spec: ModelSpec, made: Path, progress: Callable[[str], object]) -> float:
    encoder = _encoder(spec.folder, spec)
    progress("tracing the graph")
    encoder.to_onnx(made / "model.onnx", opset=_OPSET)
    shutil.copyfile(spec.folder / SAFETENSORS, made / SAFETENSORS)
    progress("comparing it with PyTorch")
    return _compare(spec, made / "model.onnx", encoder)


def _write_safetensors(spec: ModelSpec, made: Path, progress: Callable[[str], object]) -> float:
    from safetensors.numpy import save_file  # noqa: PLC0415  (heavy: only where a model is exported)

    from backends.catalogue.dequantized import float_model, named_weights  # noqa: PLC0415  (as above)

    progress("turning the weights to floats")
    floats = made.parent / "float.onnx"
    floats.write_bytes(float_model(spec.folder / spec.weights_file).SerializeToString())
    save_file(dict(named_weights(graph.load(floats))), made / SAFETENSORS, metadata={"format": "pt"})
    progress("comparing PyTorch with the graph")
    return _compare(spec, floats, _encoder(made, spec))


def _encoder(folder: Path, spec: ModelSpec) -> Any:  # noqa: ANN401  (imported where it is needed)
    try:
        import torch  # noqa: PLC0415  (heavy: only where a model is exported)

        from backends.runtimes.torch_runtime.transformers_encoder import TransformersEncoder  # noqa: PLC0415  (as above)
    except ImportError as exc:
        raise MissingExtra("an export needs PyTorch: pip install 'vectorsearch[torch]'") from exc
    classify = spec.task == "cross-encode"
    try:
        return TransformersEncoder(folder, like=torch.empty(0), classify=classify, plain=True, longest=spec.max_length)
    except VectorSearchError:
        raise
    except Exception as exc:  # an architecture's own code raises anything
        if is_out_of_memory(exc):
            raise TransientBackendError(f"no memory to export model {spec.name!r}: {exc}") from exc
        raise InvalidModel(f"PyTorch can't load {folder}: {type(exc).__name__}: {exc}") from exc


def _compare(spec: ModelSpec, path: Path, encoder: Any) -> float:  # noqa: ANN401  (see _encoder)
    """Return the largest difference between the graph and the encoder over real tokens.

    Raises:
        InvalidModel: it is above the tolerance.
    """
    import onnxruntime  # noqa: PLC0415  (heavy: only where a model is exported)
    import torch  # noqa: PLC0415  (as above)

    found = signature.read(path)
    if found is None:
        raise MissingExtra("an export needs the onnx package: pip install onnx")
    chosen = signature.choose_output(found.outputs, task=spec.task, pooling=spec.pooling, model=spec.name).name
    try:
        options = onnxruntime.SessionOptions()
        options.log_severity_level = 4  # what fails is raised as well
        session = onnxruntime.InferenceSession(str(path), options, providers=["CPUExecutionProvider"])
    except runtime_errors() as exc:
        raise InvalidModel(f"ONNX Runtime can't load the exported {spec.name!r}: {exc}") from exc
    worst = 0.0
    for batch in _batches(spec, encoder):
        feeds = {name: getattr(batch, name) for name in found.inputs}
        try:
            ours = np.asarray(session.run([chosen], feeds)[0], np.float32)
        except runtime_errors() as exc:
            raise InvalidModel(f"the exported {spec.name!r} fails on a batch of {batch.shape}: {exc}") from exc
        with torch.inference_mode():
            parts = (batch.input_ids, batch.attention_mask.astype(np.bool_), batch.token_type_ids)
            theirs = encoder(*map(torch.from_numpy, parts)).numpy()
        worst = max(worst, _difference(ours.reshape(theirs.shape), theirs, batch.attention_mask))
    if not worst <= TOLERANCE:  # NaN is no parity either
        raise InvalidModel(f"the exported {spec.name!r} differs from PyTorch by {worst:.2g}, more than {TOLERANCE:g}")
    return worst


def _difference(ours: NDArray[np.float32], theirs: NDArray[np.float32], mask: NDArray[np.int64]) -> float:
    """Return the largest difference, relative to the largest number where that is above 1; padding is left out."""
    real = mask.astype(np.bool_) if theirs.ndim > 1 else np.ones(len(theirs), np.bool_)
    scale = max(1.0, float(np.abs(theirs[real]).max()))
    return float(np.abs(ours[real] - theirs[real]).max()) / scale


def _batches(spec: ModelSpec, encoder: Any) -> list[TokenBatch]:  # noqa: ANN401  (see _encoder)
    """Return batches of unlike shapes, ragged and padded: one row, several, and one of full length."""
    rng = np.random.default_rng(0)
    pad_id = encoder.pad_id or 0
    has_types = spec.task == "cross-encode" and encoder.type_vocabulary > 1
    made = []
    for longest, others in (
        (5, ()),
        (min(40, spec.max_length), (1, 7, 23, 2)),
        (spec.max_length, (spec.max_length // 3,)),
    ):
        lengths = np.array([longest, *others])
        mask = (np.arange(longest) < lengths[:, None]).astype(np.int64)
        types = (np.arange(longest) >= lengths[:, None] // 2) * mask if has_types else 0 * mask
        ids = np.where(mask > 0, rng.integers(0, encoder.vocabulary, mask.shape), pad_id)
        made.append(TokenBatch(ids, mask, types, pad_id))
    return made


def _copy(spec: ModelSpec, made: Path) -> None:
    """Copy what describes the model; a cross-encoder's config.json says that its scores are logits."""
    for path in sorted(spec.folder.rglob("*")):
        inside = path.relative_to(spec.folder)
        if path.is_file() and path.suffix in _COPIED and not any(part.startswith(".") for part in inside.parts):
            (made / inside).parent.mkdir(parents=True, exist_ok=True)
            shutil.copyfile(path, made / inside)
    for step in spec.head:
        if step.folder:
            shutil.copyfile(spec.folder / step.folder / SAFETENSORS, made / step.folder / SAFETENSORS)
    if spec.task == "cross-encode":
        config = json.loads((made / "config.json").read_text(encoding="utf-8"))
        config["sentence_transformers"] = {**(config.get("sentence_transformers") or {}), **_IDENTITY}
        (made / "config.json").write_text(json.dumps(config, indent=2) + "\n", encoding="utf-8")
