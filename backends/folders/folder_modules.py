"""What `modules.json` and the folders it names say of an embedder: the pooling, and the modules that follow it."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path, PurePosixPath
from typing import TYPE_CHECKING, Any

from backends.base import HeadStep
from backends.errors import InvalidModel
from backends.folders import folder_keys
from backends.folders.folder_json import flag, read_list, read_object, text, whole
from backends.running.head import ACTIVATIONS

if TYPE_CHECKING:
    from backends.folders.folder_json import Object
    from backends.folders.folder_keys import Vouched

SAFETENSORS = "model.safetensors"
_PACKAGE = "sentence_transformers."
# As the reference names them; the flags are in the order in which it joins what several of them ask for.
_MODES = {
    "cls": "cls",
    "max": "max",
    "mean": "mean",
    "mean_sqrt_len_tokens": "mean_sqrt_len",
    "weightedmean": "weightedmean",
    "lasttoken": "last",
}
_FLAGS = (
    ("pooling_mode_cls_token", "cls"),
    ("pooling_mode_max_tokens", "max"),
    ("pooling_mode_mean_tokens", "mean"),
    ("pooling_mode_mean_sqrt_len_tokens", "mean_sqrt_len"),
    ("pooling_mode_weightedmean_tokens", "weightedmean"),
    ("pooling_mode_lasttoken", "last"),
)


@dataclass(frozen=True, slots=True)
class Modules:
    """What follows the network: `pooling` is "" where nothing says it; `stated` says that there is a modules.json."""

    stated: bool = False
    pooling: str = ""
    include_prompt: bool = True
    head: tuple[HeadStep, ...] = ()
    transformer: str = ""  # the folder of the first module
    static: bool = False  # the first module is a table of vectors


def read_modules(folder: Path, vouched: Vouched) -> Modules:
    """Return what the modules of a folder are.

    Raises:
        InvalidModel: there is a module that isn't served, or one without its files, or a key that isn't understood.
    """
    path = folder / "modules.json"
    listed = read_list(path)
    if listed is None:
        return _unlisted(folder, vouched)
    kinds: list[tuple[str, Path]] = []
    for module in listed:
        folder_keys.check(path, module, "modules.json", vouched)
        kinds.append((_kind(module, path), _place(folder, module, path)))
    if not kinds or kinds[0][0] not in {"Transformer", "StaticEmbedding"}:
        raise InvalidModel(
            f"{path} begins with {kinds[0][0] if kinds else 'nothing'}: served are models that begin with a "
            "Transformer or a StaticEmbedding"
        )
    (first, place), *rest = kinds
    pooling, include_prompt = "none", True
    if first == "Transformer":
        if not rest or rest[0][0] != "Pooling":
            after = rest[0][0] if rest else "nothing"
            raise InvalidModel(f"{path} has {after} after the Transformer: one vector a text needs a Pooling there")
        pooling, include_prompt = _pooling(rest.pop(0)[1], vouched)
    head = tuple(step for kind, at in rest for step in _step(kind, at, folder, vouched))
    return Modules(
        stated=True,
        pooling=pooling,
        include_prompt=include_prompt,
        head=head,
        transformer=str(place.relative_to(folder)),
        static=first == "StaticEmbedding",
    )


def cross_encoder_modules(folder: Path, vouched: Vouched) -> Modules:
    """Return the modules of a cross-encoder, which has a Transformer alone.

    Raises:
        InvalidModel: there are others.
    """
    path = folder / "modules.json"
    listed = read_list(path)
    if listed is None:
        return Modules()
    for module in listed:
        folder_keys.check(path, module, "modules.json", vouched)
    kinds = [_kind(module, path) for module in listed]
    if kinds != ["Transformer"]:
        raise InvalidModel(
            f"{path} has {', '.join(kinds) or 'nothing'}: a cross-encoder is served as a Transformer alone"
        )
    return Modules(stated=True, transformer=str(_place(folder, listed[0], path).relative_to(folder)))


def _unlisted(folder: Path, vouched: Vouched) -> Modules:
    """Return what a folder without modules.json says: its pooling, if it has the usual folder for that."""
    place = folder / "1_Pooling"
    if not (place / "config.json").is_file():
        return Modules()
    pooling, include_prompt = _pooling(place, vouched)
    return Modules(pooling=pooling, include_prompt=include_prompt)


def _kind(module: Object, path: Path) -> str:
    kind = text(module, "type", path)
    if not kind.startswith(_PACKAGE):
        raise InvalidModel(f"{path} has a module of type {kind!r}: only sentence-transformers' own modules are served")
    return kind.rpartition(".")[2]


def _place(folder: Path, module: Object, path: Path) -> Path:
    if "path" not in module:
        raise InvalidModel(f"{path}: module {module.get('type')!r} says no path, the folder of its files")
    stated = PurePosixPath(text(module, "path", path))
    if stated.is_absolute() or ".." in stated.parts:
        raise InvalidModel(f"{path} names the folder {str(stated)!r}, which is not inside the model's")
    return folder / stated


def _pooling(place: Path, vouched: Vouched) -> tuple[str, bool]:
    """Return the modes, joined, and whether a prompt's tokens count."""
    path = place / "config.json"
    if not path.is_file():
        raise InvalidModel(f"{path} is missing: it says how token vectors become one")
    config = read_object(path)
    folder_keys.check(path, config, "Pooling/config.json", vouched)
    stated = config.get("pooling_mode")
    if stated is None:
        modes = [mode for key, mode in _FLAGS if flag(config, key, path)] or ["mean"]
    else:
        names = [stated] if isinstance(stated, str) else stated
        if not isinstance(names, list) or not names or not all(isinstance(each, str) for each in names):
            raise InvalidModel(f"{path}: pooling_mode is {stated!r}; a name or a list of names is needed")
        if unknown := [each for each in names if each not in _MODES]:
            raise InvalidModel(f"{path}: pooling_mode asks for {', '.join(unknown)}; served are {', '.join(_MODES)}")
        modes = [_MODES[each] for each in names]
    return "+".join(modes), flag(config, "include_prompt", path, default=True)


