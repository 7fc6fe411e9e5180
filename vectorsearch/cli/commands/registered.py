"""`vectorsearch models register`, `unregister` and `registered`: the models of a database's own, or of a tenant's."""

from __future__ import annotations

from dataclasses import asdict
from typing import TYPE_CHECKING, Annotated, Any

import typer
from rich.table import Table
from rich.text import Text

from backends.catalogue import catalogue
from backends.errors import UnknownModel
from lifecycle import LoadPolicy
from vectorsearch.cli import output
from vectorsearch.cli.opening import DatabaseFolder, TenantName, fetch_models, one_of, open_existing
from vectorsearch.models.registration import TASKS

if TYPE_CHECKING:
    from vectorsearch.models.registration import RegisteredModel

HELP = """Register a model under a name of the database's own, or of a tenant's.

Its files are copied into the database, and it is loaded and tried before the name counts; on any error all stays as it
was. A name that means a model already is exchanged. Whoever searches names it with [bold]--rerank NAME[/]; an embedder
is taken into use by [bold]reindex --embed NAME[/].

[bold]Example[/]

  vectorsearch models register own ./my-model --db my.db --task cross-encoder
  vectorsearch search "tax law" --db my.db --rerank own"""

AcceptKeys = Annotated[
    list[str] | None,
    typer.Option(
        "--accept-key",
        help="Vouch for a key of its configuration that isn't understood; may be given again.",
        metavar="KEY",
        show_default=False,
    ),
]
Name = Annotated[str, typer.Argument(help="Letters, digits and . _ -, up to 100.", metavar="NAME", show_default=False)]


def register(
    name: Name,
    source: Annotated[
        str,
        typer.Argument(
            help="A folder in Hugging Face layout, or a name of the catalogue.", metavar="PATH", show_default=False
        ),
    ],
    *,
    db: DatabaseFolder,
    task: Annotated[
        str, typer.Option(help="What it is for: cross-encoder or embedder.", metavar="NAME", show_default=False)
    ],
    tenant: TenantName = None,
    ttl: Annotated[
        float | None, typer.Option(help="Unload it when it was idle for so long; by default never.", min=0, metavar="S")
    ] = None,
    eviction_rank: Annotated[int, typer.Option(help="The higher number leaves memory first.", metavar="N")] = 0,
    priority: Annotated[int | None, typer.Option(hidden=True)] = None,
    load_policy: Annotated[
        str, typer.Option(help="lazy: load it on its first use; eager: when the database is opened.", metavar="NAME")
    ] = LoadPolicy.LAZY,
    pinned: Annotated[bool, typer.Option("--pinned", help="Never unload it for another model.")] = False,
    no_warm_up: Annotated[bool, typer.Option("--no-warm-up", help="Don't run it once before its first use.")] = False,
    min_residency: Annotated[
        float, typer.Option(help="Unload it for another only after so long, if that can be.", min=0, metavar="S")
    ] = 0.0,
    no_compare: Annotated[
        bool, typer.Option("--no-compare", help="Don't compare its answers with sentence-transformers'.")
    ] = False,
    accept_key: AcceptKeys = None,
    as_json: output.Json = False,
) -> None:
    """Copy, try and register."""
    if priority is not None:
        output.print_warning("--priority is now --eviction-rank: the old name goes with the next release")
    one_of(list(TASKS), task, option="--task")
    one_of(list(LoadPolicy), load_policy, option="--load-policy")
    with open_existing(db, tenant=tenant, writing=True) as database:
        known = {model.name for model in database.registered_models()}
        fetch_models([catalogue.resolve(source, accept_keys=accept_key or ())])
        output.print_note(f"copying, loading and trying {source}")
        model = database.register_model(
            name,
            source,
            task,
            ttl_s=ttl,
            eviction_rank=eviction_rank if priority is None else priority,
            load_policy=load_policy,
            warm_up=not no_warm_up,
            pinned=pinned,
            min_residency_s=min_residency,
            compare=not no_compare,
            accept_keys=accept_key or (),
            progress=lambda step: output.print_note(f"trying {name} in a process of its own: {step}"),
        )
    if as_json:
        output.print_json({**_facts(model), "replaced": name in known})
        return
    _print_facts(model)
    if name in known:
        output.print_note(f"{name} meant another model, or the same with other options, until now")


def unregister(name: Name, *, db: DatabaseFolder, tenant: TenantName = None, as_json: output.Json = False) -> None:
    """Forget a registered model; its memory and, if nobody else uses them, its files are freed."""
    with open_existing(db, tenant=tenant, writing=True) as database:
        database.unregister_model(name)
    if as_json:
        output.print_json({"db": str(db), "tenant": tenant or "", "unregistered": name})
        return
    output.out.print(Text(f"model {name} is unregistered"))


def registered(
    name: Annotated[
        str | None, typer.Argument(help="Show all that is known of this one.", metavar="[NAME]", show_default=False)
    ] = None,
    *,
    db: DatabaseFolder,
    tenant: TenantName = None,
    as_json: output.Json = False,
) -> None:
    """List the registered models of a database and its tenants, or of one tenant; or show one model."""
    with open_existing(db, tenant=tenant) as database:
        models = database.registered_models(all_tenants=tenant is None)
    if name is not None:
        model = _only_one(models, name, tenant)
        output.print_json(_facts(model)) if as_json else _print_facts(model)
        return
    if as_json:
        output.print_json({"db": str(db), "models": [_facts(model) for model in models]})
        return
    if not models:
        output.print_note(f"no models are registered: see `vectorsearch models register --help` (db {db})")
        return
    table = Table(box=None, pad_edge=False, padding=(0, 2, 0, 0))
    for heading in ("tenant", "model", "task", "source", "kept"):
        table.add_column(heading, overflow="fold")
    for model in models:
        owner = Text(model.tenant) if model.tenant else Text("-", style="dim")
        table.add_row(owner, Text(model.name, style="bold"), model.task, Text(model.source), _kept(model))
    output.out.print(table)


def _only_one(models: tuple[RegisteredModel, ...], name: str, tenant: str | None) -> RegisteredModel:
    """Return the model of this name: the tenant's, else the database's own, else the only one that there is.

    Raises:
        UnknownModel: there is none, or it can't be told which.
    """
    found = [model for model in models if model.name == name]
    own = [model for model in found if model.tenant == (tenant or "")]
    if own or len(found) == 1:
        return (own or found)[0]
    if found:
        owners = ", ".join(model.tenant for model in found)
        raise UnknownModel(f"{name!r} is a model of {owners}: say which with --tenant NAME")
    known = ", ".join(dict.fromkeys(model.name for model in models)) or "none"
    raise UnknownModel(f"no model {name!r} is registered: there are {known}")


def _facts(model: RegisteredModel) -> dict[str, Any]:
    config = {**asdict(model.config), "load_policy": str(model.config.load_policy)}
    return {**asdict(model), "config": {**config, "priority": config["eviction_rank"]}}  # its old name, for one release


def _print_facts(model: RegisteredModel) -> None:
    facts = _facts(model)
    config = facts.pop("config")
    output.print_facts({**facts, "tenant": model.tenant or None, **config})


def _kept(model: RegisteredModel) -> str:
    """Return how long it stays in memory."""
    config = model.config
    if config.pinned:
        return "pinned"
    return "until evicted" if config.ttl_s is None else f"{config.ttl_s:g} s idle"
