"""The root of the error tree, and what a backend can raise.

Every exception that this project raises on purpose is a `VectorSearchError`. `vectorsearch.errors` draws
the whole tree.
"""

from __future__ import annotations

_PACKAGES = {"backends", "lifecycle", "rerank", "vectorsearch"}


class VectorSearchError(Exception):
    """Root of every error that this project raises on purpose."""

    __module__ = "vectorsearch"

    def __init_subclass__(cls, **options: object) -> None:
        super().__init_subclass__(**options)
        if cls.__module__.partition(".")[0] in _PACKAGES:
            cls.__module__ = "vectorsearch"  # where callers import it from: so tracebacks name it


class InvalidInput(VectorSearchError, ValueError):
    """The caller's argument can't be used; the message names the argument and its value."""


class BackendError(VectorSearchError):
    """A backend, or the files of a model, could not do what was asked."""


class MissingExtra(BackendError, ImportError):
    """A package that this feature needs is not installed; the message holds the pip command."""


class UnknownModel(BackendError, LookupError):
    """No model of this name is in the catalogue, on disk, or registered."""


class ModelUnavailable(BackendError):
    """The model is known, but its files could not be fetched from any source."""


class InvalidModel(BackendError):
    """The model's files are missing, damaged, of another digest, or of a shape that can't be served."""


class CannotServe(BackendError):
    """No installed backend can serve this model; the message gives each backend's reason."""


class InferenceError(BackendError):
    """A loaded model failed on this input, or returned values that are not numbers."""


class DeadlineExceeded(InferenceError, TimeoutError):
    """The answer would have come after its deadline; that says nothing against the model."""


class TransientBackendError(InferenceError):
    """A failure that may pass on another backend or at another time (out of memory, device lost)."""