def _step(kind: str, place: Path, folder: Path, vouched: Vouched) -> list[HeadStep]:
    path, inside = place / "config.json", str(place.relative_to(folder))
    config = read_object(path)
    known = f"{kind}/config.json"
    if known not in folder_keys.TABLE or kind == "Pooling":
        raise InvalidModel(f"{folder / 'modules.json'} has the module {kind} after the pooling, which is not served")
    folder_keys.check(path, config, known, vouched)
    if kind == "Normalize":
        return [HeadStep("normalize")]
    if kind == "Dropout":
        return []
    if not (place / SAFETENSORS).is_file():
        raise InvalidModel(f"{place / SAFETENSORS} is missing: the weights of {kind} (pickles are never read)")
    if kind == "LayerNorm":
        return [HeadStep("layer-norm", inside, size=whole(config, "dimension", path) or 0)]
    activation = text(config, "activation_function", path, "torch.nn.modules.activation.Tanh")
    name = activation.rpartition(".")[2]
    if not activation.startswith("torch.nn.") or name not in ACTIVATIONS:
        raise InvalidModel(
            f"{path}: activation_function is {activation!r}; served are PyTorch's {', '.join(sorted(ACTIVATIONS))}"
        )
    size = whole(config, "out_features", path)
    if size is None or whole(config, "in_features", path) is None:
        raise InvalidModel(f"{path} says no in_features or out_features")
    flag(config, "bias", path, default=True)
    residual = flag(config, "use_residual", path)
    return [HeadStep("dense", inside, activation=name, residual=residual, size=size)]


def settings_of(folder: Path, place: str) -> tuple[Path, dict[str, Any]]:
    """Return the file in which a Transformer keeps its settings, the first that isn't empty, and what it holds."""
    names = ("bert", "roberta", "distilbert", "camembert", "albert", "xlm-roberta", "xlnet")
    for path in (folder / place / f"sentence_{name}_config.json" for name in names):
        if found := read_object(path):
            return path, found
    return folder / place / "sentence_bert_config.json", {}
