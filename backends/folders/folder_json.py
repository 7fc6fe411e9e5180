"""The JSON files of a model's folder: read strictly, with the file's name in every complaint."""

from __future__ import annotations

import json
from typing import TYPE_CHECKING, Any

from backends.errors import InvalidModel

if TYPE_CHECKING:
    from collections.abc import Mapping
    from pathlib import Path

Object = dict[str, Any]


def read_object(path: Path) -> Object:
    """Return the object that a file holds; an empty one if there is no such file.

    Raises:
        InvalidModel: it can't be read, is no JSON (`Infinity` and `NaN` are none), or holds something else.
    """
    found = _read(path)
    if found is None:
        return {}
    if not isinstance(found, dict):
        raise InvalidModel(
            f"{path} has values of another kind than a model's: an object is needed, not {_shown(found)}"
        )
    return found


def read_list(path: Path) -> list[Object] | None:
    """Return the list of objects that a file holds; None if there is no such file.

    Raises:
        InvalidModel: as `read_object`.
    """
    found = _read(path)
    if found is not None and (not isinstance(found, list) or not all(isinstance(each, dict) for each in found)):
        raise InvalidModel(f"{path} has values of another kind than a model's: a list of objects is needed")
    return found


def whole(values: Mapping[str, Any], key: str, path: Path, *, least: int = 1) -> int | None:
    """Return a whole number of an object, None where it isn't said.

    Raises:
        InvalidModel: it is of another kind, or below `least`.
    """
    value = values.get(key)
    if value is None:
        return None
    if isinstance(value, bool) or not isinstance(value, int) or value < least:
        raise InvalidModel(
            f"{path} has values of another kind than a model's: {key} is {_shown(value)}, and a whole number of "
            f"{least} or more is needed"
        )
    return value


def text(values: Mapping[str, Any], key: str, path: Path, default: str = "") -> str:
    """Return a text of an object.

    Raises:
        InvalidModel: it is of another kind.
    """
    value = values.get(key)
    if value is None:
        return default
    if not isinstance(value, str):
        raise InvalidModel(f"{path} has values of another kind than a model's: {key} is {_shown(value)}, not a text")
    return value


def flag(values: Mapping[str, Any], key: str, path: Path, *, default: bool = False) -> bool:
    """Return a truth value of an object.

    Raises:
        InvalidModel: it is of another kind.
    """
    value = values.get(key)
    if value is None:
        return default
    if not isinstance(value, bool):
        raise InvalidModel(
            f"{path} has values of another kind than a model's: {key} is {_shown(value)}, not true or false"
        )
    return value


def _read(path: Path) -> Any:  # noqa: ANN401  (any JSON)
    def refuse(constant: str) -> None:
        raise ValueError(f"{constant} is no number of JSON")

    try:
        return json.loads(path.read_text(encoding="utf-8"), parse_constant=refuse)
    except FileNotFoundError:
        return None
    except (OSError, ValueError, RecursionError) as exc:
        raise InvalidModel(f"can't read {path}: {exc}") from exc


def _shown(value: object) -> str:
    return f"{value!r:.60}"
