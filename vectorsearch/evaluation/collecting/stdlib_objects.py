"""Find the public objects of an interpreter's standard library, each once, under its best name, and describe them.

`stdlib_corpus` runs this file as a program of its own, so it imports nothing but the standard library.
"""

from __future__ import annotations

import builtins
import enum
import functools
import importlib
import inspect
import json
import pkgutil
import re
import sys
import types
import warnings
from collections import Counter, defaultdict
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator, Mapping

# Why each group of modules is never imported. Names are top-level modules, or dotted for parts of a package.
SKIPPED: dict[str, tuple[str, ...]] = {
    "importing it acts: opens a browser, prints": ("antigravity", "this", "readline", "rlcompleter"),
    "needs Tcl/Tk, which many interpreters lack": ("tkinter", "turtle", "turtledemo", "idlelib"),
    "data or an installer, with nothing to call": ("pydoc_data", "ensurepip", "encodings"),
    "deprecated, and gone from Python 3.12, 3.13 or 3.14": (
        *("aifc", "asynchat", "asyncore", "audioop", "cgi", "cgitb", "chunk", "crypt", "distutils", "imghdr", "imp"),
        *("lib2to3", "mailcap", "msilib", "nis", "nntplib", "nturl2path", "ossaudiodev", "pipes", "smtpd", "sndhdr"),
        *("spwd", "sre_compile", "sre_constants", "sre_parse", "sunau", "telnetlib", "uu", "xdrlib"),
    ),
    "behind os, os.path or xml.parsers.expat": ("genericpath", "nt", "ntpath", "posix", "posixpath", "pyexpat"),
    "works on Windows only": (
        *("msvcrt", "winreg", "winsound", "ctypes.wintypes", "asyncio.windows_events", "asyncio.windows_utils"),
        *("multiprocessing.popen_spawn_win32",),
    ),
}
_ADDRESS = re.compile(r" at 0x[0-9a-fA-F]+")
_SKIPPED_NAMES = frozenset(name for names in SKIPPED.values() for name in names)
_SKIPPED_PARTS = frozenset({"__main__", "test", "tests"})


@dataclass(frozen=True, slots=True)
class Found:
    """One object: `name` is its id, `aliases` its other names (sorted), `kind` what it is."""

    name: str
    module: str
    kind: str
    obj: object
    aliases: tuple[str, ...]


@dataclass(frozen=True, slots=True)
class _Naming:
    """One way to reach an object: the qualified name, and what speaks for it."""

    name: str
    module: str
    obj: object
    position: int  # where the name stands in its module or class
    owner: type | None = None
    distance: int = 0  # from the class in the name up to the base that defines the member

    def preference(self) -> tuple[int, bool, int, int, int, int, str]:
        """Return the sort key: few dots, the object's own last name, near its class, short, defined early."""
        own_name = getattr(self.obj, "__name__", None) == self.name.rpartition(".")[2]
        length = len(self.name) if self.owner else 0
        return self.name.count("."), not own_name, len(self.module), self.distance, length, self.position, self.name


def describe(found: Found) -> dict[str, Any]:
    """Return the object's row: its name as `_id`, name and signature as `title`, docstring as `text`, `metadata`."""
    metadata: dict[str, Any] = {"module": found.module, "kind": found.kind}
    if found.aliases:
        metadata["aliases"] = list(found.aliases)
    text = _ADDRESS.sub("", docstring_of(found.obj))
    return {"_id": found.name, "title": found.name + _signature(found), "text": text, "metadata": metadata}


def find_objects() -> list[Found]:
    """Return every documented public object of the standard library, sorted by name.

    Imports the library's modules, so it's meant for a process of its own.
    """
    namings: list[_Naming] = []
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        # All are imported before any is looked at: importing a part can replace what its package had under that name.
        for public_name, module in list(_public_modules()):
            namings.append(_Naming(public_name, public_name, module, 0))
            namings.extend(_module_members(public_name, module))
        classes = _best_names(naming for naming in namings if isinstance(naming.obj, type))
        for naming in classes.values():
            namings.extend(_class_members(naming, classes))
    return _merge_aliases(namings)


