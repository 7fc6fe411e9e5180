"""Where a database is: a folder of this machine. What names a place elsewhere is refused, and never made a folder."""

from __future__ import annotations

import re
from pathlib import Path
from typing import TYPE_CHECKING

from backends.errors import InvalidInput
from vectorsearch.collection.storage.sqlite.schema import FILE_NAME

if TYPE_CHECKING:
    import os

# A scheme as URLs have it (RFC 3986); one letter before the colon is a drive of Windows.
_SCHEME = re.compile(r"([a-z][a-z0-9+.-]+):", re.IGNORECASE)


def local_folder(path: str | os.PathLike[str]) -> Path:
    """Return a folder's path, which need not be there.

    A database that lies in a folder of such a name already is found all the same.

    Raises:
        InvalidInput: the path names a place of another kind, as `s3://bucket` does.
    """
    folder = Path(path)
    scheme = _SCHEME.match(str(path))
    if scheme and not (folder / FILE_NAME).exists():
        raise InvalidInput(
            f"{str(path)!r} is of {scheme[1]!r}, and databases are folders of this machine: give a folder's path "
            "(an absolute one, if the name really has a colon)"
        )
    return folder
