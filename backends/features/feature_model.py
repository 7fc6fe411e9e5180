"""Feature models: vectors from words alone. Hashed terms, idf, and a projection fitted on the user's own documents.

A model is a folder of `config.json` and `features.npz`: the hashes of the terms, and one row for each of them, in which
idf and the singular vectors are multiplied together already. A text's vector is the sum of its terms' rows, each times
1 + ln(count), brought to length 1; a text without known terms has the zero vector. Served by the NumPy backend.
"""

from __future__ import annotations

import hashlib
import json
import tempfile
import zipfile
import zlib
from dataclasses import dataclass
from functools import cached_property
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np

from backends.base import ModelSpec
from backends.catalogue.entries import Answer, digest_of
from backends.catalogue.files import sha256_of
from backends.errors import InferenceError, InvalidInput, InvalidModel
from backends.running.pooling import l2_normalize, require_finite
from backends.text.analyzer import Analyzer
from backends.text.tokenizer import TokenRows

if TYPE_CHECKING:
    from collections.abc import Sequence

    from numpy.typing import NDArray

    from backends.base import TokenBatch

WEIGHTS_FILE = "features.npz"
MODEL_TYPE = "vectorsearch-features"
MAX_LENGTH = 1 << 14
_CONFIG_FILE = "config.json"
_NO_TERM = 0  # a row needs a token; no term has this hash
# Words whose stems tell one version of the analyser from another; models of release 0.1.0 know the first line only.
_PROBE = "the relational databases' generalizations were running, naïve café résumés; 我喜欢苹果 C++ state-of-the-art"
_LATER_PROBE = (
    "so\u00adft U.S.A. \u0130zmir \u0663\u0664 \u0623\u064e\u062d\u0645\u062f "
    "\u05e9\u05b8 \u0915\u093c \u0e17\u0e35\u0e48 \u2764"
)


@dataclass(frozen=True, slots=True)
class Features:
    """A fitted model: `terms` uint32[n], ascending, and `rows` float32[n, dim]; `language` is the analyser's."""

    terms: NDArray[np.uint32]
    rows: NDArray[np.float32]
    language: str | None

    @property
    def nbytes(self) -> int:
        """Return the bytes of both arrays."""
        return self.terms.nbytes + self.rows.nbytes


class FeatureTokenizer:
    """Words of the lexical analyser as 32-bit hashes: the tokens of a feature model, when fitting and when serving."""

    def __init__(self, language: str | None) -> None:
        self._analyzer = Analyzer(language)

    @cached_property
    def check(self) -> str:
        """Return what changes if this analyser cuts or stems otherwise than another one."""
        return self._check(f"{_PROBE} {_LATER_PROBE}")

    def fits(self, check: str) -> bool:
        """Return whether a model with this check was fitted on words that are cut and stemmed as here."""
        return check in (self.check, self._check(_PROBE))

    def _check(self, probe: str) -> str:
        return hashlib.sha256(" ".join(self._analyzer.words(probe)).encode()).hexdigest()[:16]

    def hashes(self, text: str) -> list[int]:
        """Return the hash (CRC-32) of each word, in order; never 0."""
        return [zlib.crc32(word.encode("utf-8", "replace")) or 1 for word in self._analyzer.words(text)]

    def texts(self, texts: Sequence[str], max_length: int) -> TokenRows:
        """Return one row per text; see `Tokenizer.texts`."""
        hashes = [self.hashes(text) for text in texts]
        ids = [row[:max_length] or [_NO_TERM] for row in hashes]
        truncated = np.array([len(row) > max_length for row in hashes], np.bool_)
        return TokenRows(ids, [[0] * len(row) for row in ids], truncated, _NO_TERM)

    def pairs(self, query: str, texts: Sequence[str], max_length: int) -> TokenRows:  # noqa: ARG002  (the protocol's)
        """Refuse: a feature model embeds.

        Raises:
            InvalidInput: always.
        """
        raise InvalidInput(f"a feature model can't compare a query with {len(texts)} texts: it only embeds")


class FeatureModel:
    """A feature model in memory."""

    def __init__(self, spec: ModelSpec) -> None:
        self._spec = spec
        self._features: Features | None = read_features(spec.folder)
        # Beside the arrays: the rows of one long text's terms.
        self._nbytes = self._features.nbytes + estimated_workspace(spec)

    @property
    def nbytes(self) -> int:
        """Return the bytes of the arrays and of a workspace."""
        return self._nbytes

    @property
    def device(self) -> str:
        """Return `cpu:numpy:float32`."""
        return "cpu:numpy:float32"

    def infer(self, batch: TokenBatch) -> NDArray[np.float32]:
        """Return float32[n, dim] of length 1, or of zeros for a text without known terms."""
        features = self._features
        if features is None:
            raise InferenceError(f"model {self._spec.name!r} is closed")
        sums = np.zeros((batch.shape[0], features.rows.shape[1]), np.float32)
        for row, (ids, mask) in enumerate(zip(batch.input_ids, batch.attention_mask, strict=True)):
            terms, counts = np.unique(ids[mask > 0], return_counts=True)
            places = np.minimum(np.searchsorted(features.terms, terms), len(features.terms) - 1)
            known = features.terms[places] == terms
            weights = (1 + np.log(counts[known])).astype(np.float32)
            sums[row] = weights @ features.rows[places[known]]
        return l2_normalize(require_finite(sums, self._spec.name))

    def close(self) -> None:
        """Drop the arrays. Closing again is harmless."""
        self._features = None