def docstring_of(obj: object) -> str:
    """Return the object's own docstring with its indentation removed, or "": never that of its type."""
    doc = getattr(obj, "__doc__", None)
    if not isinstance(doc, str) or (not isinstance(obj, type) and doc == type(obj).__doc__):
        return ""
    return inspect.cleandoc(doc).strip()


def _kind(obj: object, owner: type | None) -> str:
    """Return what the object is, or "" for what has no documentation of its own: constants, aliases of types."""
    if isinstance(obj, types.ModuleType):
        return "module"
    if isinstance(obj, type):
        return "class" if owner is None else ""  # a class inside a class is nearly always a setting of it
    if isinstance(obj, (property, functools.cached_property, types.DynamicClassAttribute)):
        return "property"
    if inspect.isdatadescriptor(obj):
        return "" if docstring_of(obj).startswith("Alias for field number") else "attribute"
    if inspect.isroutine(obj):
        return "function" if owner is None else "method"
    return "special form" if type(obj).__module__ == "typing" else ""


def _public_modules() -> Iterator[tuple[str, types.ModuleType]]:
    """Yield (public name, module), packages before their parts; `os.path` counts as a part of `os`."""
    pending = [name for name in sorted(sys.stdlib_module_names, reverse=True) if not _is_private(name)]
    while pending:
        name = pending.pop()
        module = None if name in _SKIPPED_NAMES else _import(name)
        if module is None:
            continue
        parent, _, last = name.rpartition(".")
        if parent and vars(sys.modules[parent]).get(last) is not module:
            continue  # hidden: `unittest.main` is a class
        yield name, module
        if name == "os":
            yield "os.path", module.path
        parts = pkgutil.iter_modules(getattr(module, "__path__", ()))
        pending.extend(f"{name}.{part.name}" for part in parts if not _is_private(part.name))


def _is_private(name: str) -> bool:
    return (name.startswith("_") and name != "__future__") or name in _SKIPPED_PARTS


def _import(name: str) -> types.ModuleType | None:
    """Import a module; None where this build of the interpreter lacks it."""
    try:
        return importlib.import_module(name)
    except ImportError:
        return None


def _module_members(public_name: str, module: types.ModuleType) -> Iterator[_Naming]:
    listed = getattr(module, "__all__", ())
    for position, name in enumerate(dict.fromkeys([*listed, *vars(module)])):
        if name.startswith("_"):
            continue
        obj = getattr(module, name, None)
        if isinstance(obj, types.ModuleType) or not (name in listed or _is_at_home(obj, module)):
            continue
        qualified = name if public_name == "builtins" else f"{public_name}.{name}"
        yield _Naming(qualified, public_name, _unbound(obj), position)


def _is_at_home(obj: object, module: types.ModuleType) -> bool:
    """Tell whether the module offers an object that its `__all__` doesn't name, or that has none."""
    home = getattr(obj, "__module__", None)
    if not isinstance(home, str):
        return False
    if hasattr(module, "__all__"):  # which may forget some: asyncio.TaskGroup in 3.11, hashlib.scrypt
        return home.startswith(f"{module.__name__}.") or home == f"_{module.__name__}"
    if module is builtins:
        return home.partition(".")[0] in sys.stdlib_module_names
    # Defined here, or in the private or C twin of this module.
    return home == module.__name__ or home.rpartition(".")[2].startswith("_") or home in _SKIPPED_NAMES


def _unbound(obj: object) -> object:
    """Return what stands behind a bound method (`random.randint`), a classmethod or a staticmethod."""
    if isinstance(obj, (types.MethodType, classmethod, staticmethod)):
        return obj.__func__
    if isinstance(obj, types.BuiltinMethodType) and not isinstance(obj.__self__, (types.ModuleType, type, type(None))):
        return getattr(type(obj.__self__), obj.__name__, obj)
    return obj


