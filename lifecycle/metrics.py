"""`MetricsCollector`: what a manager does, as Prometheus metrics, through prometheus-client.

Nothing here is touched by a lease: a scrape reads `snapshot()`, and the load histogram is fed by events. Series by
model are bounded: those charged most have their own, all others are one, `other`. A count goes to whichever of the two
its model has at the scrape that first sees it, so that every counter only rises, whoever comes to the top.
"""

from __future__ import annotations

import importlib
import threading
from collections import Counter
from dataclasses import fields
from typing import TYPE_CHECKING, Any, NamedTuple

from backends.errors import MissingExtra
from lifecycle import events
from lifecycle.snapshot import Counters

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping
    from collections.abc import Set as AbstractSet

    from prometheus_client import Metric

    from lifecycle.config import InstanceKey
    from lifecycle.manager import ModelManager
    from lifecycle.snapshot import ManagerSnapshot, ModelStatus

LOAD_BUCKETS_S = (0.05, 0.1, 0.25, 0.5, 1, 2.5, 5, 10, 30, 60, 120)
_NOT_COUNTED = {"lazy_loads", "eager_loads", "peak_references"}  # these are exported under other names
_COUNTED_EVENTS = {
    events.ModelEvicted: "evictions",
    events.ModelExpired: "expirations",
    events.LoadFailure: "load_failures",
    events.FellBack: "fallbacks",
}
_MODEL_COUNTS = ("loads", "hits", *_COUNTED_EVENTS.values())


class Labels(NamedTuple):
    """The labels of a series by model; an instance that several refs share goes by the first."""

    tenant: str
    model: str
    backend: str


OTHER = Labels("other", "other", "other")


