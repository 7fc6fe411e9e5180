"""What a training is given and gives: lists of texts with targets, options, progress. Frozen values."""

from __future__ import annotations

from dataclasses import dataclass

from backends.errors import InvalidInput


@dataclass(frozen=True, slots=True)
class ScoredList:
    """A query, texts, and for each text the logit that it should get: above 0 for one that answers the query.

    Raises:
        InvalidInput: there are no texts, or not a target for each.
    """

    query: str
    texts: tuple[str, ...]
    targets: tuple[float, ...]

    def __post_init__(self) -> None:
        if not self.texts or len(self.texts) != len(self.targets):
            raise InvalidInput(f"query {self.query!r} has {len(self.texts)} texts and {len(self.targets)} targets")


@dataclass(frozen=True, slots=True)
class TrainingPlan:
    """How a cross-encoder is trained; the defaults are what was measured to serve best (README).

    `minutes` are for everything, kept to within a step, None for as long as it takes; where they end the training, the
    result depends on the machine's speed. `check_share` of all steps lie between two looks at the validation lists; it
    ends after `patience` looks without a better one. The embeddings and the lowest `frozen_layers` stay as they are.

    Raises:
        InvalidInput: a value is out of its range.
    """

    epochs: float = 2.0
    minutes: float | None = None
    learning_rate: float = 1.5e-4
    lists_per_step: int = 8
    max_length: int = 256
    frozen_layers: int = 6
    warmup_share: float = 0.1
    check_share: float = 0.25
    patience: int = 2
    seed: int = 0

    def __post_init__(self) -> None:
        for name, low in (("epochs", 0.0), ("learning_rate", 0.0), ("lists_per_step", 0), ("max_length", 0)):
            if not getattr(self, name) > low:
                raise InvalidInput(f"{name} is {getattr(self, name)}: it must be above {low:g}")
        if self.minutes is not None and not self.minutes > 0:
            raise InvalidInput(f"minutes is {self.minutes}: it must be above 0")
        if self.frozen_layers < 0 or self.seed < 0:
            raise InvalidInput(f"frozen_layers {self.frozen_layers} and seed {self.seed} must not be negative")


@dataclass(frozen=True, slots=True)
class TrainingStep:
    """How far a training is: steps done and planned, seconds, and nDCG@10 at the last look at the validation lists."""

    step: int
    steps: int
    seconds: float
    validation: float | None


@dataclass(frozen=True, slots=True)
class Fit:
    """A training that ended: steps run and planned, seconds, nDCG@10 at each look, and whether `minutes` ended it."""

    steps: int
    planned: int
    seconds: float
    validation: tuple[float, ...]
    timed_out: bool