def _class_members(naming: _Naming, public_classes: Mapping[int, _Naming]) -> Iterator[_Naming]:
    """Yield the class's own members and those it has from private bases, which have no other public name."""
    owner = naming.obj
    if not isinstance(owner, type):
        return
    seen: set[str] = set()
    for distance, base in enumerate(owner.__mro__):
        # socket.socket is written in two languages: its C half is public as well, but as SocketType.
        is_half = base.__name__ == owner.__name__ and base.__module__.startswith("_")
        if base is not owner and id(base) in public_classes and not is_half:
            continue
        for position, (name, raw) in enumerate(vars(base).items()):
            special = name.startswith("__") and name.endswith("__")
            if name in seen or (name.startswith("_") and not special):
                continue
            obj = _unbound(raw)
            if docstring_of(obj):
                seen.add(name)
            bases = [parent for parent in base.__mro__[1:] if id(parent) in public_classes and name in vars(parent)]
            if not _repeats(obj, [_unbound(vars(parent)[name]) for parent in bases]):
                yield _Naming(f"{naming.name}.{name}", naming.module, obj, position, base, 0 if is_half else distance)


def _repeats(obj: object, overridden: list[object]) -> bool:
    # Slot wrappers (`int.__add__`) all carry the one text of their slot.
    if isinstance(obj, types.WrapperDescriptorType):
        return True
    return docstring_of(obj) in [docstring_of(other) for other in overridden]


def _best_names(namings: Iterable[_Naming]) -> dict[int, _Naming]:
    best: dict[int, _Naming] = {}
    for naming in namings:
        known = best.setdefault(id(naming.obj), naming)
        best[id(naming.obj)] = min(known, naming, key=_Naming.preference)
    return best


def _merge_aliases(namings: list[_Naming]) -> list[Found]:
    documented = [naming for naming in namings if _says_something(naming) and _kind(naming.obj, naming.owner)]
    names: defaultdict[int, set[str]] = defaultdict(set)
    for naming in documented:
        names[id(naming.obj)].add(naming.name)
    best = _best_names(documented)
    special_docs = Counter(_special_doc(naming) for naming in best.values())
    found: list[Found] = []
    for key, naming in best.items():
        # A special method's text that several classes share says nothing about any of them.
        if _special_doc(naming) and special_docs[_special_doc(naming)] > 1 and naming.owner is not object:
            continue
        kind = _kind(naming.obj, naming.owner)
        found.append(Found(naming.name, naming.module, kind, naming.obj, tuple(sorted(names[key] - {naming.name}))))
    return sorted(found, key=lambda entry: entry.name)


def _says_something(naming: _Naming) -> bool:
    return docstring_of(naming.obj) not in {"", naming.name.rpartition(".")[2]}


def _special_doc(naming: _Naming) -> tuple[str, str] | None:
    last = naming.name.rpartition(".")[2]
    return (last, docstring_of(naming.obj)) if naming.owner is not None and last.startswith("__") else None


def _signature(found: Found) -> str:
    """Return the call signature without annotations and without `self`, or "" where none can be found."""
    if not callable(found.obj) or found.kind == "special form":
        return ""
    try:
        signature = inspect.signature(found.obj)
    except (ValueError, TypeError, NameError, AttributeError):  # a default or an annotation may name what is absent
        return ""
    parameters = list(signature.parameters.values())
    if found.kind == "method" and parameters and parameters[0].name in {"self", "cls", "type"}:
        del parameters[0]
    plain = [parameter.replace(annotation=parameter.empty, default=_default(parameter)) for parameter in parameters]
    return _ADDRESS.sub("", str(inspect.Signature(plain)))


class _Shown:
    """A default value's stand-in: `repr` is exactly the text to show."""

    def __init__(self, text: str) -> None:
        self.text = text

    def __repr__(self) -> str:
        return self.text


def _default(parameter: inspect.Parameter) -> object:
    """Return the default in a form that is the same on every run: `...` for objects and for paths of this machine."""
    value = parameter.default
    if value is parameter.empty:
        return value
    if isinstance(value, enum.Enum):
        return _Shown(f"{type(value).__name__}.{value.name}" if value.name else "...")
    if isinstance(value, (type, types.FunctionType, types.BuiltinFunctionType)):
        return _Shown(value.__name__)
    if isinstance(value, str) and Path(value).is_absolute() and len(value) > 1:
        return _Shown("...")
    if value is None or isinstance(value, (bool, int, float, str, bytes)) or value in ((), [], {}):
        return _Shown(repr(value))
    return _Shown("...")


if __name__ == "__main__":
    sys.stdout.writelines(f"{json.dumps(describe(found))}\n" for found in find_objects())
