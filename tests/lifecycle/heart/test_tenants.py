"""Tenants: what each may take, what each is sure of, and who is charged for what they share."""

from __future__ import annotations

from typing import TYPE_CHECKING

import pytest
from lifecycle_fakes import COLD, FakeSpec

from backends.errors import InvalidInput
from lifecycle import BudgetExhausted, ModelRef
from lifecycle.errors import QuotaExhausted
from lifecycle.events import Event, Overpromised

if TYPE_CHECKING:
    from collections.abc import Callable

    from lifecycle_fakes import Bench

    MakeBench = Callable[..., Bench]


def add(b: Bench, tenant: str, name: str, nbytes: int = 1, digest: str = "") -> None:
    """Register a tenant's model."""
    spec = FakeSpec(digest or f"{tenant}{name}", nbytes, nbytes)
    b.manager.register(ModelRef(tenant, name), spec, b.loader, COLD)


def use(b: Bench, tenant: str, name: str, timeout_s: float = 30.0) -> None:
    """Take and return a lease, a second later than the one before."""
    b.clock.now += 1.0
    with b.manager.lease(ModelRef(tenant, name), timeout_s):
        pass


def resident(b: Bench) -> set[str]:
    """Return the digests of what is loaded, once nothing moves."""
    b.until(lambda state: all(g.job is None for g in state.generations.values()))
    return {g.key.digest for g in b.state.generations.values()}


def test_other_models_stay_when_a_tenant_with_a_quota_loads_a_hundred(bench: MakeBench) -> None:
    """L51: a tenant that loads 100 models within its quota of 3 evicts its own, never the one of another."""
    b = bench(4)
    add(b, "quiet", "A")
    use(b, "quiet", "A")
    b.manager.set_tenant("noisy", quota_nbytes=3)
    for number in range(100):
        add(b, "noisy", str(number))
        use(b, "noisy", str(number))
    assert resident(b) == {"quietA", "noisy97", "noisy98", "noisy99"}
    assert b.loads("quietA") == 1
    assert b.manager.snapshot().by_tenant == {"quiet": 1, "noisy": 3}


def test_own_models_go_last_when_all_are_within_the_guarantee(bench: MakeBench) -> None:
    """L51: a tenant within its guarantee that loads a second model keeps its first, though that is the oldest."""
    b = bench(3)
    b.manager.set_tenant("quiet", guaranteed_nbytes=2)
    for tenant, name in (("quiet", "A"), ("noisy", "B"), ("noisy", "C"), ("quiet", "D")):
        add(b, tenant, name)
        use(b, tenant, name)
    assert resident(b) == {"quietA", "noisyC", "quietD"}
    assert b.loads("quietA") == 1


def test_own_model_goes_when_it_is_the_only_one_that_can(bench: MakeBench) -> None:
    """A guarantee larger than the budget shields a tenant's models from its own loads only while others can go."""
    b = bench(1)
    b.manager.set_tenant("quiet", guaranteed_nbytes=2)
    for name in "AD":
        add(b, "quiet", name)
        use(b, "quiet", name)
    assert resident(b) == {"quietD"}


def test_guaranteed_model_stays_when_others_need_the_room(bench: MakeBench) -> None:
    """L51: a tenant within its guarantee loses nothing to others, and may evict their least recently used."""
    b = bench(3)
    b.manager.set_tenant("quiet", guaranteed_nbytes=1)
    add(b, "quiet", "A")
    use(b, "quiet", "A")
    for number in range(100):
        add(b, "noisy", str(number))
        use(b, "noisy", str(number))
    assert resident(b) == {"quietA", "noisy98", "noisy99"}
    add(b, "noisy", "large", 3)
    with pytest.raises(BudgetExhausted):
        use(b, "noisy", "large")
    assert "quietA" in resident(b)


def test_most_valuable_models_are_sure_when_a_tenant_is_over_its_guarantee(bench: MakeBench) -> None:
    """Of three models with a guarantee for two, the least recently used may go to another tenant, the others not."""
    b = bench(3)
    b.manager.set_tenant("quiet", guaranteed_nbytes=2)
    for name in "ABC":
        add(b, "quiet", name)
        use(b, "quiet", name)
    use(b, "quiet", "A")
    add(b, "other", "X")
    add(b, "other", "Y", 2)
    use(b, "other", "X")
    assert resident(b) == {"quietA", "quietC", "otherX"}
    with pytest.raises(BudgetExhausted):
        use(b, "other", "Y")


def test_own_models_leave_first_when_a_tenant_is_over_its_share(bench: MakeBench) -> None:
    """A tenant over its guarantee gives its own up before that of one without any, though that is older."""
    b = bench(3)
    b.manager.set_tenant("t", guaranteed_nbytes=1)
    add(b, "other", "X")
    use(b, "other", "X")
    for name in "ABC":
        add(b, "t", name)
        use(b, "t", name)
    assert resident(b) == {"otherX", "tB", "tC"}


def test_refusal_names_the_quota_when_that_has_no_room(bench: MakeBench) -> None:
    """A model larger than the quota is refused at once, and one without room in it if the caller has no patience."""
    b = bench(10)
    b.manager.set_tenant("t", quota_nbytes=2)
    add(b, "t", "A", 2)
    add(b, "t", "B", 3)
    with pytest.raises(QuotaExhausted, match=r"needs 3 B of the quota of tenant 't', which is 2 B") as caught:
        use(b, "t", "B")
    assert caught.value.tenant == "t"
    add(b, "t", "C", 1)
    with b.manager.lease(ModelRef("t", "A")):
        with pytest.raises(QuotaExhausted, match="2 B charged"):
            use(b, "t", "C", 0.0)
        waiter = b.manager.prefetch([ModelRef("t", "C")])
        assert waiter is None
        assert resident(b) == {"tA"}
    use(b, "t", "C")
    assert resident(b) == {"tC"}


