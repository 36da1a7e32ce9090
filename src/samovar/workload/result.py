"""The form of every result file, measured or simulated: what, on what, of which revision."""

from __future__ import annotations

from datetime import UTC, datetime
import os
from pathlib import Path
import platform
import subprocess
from typing import Any

import msgspec

from samovar import __version__
from samovar.base.errors import ConfigError


class BenchResult(msgspec.Struct, frozen=True, kw_only=True):
    name: str
    version: str
    revision: str
    """Git revision of the source tree, with "+dirty" when it has changes; "" outside a tree."""
    time: str
    machine: dict[str, str | int]
    config: dict[str, Any]
    seed: int
    repeats: int
    measured: dict[str, Any]


def machine() -> dict[str, str | int]:
    model = platform.processor()
    try:
        for line in Path("/proc/cpuinfo").read_text().splitlines():
            if line.startswith("model name"):
                model = line.split(":", 1)[1].strip()
                break
    except OSError:
        pass
    return {"cpu": model, "arch": platform.machine(), "cores": os.cpu_count() or 0, "python": platform.python_version()}


def git_revision() -> str:
    """Of the checkout that this file belongs to, with "+dirty" where tracked files of it are changed. "" for an
    installed package, also when it lies inside somebody else's repository."""
    here = Path(__file__)
    try:
        _git(here.parent, "ls-files", "--error-unmatch", here.name)
        head = _git(here.parent, "rev-parse", "HEAD")
        changed = _git(here.parent, "status", "--porcelain", "--untracked-files=no", ":/")
    except (OSError, subprocess.CalledProcessError):
        return ""
    return head + ("+dirty" if changed else "")


def _git(folder: Path, *arguments: str) -> str:
    command = ["git", *arguments]
    return subprocess.run(command, cwd=folder, capture_output=True, text=True, check=True).stdout.strip()


def bench_result(
    name: str, config: dict[str, Any], measured: dict[str, Any], *, seed: int = 0, repeats: int = 1
) -> BenchResult:
    return BenchResult(
        name=name,
        version=__version__,
        revision=git_revision(),
        time=datetime.now(UTC).isoformat(timespec="seconds"),
        machine=machine(),
        config=config,
        seed=seed,
        repeats=repeats,
        measured=measured,
    )


def write_result(result: BenchResult, path: Path) -> None:
    try:
        path.write_bytes(msgspec.json.format(msgspec.json.encode(result), indent=2) + b"\n")
    except OSError as error:
        raise ConfigError(f"cannot write the result file {path}: {error.strerror}", param="json") from error
