"""The registry: backends are found by file name, ordered by priority, and refuse with reasons."""

from __future__ import annotations

import re
import subprocess
import sys
from dataclasses import replace
from pathlib import Path

import pytest

from backends.base import Backend, ModelSpec, Serves
from backends.choosing import registry
from backends.engines.fake_backend import FakeBackend, fake_spec
from backends.errors import BackendError, CannotServe, InferenceError, InvalidInput, TransientBackendError

ROOT = Path(__file__).parents[3]
README = ROOT / "backends" / "README.md"


class Unwilling(FakeBackend):
    """A backend that is tried first and serves nothing."""

    priority = 1

    def __init__(self) -> None:
        super().__init__("unwilling")
        self.priority = 1

    def can_serve(self, spec: ModelSpec) -> Serves:
        """Refuse."""
        return Serves(ok=False, reason=f"not {spec.name}")


class Precise(FakeBackend):
    """A backend with two precisions."""

    precisions = ("float32", "bfloat16")

    def with_precision(self, precision: str) -> Backend:
        """Return a backend named for the precision."""
        return FakeBackend(f"{self.name}:{precision}")


@pytest.fixture(autouse=True)
def _restored(monkeypatch: pytest.MonkeyPatch) -> None:
    """Put the registry back as it was."""
    registry.available()
    monkeypatch.setattr(registry, "_known", dict(registry._known))
    monkeypatch.setattr(registry, "_broken", dict(registry._broken))


def test_backends_are_found_when_their_files_are_there() -> None:
    """Every `*_backend.py` is a backend, and each keeps the protocol."""
    files = {path.name.removesuffix("_backend.py") for path in (ROOT / "backends" / "engines").glob("*_backend.py")}
    assert files <= set(registry.available())
    assert all(isinstance(registry.get(name), Backend) for name in registry.available())


def test_order_follows_priority_when_backends_are_listed() -> None:
    """Lower priority numbers come first, and None last."""
    registry.register(Unwilling())
    listed = registry.available()
    assert (listed[0], listed[-1]) == ("unwilling", "fake")
    assert registry.unasked() == listed[:-1]
    with pytest.raises(InvalidInput, match=r"there are unwilling, coreml, (?!.*fake)"):
        registry.get("nothing")


def test_fake_is_never_chosen_when_nobody_asks() -> None:
    """A backend of priority None serves only by name."""
    with pytest.raises(CannotServe):
        registry.select(fake_spec("m"))
    assert registry.select(fake_spec("m"), backend="fake").name == "fake"


def test_every_reason_is_given_when_none_can_serve() -> None:
    """The refusal has each backend's own reason, so that the user can act on one."""
    registry.register(Unwilling())
    spec = replace(fake_spec("minilm"), weights_file="model.bin")
    with pytest.raises(CannotServe, match=r"unwilling: not minilm; .*onnx: .*only model\.bin"):
        registry.select(spec)


def test_next_backend_is_taken_when_the_first_refuses() -> None:
    """Selection goes down the order to the first that can serve."""
    registry.register(Unwilling())
    assert registry.select(replace(fake_spec("m"), weights_file="model.onnx")).name == "onnx"


def test_names_are_listed_when_a_backend_is_unknown() -> None:
    """An unknown name is the caller's error, and the message lists those that exist."""
    with pytest.raises(InvalidInput, match=r"no backend 'tpu'.*onnx"):
        registry.get("tpu")


def test_precision_is_given_when_the_name_carries_one() -> None:
    """`name:precision` is that backend in that precision, and all of them can be listed."""
    registry.register(Precise("two"))
    assert registry.get("two:bfloat16").name == "two:bfloat16"
    assert registry.variants("two") == ("two:float32", "two:bfloat16")
    assert registry.variants("two:float32") == ("two:float32",)
    assert registry.variants("fake") == ("fake",)
    assert registry.select(fake_spec("m"), backend="two:float32").name == "two:float32"


def test_precisions_are_listed_when_one_is_unknown() -> None:
    """An unknown precision is the caller's error, and the message says which there are."""
    registry.register(Precise("two"))
    with pytest.raises(
        InvalidInput, match="backend 'two' has no precision 'int4'; there are two:float32, two:bfloat16"
    ):
        registry.get("two:int4")
    with pytest.raises(InvalidInput, match="backend 'fake' has one precision only"):
        registry.get("fake:float32")
    with pytest.raises(InvalidInput, match="no backend 'tpu'"):
        registry.get("tpu:float32")


def test_error_is_transient_when_it_or_its_cause_was_declared_so() -> None:
    """Only a declared error may pass elsewhere, however it is wrapped; a plain failure of the model may not."""
    assert registry.is_transient(TransientBackendError("out of memory"))
    wrapped = BackendError("load failed")
    wrapped.__cause__ = TransientBackendError("out of memory")
    assert registry.is_transient(wrapped)
    assert not registry.is_transient(InferenceError("NaN"))
    assert not registry.is_transient(MemoryError())


def test_others_go_on_when_a_plug_in_is_broken() -> None:
    """A plug-in that can't be imported is a reason in the message, not the end of all others."""

    def fail() -> Backend:
        raise ImportError("no libtpu")

    registry._add("tpu", fail)
    assert "onnx" in registry.available()
    with pytest.raises(InvalidInput, match="no libtpu"):
        registry.get("tpu")
    with pytest.raises(CannotServe, match="no libtpu"):
        registry.choose(fake_spec("m"), "query")


def test_table_in_the_readme_is_true_when_a_backend_is_changed() -> None:
    """The README's table has every backend of this package with its priority and its precisions."""
    rows = re.findall(
        r"^\| `(\w+)` \| (\d+|none) \| [^|]* \| ([^|]*) \|", README.read_text(encoding="utf-8"), re.MULTILINE
    )
    told = {name: (priority, precisions.split(", ")) for name, priority, precisions in rows}
    files = {path.name.removesuffix("_backend.py") for path in (ROOT / "backends" / "engines").glob("*_backend.py")}
    assert told.keys() == files
    for name, (priority, precisions) in told.items():
        backend = registry.get(name)
        assert priority == ("none" if backend.priority is None else str(backend.priority))
        if isinstance(backend, registry.HasPrecisions):
            assert tuple(precisions) == backend.precisions


def test_no_runtime_is_imported_when_backends_are_listed() -> None:
    """Listing and selecting load no runtime."""
    code = (
        "import sys; from backends.catalogue import catalogue; from backends.choosing import registry\n"
        "from backends.running import text_model; registry.available()\n"
        "registry.select(catalogue.resolve('bge-small-en-v1.5-int8'))\n"
        "print([m for m in ('onnxruntime', 'onnx', 'tokenizers', 'huggingface_hub') if m in sys.modules])"
    )
    done = subprocess.run(
        [sys.executable, "-c", code], cwd=ROOT, capture_output=True, text=True, timeout=600, check=True
    )
    assert done.stdout.strip() == "[]"
