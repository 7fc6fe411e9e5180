"""Metrics: every figure of the field, bounded series, counters that only rise, and nothing on the hot path."""

from __future__ import annotations

import dataclasses
import sys
from typing import TYPE_CHECKING, Any

import pytest
from lifecycle_fakes import FakeSpec
from prometheus_client import CollectorRegistry, generate_latest

from backends.errors import MissingExtra
from lifecycle import BudgetExhausted, LoadFailed, LoadPolicy, ModelConfig, ModelRef
from lifecycle.metrics import MetricsCollector
from lifecycle.snapshot import Counters

if TYPE_CHECKING:
    from collections.abc import Callable

    from lifecycle_fakes import Bench

    MakeBench = Callable[..., Bench]


class Scraper:
    """A registry with one manager in it."""

    def __init__(self, b: Bench, **options: Any) -> None:
        self.bench = b
        self.registry = CollectorRegistry()
        self.collector = MetricsCollector(b.manager, **options)
        self.registry.register(self.collector)

    def scrape(self) -> dict[tuple[str, tuple[str, ...]], float]:
        """Return all samples by name and label values, but for the times at which they were made."""
        found: dict[tuple[str, tuple[str, ...]], float] = {}
        for family in self.registry.collect():
            for sample in family.samples:
                place = (sample.name, tuple(sample.labels.values()))
                assert place not in found, f"{place} is exported twice"
                found[place] = sample.value
        return {place: value for place, value in found.items() if not place[0].endswith("_created")}

    def settle(self) -> dict[tuple[str, tuple[str, ...]], float]:
        """Close the manager, which delivers all events, and scrape."""
        self.bench.manager.close()
        return self.scrape()


def test_every_figure_is_exported_when_scraped(bench: MakeBench) -> None:
    """Loads by kind, evictions, expirations, refusals, failures, budget, waiters, peak and load seconds are told."""
    b = bench(3)
    scraper = Scraper(b)
    b.add("E", 1, ModelConfig(load_policy=LoadPolicy.EAGER, warm_up=False, pinned=True))
    b.until(lambda state: any(g.is_open for g in state.generations.values()))
    b.add("A", 1, ModelConfig(warm_up=False, ttl_s=5.0))
    b.add("B", 2)
    b.add("C", 3)
    b.loader.faults["B", "load"].append(ValueError("broken"))
    with b.lease("A"), b.lease("A"):
        found = scraper.scrape()
        assert found["lifecycle_budget_limit_bytes", ()] == 3
        assert found["lifecycle_budget_used_bytes", ()] == 2
        assert found["lifecycle_backend_bytes", ("fake",)] == 2
        assert found["lifecycle_models", ("registered",)] == 2
        assert found["lifecycle_model_references", ("t", "A", "fake")] == 2
        assert found["lifecycle_peak_references", ()] == 2
        assert found["lifecycle_eager_missing", ()] == 0
    with pytest.raises(BudgetExhausted):
        b.use("C")
    with pytest.raises(LoadFailed):
        b.use("B")
    b.pass_time(5.0)
    b.use("A")
    b.pass_time(5.0)
    b.use("B")
    found = scraper.settle()
    assert found["lifecycle_loads_total", ("eager",)] == 1
    assert found["lifecycle_loads_total", ("lazy",)] == 3
    assert found["lifecycle_budget_exhausted_total", ()] == 1
    assert found["lifecycle_load_failures_total", ()] == 1
    assert found["lifecycle_model_load_failures_total", ("t", "B", "fake")] == 1
    assert found["lifecycle_evictions_total", ()] == found["lifecycle_model_evictions_total", ("t", "A", "fake")] == 1
    assert found["lifecycle_expirations_total", ()] == 1
    assert found["lifecycle_model_expirations_total", ("t", "A", "fake")] == 1
    assert found["lifecycle_model_hits_total", ("t", "A", "fake")] == 1
    assert found["lifecycle_load_seconds_count", ("fake", "lazy")] == 3
    assert found["lifecycle_load_seconds_bucket", ("fake", "eager", "+Inf")] == 1
    for field in dataclasses.fields(Counters):
        assert any(field.name.split("_")[-1] in name for name, _ in found), f"{field.name} is not exported"


def test_load_seconds_are_the_managers_when_a_load_is_slow(bench: MakeBench) -> None:
    """The histogram holds the seconds from the start of the load to the end of the warm-up, by the manager's clock."""
    b = bench(1)
    scraper = Scraper(b)
    b.add("A", 1, ModelConfig())
    gates = b.loader.hold("A"), b.loader.hold("A", "warm_up")
    caller = b.later("A")
    for waited, gate in enumerate(gates, start=1):
        gate.reached.wait()
        b.clock.now += 1.0
        assert scraper.scrape()["lifecycle_longest_wait_seconds", ()] == waited
        gate.opened.set()
    caller.result()
    found = scraper.settle()
    assert found["lifecycle_load_seconds_sum", ("fake", "lazy")] == 2.0
    assert found["lifecycle_load_seconds_bucket", ("fake", "lazy", "1.0")] == 0
    assert found["lifecycle_load_seconds_bucket", ("fake", "lazy", "2.5")] == 1


