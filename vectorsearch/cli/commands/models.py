"""`vectorsearch models`: list, fetch, show, measure and export models."""

from __future__ import annotations

from dataclasses import asdict
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any, cast, get_args

import typer
from rich.table import Table
from rich.text import Text

from backends.catalogue import catalogue
from backends.catalogue import export as exports
from backends.choosing import registry
from lifecycle.measuring import profile as profiles
from vectorsearch.cli import output
from vectorsearch.cli.commands import calibrate, features, registered
from vectorsearch.cli.opening import BackendName, ModelName, download_meter, fetch_models, one_of

if TYPE_CHECKING:
    from backends.base import ModelSpec

app = typer.Typer(no_args_is_help=True, help="List, fetch, show, measure, export, fit and register models.")


@app.command("list")
def list_models(*, as_json: output.Json = False) -> None:
    """List the models that can be named; a folder in Hugging Face layout can be used as well."""
    models = [_facts(catalogue.resolve(name)) for name in catalogue.names()]
    if as_json:
        output.print_json({"models": models})
        return
    table = Table(box=None, pad_edge=False, padding=(0, 2, 0, 0))
    for heading in ("name", "task", "size", "licence", "cached"):
        table.add_column(heading, justify="right" if heading == "size" else "left", no_wrap=heading != "licence")
    for model in models:
        cached = Text("yes", style="green") if model["cached"] else Text("no", style="dim")
        size = output.format_mib(model["weights_nbytes"])
        table.add_row(Text(model["name"], style="bold"), model["task"], size, model["licence"], cached)
    output.out.print(table)


@app.command()
def pull(
    names: Annotated[
        list[str], typer.Argument(help="Names of the catalogue, or hub names (org/name).", metavar="NAME…")
    ],
    *,
    as_json: output.Json = False,
) -> None:
    """Fetch models into the cache and check their digests; what is there is only checked."""
    specs = []
    for name in names:
        with download_meter(name) as progress:
            specs.append(catalogue.pull(name, progress))
        if not as_json:
            output.out.print(Text.assemble((specs[-1].name, "bold"), f"  {specs[-1].folder}"), soft_wrap=True)
    if as_json:
        output.print_json({"models": [_facts(spec) for spec in specs]})


@app.command()
def show(
    name: ModelName,
    *,
    accept_key: registered.AcceptKeys = None,
    as_json: output.Json = False,
) -> None:
    """Show all that is known of a model, its profiles on this machine included, without fetching or loading it."""
    spec = catalogue.resolve(name, accept_keys=accept_key or ())
    backends = dict.fromkeys(each for name in registry.available() for each in (name, *registry.variants(name)))
    measured = [found for backend in backends if (found := profiles.read(spec, backend))]
    facts = _facts(spec) | {"profiles": {found.backend: _figures(found) for found in measured}}
    if as_json:
        output.print_json(facts)
        return
    output.print_facts(facts)


@app.command()
def profile(
    name: ModelName,
    *,
    backend: BackendName = None,
    as_json: output.Json = False,
) -> None:
    """Measure what a model takes here, in a process of its own: memory, load seconds, milliseconds of its answers.

    The figures are kept, and replace the backend's estimate when room is reserved for the model.
    """
    spec = catalogue.resolve(name)
    chosen = registry.select(spec, backend=backend).name
    fetch_models([spec])
    found = profiles.measure(spec, chosen, progress=lambda step: output.print_note(f"{spec.name} on {chosen}: {step}"))
    facts = {"model": found.model, "backend": found.backend, **_figures(found)}
    if as_json:
        output.print_json(facts)
        return
    output.print_facts(facts)


@app.command()
def export(
    name: ModelName,
    *,
    out: Annotated[
        Path | None, typer.Option("--out", help="Folder to write; by default NAME-FORM here.", metavar="DIR")
    ] = None,
    to: Annotated[
        str | None,
        typer.Option(
            "--to", help="Form to write; by default the one that the model lacks.", metavar="onnx|safetensors"
        ),
    ] = None,
    as_json: output.Json = False,
) -> None:
    """Write a model in its other form, into a folder that can be named like a model: ONNX, or safetensors.

    Safetensors become a portable ONNX graph, which every backend serves. An ONNX graph, int8 ones too, becomes float32
    weights, which PyTorch can serve and train. The folder is there only if both forms were compared and agree.
    """
    asked = cast("exports.Form", one_of(get_args(exports.Form), to, option="--to")) if to else None
    spec = catalogue.resolve(name)
    form = asked or exports.other_form(spec)
    fetch_models([spec])
    folder = out or Path(f"{spec.name.replace('/', '-')}-{form}")
    made = exports.export(spec, folder, form=form, progress=lambda step: output.print_note(f"{spec.name}: {step}"))
    if made.unsupported:
        output.print_warning(f"only ONNX Runtime can serve it: others lack {', '.join(made.unsupported)}")
    facts = {"model": spec.name, "form": form, "folder": str(made.spec.folder), "max_difference": made.max_difference}
    facts |= {"unsupported": list(made.unsupported), "digest": made.spec.digest}
    if as_json:
        output.print_json(facts)
        return
    output.print_facts(facts)


app.command("calibrate", help=output.reflow(calibrate.HELP))(calibrate.calibrate)
app.command("fit-features", help=output.reflow(features.HELP))(features.fit)
app.command("register", help=output.reflow(registered.HELP))(registered.register)
app.command("unregister")(registered.unregister)
app.command("registered")(registered.registered)


def _figures(found: profiles.Profile) -> dict[str, Any]:
    """Return what a profile measured, as plain values; `reserved_nbytes` is what it will be charged."""
    times = ("load_s", "first_ms", "query_ms", "bulk_ms", "tokens_per_s")
    rounded = {name: round(getattr(found, name), 3) for name in times}
    facts = asdict(found) | rounded | {"reserved_nbytes": found.nbytes}
    return {name: value for name, value in facts.items() if name not in {"model", "backend", "digest"}}


def _facts(spec: ModelSpec) -> dict[str, Any]:
    """Return a model's spec, and its source and licence if the catalogue has it, as plain values."""
    facts = spec.plain()
    if spec.name in catalogue.names() and spec == catalogue.resolve(spec.name):
        entry = catalogue.entry(spec.name)
        facts |= {"origin": entry.origin, "licence": entry.licence, "note": entry.note}
        facts |= {"wheels": [wheel.requirement for wheel in entry.wheels], "cached": catalogue.is_cached(spec.name)}
    return facts
