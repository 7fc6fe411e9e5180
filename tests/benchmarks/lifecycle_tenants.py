"""One noisy tenant against nine quiet ones: how often each finds its model loaded, with and without quotas.

    python tests/benchmarks/lifecycle_tenants.py [--json] [--quick] [--plot FILE]

The noisy tenant asks for 100 models at random, the quiet ones for two each; 7 of 8 requests are the noisy one's. All
118 models are of one size, and 40 fit. The same requests go to four managers: without quotas; `quota` bounds the noisy
tenant to the room that the quiet ones' models leave; `guarantee` makes each quiet tenant sure of its two; `both`.
"""

from __future__ import annotations

from collections import Counter
from typing import Any

import numpy as np
from lifecycle_measuring import FakeLoader, finish, parse_options

from lifecycle import InstanceKey, LifecycleError, ModelManager, ModelRef

NOISY = [ModelRef("noisy", str(number)) for number in range(100)]
QUIET = [ModelRef(f"quiet{tenant}", str(number)) for tenant in range(9) for number in range(2)]
ROOM = 40
QUIET_SHARE = 1 / 8
SETTINGS = {"none": (False, False), "quota": (True, False), "guarantee": (False, True), "both": (True, True)}


def serve(requests: list[ModelRef], *, quota: bool, guarantee: bool) -> Counter[str]:
    """Lease each model in turn, and count hits, requests, loads and what went wrong."""
    counts: Counter[str] = Counter()
    with ModelManager(ROOM) as manager:
        for ref in (*NOISY, *QUIET):
            manager.register(ref, 1, FakeLoader(), key=InstanceKey(str(ref), "fake"))
        if quota:
            manager.set_tenant("noisy", quota_nbytes=ROOM - len(QUIET))
        if guarantee:
            for tenant in {ref.tenant for ref in QUIET}:
                manager.set_tenant(tenant, guaranteed_nbytes=2)
        for number, ref in enumerate(requests):
            group = "noisy" if ref.tenant == "noisy" else "quiet"
            lease = manager.lease(ref)
            try:
                with lease:
                    counts[f"{group} hits"] += not lease.cold
            except LifecycleError:
                counts["errors"] += 1
            counts[f"{group} requests"] += 1
            if number % 100 == 0:
                counts["overruns"] += manager.snapshot().charged_nbytes > ROOM
        counts["loads"] = manager.snapshot().counters.lazy_loads
    return counts


def measure(length: int) -> tuple[dict[str, Any], dict[str, int]]:
    """Return hit ratios by setting, and what must be 0."""
    rng = np.random.default_rng(9)
    is_quiet = rng.random(length) < QUIET_SHARE
    requests = [(QUIET if quiet else NOISY)[rng.integers(len(QUIET if quiet else NOISY))] for quiet in is_quiet]
    figures, wrong = {}, Counter({"errors": 0, "overruns": 0})
    for name, (quota, guarantee) in SETTINGS.items():
        counts = serve(requests, quota=quota, guarantee=guarantee)
        ratios = {g: round(counts[f"{g} hits"] / counts[f"{g} requests"], 4) for g in ("quiet", "noisy")}
        figures[name] = {f"{group}_hit_ratio": ratio for group, ratio in ratios.items()} | {"loads": counts["loads"]}
        wrong.update({kind: counts[kind] for kind in ("errors", "overruns")})
    return figures, dict(wrong)


def draw(plt: Any, figures: dict[str, Any]) -> None:
    """Plot both groups' hit ratios for each setting."""
    plt.figure(figsize=(6, 3.5))
    for offset, group in ((-0.2, "quiet"), (0.2, "noisy")):
        heights = [row[f"{group}_hit_ratio"] for row in figures.values()]
        plt.bar(np.arange(len(figures)) + offset, heights, 0.4, label=group)
    plt.xticks(range(len(figures)), list(figures))
    plt.ylabel("hit ratio")
    plt.legend()


def main() -> None:
    """Print the figures."""
    options = parse_options(__doc__)
    length = 600 if options.quick else 4_000
    figures, wrong = measure(length)
    finish({"requests": length} | figures, options, wrong=wrong, draw=lambda plt: draw(plt, figures))


if __name__ == "__main__":
    main()