class MetricsCollector:
    """Export one manager: `prometheus_client.REGISTRY.register(MetricsCollector(manager))`.

    `most_models` instances, and as many tenants, have series of their own. Evictions, expirations and failures by
    model, and load seconds, count from now on; everything else since the manager was made.

    Raises:
        MissingExtra: prometheus-client is not installed.
    """

    def __init__(self, manager: ModelManager, *, most_models: int = 20) -> None:
        self._client = _require_prometheus()
        self._manager = manager
        self._most_models = most_models
        # Protects the three below, from one scrape and from the hooks' thread; `snapshot` takes no lock under it.
        self._lock = threading.Lock()
        self._heard: Counter[tuple[InstanceKey, str]] = Counter()
        self._seen: Counter[tuple[InstanceKey, str]] = Counter()
        self._totals: Counter[tuple[Labels, str]] = Counter()
        self._load_seconds = self._client.Histogram(
            "lifecycle_load_seconds",
            "Seconds from the start of a load until the model was open for leases, warm-up included.",
            ["backend", "kind"],
            buckets=LOAD_BUCKETS_S,
            registry=None,
        )
        manager.subscribe(self._hear)

    def collect(self) -> Iterator[Metric]:
        """Give all metrics; the registry calls it at each scrape."""
        with self._lock:
            snapshot = self._manager.snapshot()
            shown = self._account(snapshot)
            totals = self._totals.copy()
        yield from self._counters(snapshot.counters)
        yield from self._gauges(snapshot)
        for name in _MODEL_COUNTS:
            family = self._counter(f"model_{name}", f"{_words(name)} by model.", Labels._fields)
            for labels in shown:
                family.add_metric(labels, totals[labels, name])
            yield family
        for name, of in (("charged_bytes", "charged_nbytes"), ("references", "leases")):
            family = self._gauge(f"model_{name}", f"{_words(of)} by model, now.", Labels._fields)
            for labels, models in shown.items():
                family.add_metric(labels, sum(getattr(model, of) for model in models))
            yield family
        yield from self._load_seconds.collect()

    def _hear(self, event: events.Event) -> None:
        if isinstance(event, events.ModelReady):
            self._load_seconds.labels(event.key.backend, "eager" if event.eager else "lazy").observe(event.load_s)
        elif type(event) in _COUNTED_EVENTS:
            with self._lock:
                self._heard[event.key, _COUNTED_EVENTS[type(event)]] += 1

    def _account(self, snapshot: ManagerSnapshot) -> dict[Labels, list[ModelStatus]]:
        """Credit what happened since the last scrape, and return the models that each series stands for now."""
        self._forget_all_but({model.key for model in snapshot.models})
        ranked = sorted(snapshot.models, key=lambda model: (-model.charged_nbytes, not model.refs, model.refs))
        shown: dict[Labels, list[ModelStatus]] = {}
        for rank, model in enumerate(ranked):
            own = rank < self._most_models and model.refs  # one that is being replaced has no name any more
            labels = Labels(*model.refs[0], model.backend) if own else OTHER
            shown.setdefault(labels, []).append(model)
            for name in _MODEL_COUNTS:
                now = getattr(model, name) if name in {"loads", "hits"} else self._heard[model.key, name]
                # The keeper may be between two of the figures that a sum is made of: what falls is not counted twice.
                before = self._seen[model.key, name]
                self._seen[model.key, name] = max(now, before)
                self._totals[labels, name] += max(0, now - before)
        return shown

    def _forget_all_but(self, keys: AbstractSet[InstanceKey]) -> None:
        """Credit what was heard of replaced instances to `other`, and keep nothing of them."""
        for key, name in [place for place in self._heard if place[0] not in keys]:
            self._totals[OTHER, name] += max(0, self._heard.pop((key, name)) - self._seen[key, name])
        for place in [place for place in self._seen if place[0] not in keys]:
            del self._seen[place]

    def _counters(self, counters: Counters) -> Iterator[Metric]:
        loads = self._counter(
            "loads", "Loads that ended well, by who asked: a caller (lazy) or nobody (eager).", ["kind"]
        )
        loads.add_metric(["lazy"], counters.lazy_loads)
        loads.add_metric(["eager"], counters.eager_loads)
        yield loads
        for field in fields(Counters):
            if field.name not in _NOT_COUNTED:
                family = self._counter(field.name, f"{_words(field.name)} since the manager was made.")
                family.add_metric([], getattr(counters, field.name))
                yield family

    def _gauges(self, snapshot: ManagerSnapshot) -> Iterator[Metric]:
        longest = max((waiter.waited_s for waiter in self._manager.waiting()), default=0.0)
        for name, value, words in (
            ("budget_limit_bytes", snapshot.budget_nbytes, "What all models together may be charged."),
            ("budget_used_bytes", snapshot.charged_nbytes, "What they are charged."),
            ("budget_idle_bytes", snapshot.idle_nbytes, "What could be freed at once."),
            ("deficit_bytes", snapshot.deficit_nbytes, "Charged over the budget: a model measured more than reserved."),
            ("quarantined_bytes", snapshot.quarantined_nbytes, "Charged for what could not be unloaded."),
            ("waiters", snapshot.waiters, "Callers waiting for room or for a load."),
            ("longest_wait_seconds", longest, "For how long the one who waits longest has waited."),
            ("peak_references", snapshot.counters.peak_references, "The most leases open on one model at once."),
            ("eager_missing", len(self._manager.ready().missing), "Eager models that are not open for leases."),
        ):
            family = self._gauge(name, words)
            family.add_metric([], value)
            yield family
        for name, nbytes_by_backend, words in (
            ("backend_bytes", snapshot.by_backend, "What the models of a backend are charged."),
            ("residue_bytes", snapshot.residue, "What a backend's runtime has kept of unloaded models."),
        ):
            family = self._gauge(name, words, ["backend"])
            for backend, nbytes in nbytes_by_backend.items():
                family.add_metric([backend], nbytes)
            yield family
        by_tenant = self._gauge(
            "tenant_bytes", "What the models of a tenant are charged, shared ones included.", ["tenant"]
        )
        for tenant, nbytes in self._top(snapshot.by_tenant).items():
            by_tenant.add_metric([tenant], nbytes)
        yield by_tenant
        by_state = self._gauge("models", "Registered models by state.", ["state"])
        for state, count in Counter(model.state for model in snapshot.models).items():
            by_state.add_metric([state], count)
        yield by_state

    def _top(self, nbytes: Mapping[str, int]) -> dict[str, int]:
        """Return those charged most, and all others as one."""
        ranked = sorted(nbytes, key=lambda name: (-nbytes[name], name))
        shown: Counter[str] = Counter()
        for rank, name in enumerate(ranked):
            shown[name if rank < self._most_models else "other"] += nbytes[name]
        return shown

    def _counter(self, name: str, words: str, labels: Any = ()) -> Any:  # noqa: ANN401 - the client's family
        return self._client.core.CounterMetricFamily(f"lifecycle_{name}", words, labels=labels)

    def _gauge(self, name: str, words: str, labels: Any = ()) -> Any:  # noqa: ANN401 - the client's family
        return self._client.core.GaugeMetricFamily(f"lifecycle_{name}", words, labels=labels)


def _words(name: str) -> str:
    return name.replace("_nbytes", " bytes").replace("_", " ").capitalize()


def _require_prometheus() -> Any:  # noqa: ANN401 - the module, which is an extra
    try:
        importlib.import_module("prometheus_client.core")
        return importlib.import_module("prometheus_client")
    except ImportError as exc:
        raise MissingExtra("metrics need prometheus-client: pip install 'vectorsearch[metrics]'") from exc
