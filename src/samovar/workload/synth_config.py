"""What a made-up load shall look like."""

from __future__ import annotations

from dataclasses import dataclass

from samovar.base.errors import ConfigError


@dataclass(frozen=True, slots=True)
class SynthConfig:
    """Defaults are the figures published for real coding agents (AgentX). Medians and P90s are met by the set as a
    whole: turns per session with sub-agents' calls, tokens per call, gaps between a stream's turns. Raises ConfigError
    naming the flag."""

    sessions: int = 200
    seed: int = 0
    turns_median: float = 43
    turns_p90: float = 157
    input_median: float = 142_000
    input_p90: float = 300_000
    output_median: float = 444
    output_p90: float = 900
    gap_median_s: float = 10
    gap_p90_s: float = 120
    subagent_share: float = 0.44
    """Sessions that have sub-agents."""
    subagents_median: float = 4
    """In those."""
    cut_share: float = 0.012
    """Turns whose prompt does not continue the one before."""
    tool_tokens: int = 12_262
    system_tokens: int = 2_772
    block_tokens: int = 64
    decode_tokens_per_s: float = 60
    prefill_tokens_per_s: float = 8_000

    def __post_init__(self) -> None:
        counts = ("sessions", "tool_tokens", "system_tokens", "block_tokens", "seed")
        least = {name: 1 for name in counts} | {"tool_tokens": 0, "system_tokens": 0, "seed": 0}
        for name in counts:
            if getattr(self, name) < least[name]:
                raise ConfigError(f"{_flag(name)} is {getattr(self, name)}; it must be at least {least[name]}")
        for name in ("turns", "input", "output", "gap"):
            suffix = "_s" if name == "gap" else ""
            median, p90 = f"{name}_median{suffix}", f"{name}_p90{suffix}"
            if not 0 < getattr(self, median) <= getattr(self, p90):
                raise ConfigError(
                    f"{_flag(p90)} is {getattr(self, p90):g}; it must be at least {_flag(median)} "
                    f"({getattr(self, median):g}), and that more than 0"
                )
        for name, most in (("turns_p90", 1e5), ("input_p90", 1e8), ("output_p90", 1e7)):
            if getattr(self, name) > most:
                raise ConfigError(f"{_flag(name)} is {getattr(self, name):g}; it must be at most {most:g}")
        for name in ("subagent_share", "cut_share"):
            if not 0 <= getattr(self, name) <= 1:
                raise ConfigError(f"{_flag(name)} is {getattr(self, name):g}; it must be from 0 to 1")
        for name in ("subagents_median", "decode_tokens_per_s", "prefill_tokens_per_s"):
            if not getattr(self, name) > 0:
                raise ConfigError(f"{_flag(name)} is {getattr(self, name):g}; it must be more than 0")
        if self.input_median <= self.prefix_tokens:
            raise ConfigError(
                f"--input-median is {self.input_median:g}; it must be more than tool definitions and system prompt "
                f"together ({self.prefix_tokens})"
            )

    @property
    def prefix_tokens(self) -> int:
        return self.tool_tokens + self.system_tokens


def _flag(name: str) -> str:
    return "--" + name.replace("_", "-")