def test_shared_instance_is_charged_in_parts_when_tenants_share_it(bench: MakeBench) -> None:
    """Each of two tenants is charged half of what they share, whoever loaded it; the ledger counts it once."""
    b = bench(10)
    add(b, "t", "W", 3, digest="W")
    add(b, "u", "W", 3, digest="W")
    add(b, "u", "A")
    use(b, "t", "W")
    use(b, "u", "A")
    told = b.manager.snapshot()
    assert told.by_tenant == {"t": 2, "u": 3}
    assert told.charged_nbytes == 4
    b.manager.set_tenant("u", quota_nbytes=2)
    assert resident(b) == {"W"}
    use(b, "u", "A")
    assert resident(b) == {"uA"}
    use(b, "t", "W")
    assert resident(b) == {"uA", "W"}


def test_idle_models_leave_when_a_quota_is_lowered(bench: MakeBench) -> None:
    """A quota below what is charged evicts idle models at once and leased ones at their last release."""
    b = bench(10)
    for name in "ABC":
        add(b, "t", name)
        use(b, "t", name)
    with b.manager.lease(ModelRef("t", "A")):
        b.manager.set_tenant("t", quota_nbytes=0)
        assert resident(b) == {"tA"}
    b.until(lambda state: not state.shrinking)
    assert resident(b) == set()


def test_idle_models_leave_when_a_tenant_joins_what_another_has_loaded(bench: MakeBench) -> None:
    """Its part counts at once; what it joined stays, since a tenant uses it that is within its own quota."""
    b = bench(10)
    b.manager.set_tenant("u", quota_nbytes=3)
    add(b, "t", "W", 4, digest="W")
    use(b, "t", "W")
    for name in "AB":
        add(b, "u", name)
        use(b, "u", name)
    add(b, "u", "W", 4, digest="W")
    assert resident(b) == {"W", "uB"}
    assert b.manager.snapshot().by_tenant == {"t": 2, "u": 3}
    b.manager.pin(ModelRef("u", "B"))
    add(b, "u", "V", 4, digest="V")
    add(b, "t", "V", 4, digest="V")
    use(b, "t", "V")
    use(b, "u", "V")
    assert resident(b) == {"W", "V", "uB"}


def test_a_model_leaves_when_nobody_else_pays_a_part_of_it(bench: MakeBench) -> None:
    """A tenant that is alone with it now is charged for all of it, and its quota has no room for that."""
    b = bench(10)
    b.manager.set_tenant("u", quota_nbytes=3)
    for tenant in "tu":
        add(b, tenant, "W", 4, digest="W")
    use(b, "u", "W")
    assert resident(b) == {"W"}
    b.manager.unregister(ModelRef("t", "W"))
    assert resident(b) == set()
    with pytest.raises(QuotaExhausted):
        use(b, "u", "W")


def test_nobody_is_refused_when_the_quota_of_who_shares_has_no_room(bench: MakeBench) -> None:
    """A quota bounds its tenant's own loads: another that uses the same weights loads them, and is told nothing."""
    b = bench(10)
    b.manager.set_tenant("u", quota_nbytes=2)
    add(b, "u", "A", 2)
    b.manager.pin(ModelRef("u", "A"))
    use(b, "u", "A")
    for tenant in "tu":
        add(b, tenant, "W", 2, digest="W")
    with pytest.raises(QuotaExhausted):
        use(b, "u", "W")
    use(b, "t", "W")
    assert resident(b) == {"uA", "W"}


def test_promises_are_told_when_they_are_more_than_the_budget(
    bench: MakeBench, caplog: pytest.LogCaptureFixture
) -> None:
    """L10: guarantees, and pins beside them, that can't all be kept are a warning and an event, once a change."""
    b = bench(4)
    told: list[Event] = []
    b.manager.subscribe(told.append)
    b.manager.set_tenant("t", guaranteed_nbytes=2)
    b.manager.set_tenant("u", guaranteed_nbytes=2)
    add(b, "t", "A", 2)
    b.manager.pin(ModelRef("t", "A"))
    assert not caplog.records, "what a tenant has pinned counts within its guarantee"
    b.manager.set_tenant("u", guaranteed_nbytes=3)
    add(b, "v", "A")
    b.manager.pin(ModelRef("v", "A"))
    b.manager.set_budget(3)
    b.manager.set_budget(6)
    b.manager.close()
    promises = [(event.promised_nbytes, event.budget_nbytes) for event in told if isinstance(event, Overpromised)]
    assert promises == [(5, 4), (6, 4), (6, 3)]
    assert [record.args for record in caplog.records] == [("5 B", "4 B"), ("6 B", "4 B"), ("6 B", "3 B")]


@pytest.mark.parametrize(
    "sizes", [{"quota_nbytes": -1}, {"guaranteed_nbytes": -1}, {"quota_nbytes": 1, "guaranteed_nbytes": 2}]
)
def test_tenant_is_refused_when_its_sizes_make_no_sense(bench: MakeBench, sizes: dict[str, int]) -> None:
    """Negative sizes and a guarantee above the quota are refused."""
    with pytest.raises(InvalidInput):
        bench(1).manager.set_tenant("t", **sizes)