def is_feature_model(spec: ModelSpec) -> bool:
    """Return whether the spec is of a feature model."""
    return spec.weights_file == WEIGHTS_FILE


def estimated_workspace(spec: ModelSpec) -> int:
    """Return the bytes that the longest text takes beside the arrays."""
    return spec.max_length * ((spec.dim or 0) + 8) * 4


def save(features: Features, folder: Path, about: dict[str, Any]) -> ModelSpec:
    """Write a fitted model as a new folder, in one step, and return its spec; `about` is kept in `config.json`.

    Raises:
        InvalidInput: something is there already: vectors made with a model are worth nothing without it.
        OSError: the folder can't be written.
    """
    check_free(folder)
    folder.parent.mkdir(parents=True, exist_ok=True)
    config = {
        "model_type": MODEL_TYPE,
        "hidden_size": features.rows.shape[1],
        "terms": len(features.terms),
        "language": features.language,
        "analysis": FeatureTokenizer(features.language).check,
        **about,
    }
    with tempfile.TemporaryDirectory(dir=folder.parent, prefix=".fit-", ignore_cleanup_errors=True) as scratch:
        made = Path(scratch) / folder.name
        made.mkdir()
        np.savez(made / WEIGHTS_FILE, terms=features.terms, rows=features.rows)
        (made / _CONFIG_FILE).write_text(json.dumps(config, indent=2) + "\n", encoding="utf-8")
        made.rename(folder)
    return read_spec(folder)


def check_free(folder: Path) -> None:
    """Raise `InvalidInput` if something is in the way of a new model in this folder."""
    if folder.exists() and (not folder.is_dir() or any(folder.iterdir())):
        raise InvalidInput(f"{folder} is there already: name a new folder, or remove it if no database needs it")


def read_spec(folder: Path) -> ModelSpec:
    """Return the spec of a feature model's folder.

    Raises:
        InvalidModel: `config.json` is missing, damaged, or of something else.
    """
    config = _read_config(folder)
    answer = Answer(task="embed", max_length=MAX_LENGTH, dim=config["hidden_size"], pooling="none")
    hashes = {path: sha256_of(folder / path) for path in (WEIGHTS_FILE, _CONFIG_FILE)}
    return ModelSpec(
        name=folder.name,
        folder=folder,
        digest=digest_of(hashes, answer),
        weights_file=WEIGHTS_FILE,
        weights_nbytes=(folder / WEIGHTS_FILE).stat().st_size,
        **answer.settings,
    )


def read_tokenizer(spec: ModelSpec) -> FeatureTokenizer:
    """Return the tokenizer that the model was fitted with.

    Raises:
        InvalidModel: the analyser here cuts or stems words otherwise than the one it was fitted with.
    """
    config = _read_config(spec.folder)
    tokenizer = FeatureTokenizer(config["language"])
    if not tokenizer.fits(config["analysis"]):
        raise InvalidModel(
            f"feature model {spec.name!r} was fitted with another version of the analyser ({config['analysis']}, here "
            f"{tokenizer.check}): fit it again with 'vectorsearch models fit-features', and index again"
        )
    return tokenizer


def read_features(folder: Path) -> Features:
    """Return the arrays of a feature model's folder.

    Raises:
        InvalidModel: the file is missing, damaged, or not what the configuration says. Nothing in it is executed.
    """
    config, path = _read_config(folder), folder / WEIGHTS_FILE
    try:
        with path.open("rb") as file, np.load(file, allow_pickle=False) as arrays:
            terms, rows = arrays["terms"], arrays["rows"]
    except (OSError, ValueError, KeyError, EOFError, zipfile.BadZipFile, zlib.error) as exc:
        raise InvalidModel(f"{path} is no file of a feature model: {exc}") from exc
    right = terms.dtype == np.uint32 and rows.dtype == np.float32 and terms.size > 0
    if not right or rows.shape != (len(terms), config["hidden_size"]) or not (terms[1:] > terms[:-1]).all():
        raise InvalidModel(
            f"{path} holds terms {terms.dtype}{terms.shape} and rows {rows.dtype}{rows.shape}; expected are ascending "
            f"uint32[n] and float32[n, {config['hidden_size']}]: fit the model again"
        )
    return Features(terms, rows, config["language"])


def _read_config(folder: Path) -> dict[str, Any]:
    path = folder / _CONFIG_FILE
    try:
        config = json.loads(path.read_text(encoding="utf-8"))
    except (OSError, ValueError, RecursionError) as exc:
        raise InvalidModel(f"can't read {path}: {exc}") from exc
    kinds = {"hidden_size": int, "language": str | None, "analysis": str}
    wrong = not isinstance(config, dict) or config.get("model_type") != MODEL_TYPE
    if wrong or not all(name in config and isinstance(config[name], kind) for name, kind in kinds.items()):
        raise InvalidModel(f"{path} does not describe a feature model: fit it again")
    return dict(config)