def test_series_are_bounded_and_only_rise_when_models_come_to_the_top_and_go(bench: MakeBench) -> None:
    """Two series and `other` for six models: never more, none of them falls, and their sum is right."""
    b = bench(3)
    scraper = Scraper(b, most_models=2)
    last: dict[tuple[str, tuple[str, ...]], float] = {}
    for name in "ABCDEF":
        b.add(name)
    for round_, name in enumerate("ABCDEFABCDEFFFAA", start=1):
        b.use(name)
        found = scraper.scrape()
        series = {place: value for place, value in found.items() if place[0] == "lifecycle_model_loads_total"}
        assert len(series) == 3
        assert ("lifecycle_model_loads_total", ("other", "other", "other")) in series
        for place, value in series.items():
            assert value >= last.get(place, 0.0)
        last |= series
        counters = b.manager.snapshot().counters
        assert sum(last.values()) == counters.lazy_loads <= round_
        charged = [value for place, value in found.items() if place[0] == "lifecycle_model_charged_bytes"]
        assert sum(charged) == b.state.charged_nbytes


def test_tenants_are_bounded_when_there_are_many(bench: MakeBench) -> None:
    """The tenants charged most are told by name, the rest as one, and the sum is the ledger."""
    b = bench(10)
    scraper = Scraper(b, most_models=2)
    for nbytes, tenant in enumerate("WXYZ", start=1):
        ref = ModelRef(tenant, "m")
        b.manager.register(ref, FakeSpec(tenant, nbytes, nbytes), b.loader, ModelConfig(warm_up=False))
        with b.manager.lease(ref):
            pass
    found = {place[1][0]: value for place, value in scraper.scrape().items() if place[0] == "lifecycle_tenant_bytes"}
    assert found == {"Z": 4, "Y": 3, "other": 3}


def test_shared_instance_is_counted_once_when_two_tenants_use_it(bench: MakeBench) -> None:
    """Refs with one key are one series, under the first ref's tenant and name."""
    b = bench(1)
    scraper = Scraper(b)
    b.add("A", digest="same")
    b.add("B", digest="same")
    with b.manager.lease(ModelRef("t", "A")), b.manager.lease(ModelRef("t", "B")):
        found = scraper.scrape()
    assert found["lifecycle_model_references", ("t", "A", "fake")] == 2
    assert ("lifecycle_model_references", ("t", "B", "fake")) not in found


def test_series_go_on_when_a_model_is_replaced(bench: MakeBench) -> None:
    """A name's series goes on with its new instance; of the old one nothing is kept, leaving or gone."""
    b = bench(2)
    scraper = Scraper(b)
    ref = b.add("A")
    with b.lease("A"):
        assert scraper.scrape()["lifecycle_model_loads_total", ("t", "A", "fake")] == 1
        b.manager.replace(ref, FakeSpec("A2", 1, 1))
        found = scraper.scrape()
        assert found["lifecycle_model_loads_total", ("t", "A", "fake")] == 2
        assert found["lifecycle_model_references", ("t", "A", "fake")] == 0
        assert found["lifecycle_model_references", ("other", "other", "other")] == 1
    b.until(lambda state: len(state.models) == 1)
    found = scraper.scrape()
    assert found["lifecycle_model_loads_total", ("t", "A", "fake")] == 2
    assert ("lifecycle_model_references", ("other", "other", "other")) not in found
    assert {key.digest for key, _ in scraper.collector._seen} == {"A2"}


def test_counts_go_to_other_when_their_model_was_replaced_before_the_scrape(bench: MakeBench) -> None:
    """What happened to an instance that is gone by the scrape is counted under `other`, not lost."""
    b = bench(1)
    scraper = Scraper(b)
    ref = b.add("A", config=ModelConfig(warm_up=False, ttl_s=5.0))
    b.use("A")
    b.pass_time(5.0)
    b.until(lambda state: not state.generations)
    b.manager.replace(ref, FakeSpec("A2", 1, 1))
    found = scraper.settle()
    assert found["lifecycle_expirations_total", ()] == 1
    other = ("other", "other", "other")
    own = ("t", "A", "fake")
    assert found["lifecycle_model_expirations_total", own] == 0
    assert scraper.collector._totals[other, "expirations"] == 1


def test_text_is_valid_when_it_is_written_for_prometheus(bench: MakeBench) -> None:
    """The client's own exposition takes all of it: names, help and labels, however odd a model's name is."""
    b = bench(1)
    b.add('A"\n\\')
    scraper = Scraper(b)
    text = generate_latest(scraper.registry).decode()
    assert 'lifecycle_model_loads_total{backend="fake",model="A\\"\\n\\\\",tenant="t"} 0.0' in text
    assert "# HELP lifecycle_evictions_total Evictions since the manager was made.\n" in text


def test_missing_package_is_named_when_metrics_are_asked_for(bench: MakeBench, monkeypatch: pytest.MonkeyPatch) -> None:
    """Without prometheus-client the error says what to install; importing the module needs nothing."""
    monkeypatch.setitem(sys.modules, "prometheus_client", None)
    b = bench(1)
    with pytest.raises(MissingExtra, match=r"pip install 'vectorsearch\[metrics\]'"):
        MetricsCollector(b.manager)
