"""`samovar bench kernels`: each native op at a model's shapes, beside the least time the machine allows."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import dataclass

from samovar.base.errors import ConfigError
from samovar.bench.compute.attention_ops import attention_cases
from samovar.bench.compute.bounds import MachineLimits
from samovar.bench.compute.cases import Case
from samovar.bench.compute.figures import OpFigure, op_figure
from samovar.bench.compute.limits import measure_limits
from samovar.bench.compute.linear_ops import FORMATS, linear_cases
from samovar.bench.compute.other_ops import other_cases
from samovar.bench.compute.setting import ComputeOptions, Setting, find_setting
from samovar.bench.compute.timing import measure
from samovar.kernels.cpu.native_ops import native_ops
from samovar.kernels.packed_ops import Format, PackedOps

GROUPS = ("linear", "attention", "other")

Progress = Callable[[str], None]


@dataclass(frozen=True, slots=True)
class KernelOptions:
    compute: ComputeOptions
    groups: tuple[str, ...] = GROUPS
    formats: tuple[str, ...] = FORMATS

    def __post_init__(self) -> None:
        for flag, values, known in (("--only", self.groups, GROUPS), ("--formats", self.formats, FORMATS)):
            wrong = [value for value in values if value not in known]
            if wrong or not values:
                raise ConfigError(f"{flag} takes {', '.join(known)}, got {', '.join(wrong) or 'nothing'}")


@dataclass(frozen=True, slots=True)
class KernelRun:
    setting: Setting
    limits: MachineLimits
    figures: list[OpFigure]


def run_kernels(options: KernelOptions, progress: Progress) -> KernelRun:
    """Raises ConfigError where there are no native kernels for the model."""
    setting = find_setting(options.compute)
    progress("measuring the machine")
    limits = measure_limits(setting.library, setting.isa, setting.threads)
    ops = native_ops(setting.isa, setting.threads)
    figures = []
    for case in _cases(options, setting, ops):
        progress(f"{case.op}, {case.tokens} tokens, depth {case.depth}")
        timing = measure(case.run, options.compute.repeats)
        figures.append(op_figure(case.op, case.tokens, case.depth, timing, case.work, limits, cached=case.cached))
    return KernelRun(setting, limits, figures)


def _cases(options: KernelOptions, setting: Setting, ops: PackedOps) -> Iterator[Case]:
    seed, block_tokens = options.compute.seed, options.compute.block_tokens
    if "linear" in options.groups:
        formats: list[Format] = [known for known in FORMATS if known in options.formats]
        for format in formats:
            yield from linear_cases(setting.spec, ops, format, seed)
    if "attention" in options.groups:
        yield from attention_cases(setting.spec, ops, block_tokens, seed)
    if "other" in options.groups:
        yield from other_cases(setting.spec, ops, block_tokens, seed)
