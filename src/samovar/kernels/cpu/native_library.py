"""The native kernels, where this installation has them, and the choice of an instruction set. No torch."""

from __future__ import annotations

import contextlib
from dataclasses import dataclass
import math
import os
from pathlib import Path
from types import ModuleType

from samovar.base.errors import ConfigError

try:
    from samovar.kernels.cpu import _native
except ImportError as error:
    _FOUND: ModuleType | None = None
    _WHY_NOT = str(error)
else:
    _FOUND = _native
    _WHY_NOT = ""

AUTO = "auto"
TORCH_OPS = "torch"
"""In place of an instruction set: PyTorch's operators, even where native kernels could run."""
HOW_TO_INSTALL = "install a C++17 compiler (g++ 12 or newer, or clang) and reinstall Samovar"


@dataclass(frozen=True, slots=True)
class NativeLibrary:
    """`isa_levels`: the instruction sets that were built and that this CPU can run, best first."""

    isa_levels: tuple[str, ...]

    def choose(self, isa: str) -> str:
        """Raises ConfigError for one that is not there."""
        if isa == AUTO:
            return self.isa_levels[0]
        if isa not in self.isa_levels:
            raise ConfigError(
                f"SAMOVAR_ISA is {isa!r}; on this machine it can be {', '.join(self.isa_levels)}, {AUTO} or"
                f" {TORCH_OPS}",
                param="isa",
            )
        return isa


def native_library() -> NativeLibrary | None:
    """None when this installation was made without a compiler."""
    return None if _FOUND is None else NativeLibrary(tuple(_FOUND.instruction_sets()))


def why_there_is_none() -> str:
    """For a log: why the import of the extension failed."""
    return _WHY_NOT


def available_cores(cgroup: Path = Path("/sys/fs/cgroup")) -> int:
    """Those this process may run on, and no more than its control group's share of time: threads beyond it would be
    stopped in the middle of a step, and the others wait for them."""
    cores = len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else os.cpu_count() or 1
    share = _cgroup_cores(cgroup)
    return cores if share is None else min(cores, share)


def _cgroup_cores(root: Path) -> int | None:
    """Version 2 first, then version 1; None without a limit."""
    with contextlib.suppress(OSError, ValueError):
        quota, period = (root / "cpu.max").read_text().split()
        return None if quota == "max" else max(1, math.ceil(int(quota) / int(period)))
    with contextlib.suppress(OSError, ValueError):
        quota_us, period_us = (int((root / "cpu" / f"cpu.cfs_{x}_us").read_text()) for x in ("quota", "period"))
        return max(1, math.ceil(quota_us / period_us)) if quota_us > 0 else None
    return None
