"""Rounds of a rank that its core is not asked for, since nothing but positions changes in them (`core.steady`)."""

from __future__ import annotations

from samovar.sim.cost.shape import StepShape
from samovar.sim.live import Live


class Coasting:
    """Counts rounds, and the tokens of everyone who decodes meanwhile, until the core is told."""

    __slots__ = ("_calm", "_context", "_gained", "_mean", "_rows", "_width", "last_s", "rounds")

    def __init__(self, calm: int, rows: list[Live], first: StepShape, mean_tokens: float) -> None:
        """`calm`: rounds at most. `rows`: whom the plans in flight decode, in their order; `first`: what the oldest of
        them does."""
        self.rounds = 0
        self.last_s = 0.0
        """When the last of them was over."""
        self._calm = calm
        self._rows = rows
        self._gained = [0] * len(rows)
        self._context = first.context_tokens
        self._width = first.rows_per_sequence
        self._mean = mean_tokens

    @property
    def is_over(self) -> bool:
        """The core has to be asked for the next round."""
        return self.rounds == self._calm

    @property
    def shape(self) -> StepShape:
        """Of the oldest plan in flight."""
        return StepShape(len(self._rows), self._context, self._width)

    def round(self, now: float) -> None:
        """The oldest plan ended and a new one is made."""
        assert not self.is_over, "more rounds than are steady"
        self.rounds += 1
        self.last_s = now
        if self._width == 1:
            self._context += len(self._rows)
            return
        gained, mean, width = self._gained, self._mean, self._width
        for at, live in enumerate(self._rows):
            count = live.tokens_of_step(mean, width)
            live.output_tokens += count
            gained[at] += count
            self._context += count

    def tokens(self) -> list[tuple[int, ...]]:
        """What each got in all rounds, in the form that the core wants. To be called once, when it is over."""
        for live in self._rows:
            live.last_token_s = self.last_s
        if self._width == 1:
            for live in self._rows:
                live.output_tokens += self.rounds
            return [(live.id,) * self.rounds for live in self._rows]
        return [(live.id,) * count for live, count in zip(self._rows, self._gained, strict=True)]

    @property
    def chunk_tokens(self) -> int:
        """Of each round's plan."""
        return self._width * len(self._rows)
