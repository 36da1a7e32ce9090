"""How much memory this process could still take: the machine's free memory and its control group's limit."""

from __future__ import annotations

from pathlib import Path

PROC = Path("/proc")
CGROUP = Path("/sys/fs/cgroup")


def available_memory_bytes(proc: Path = PROC, cgroup: Path = CGROUP) -> int | None:
    """None where the system does not say (no /proc). Of nested control groups the root as seen from here counts, which
    in a container is the container's own."""
    free = _meminfo(proc / "meminfo", "MemAvailable")
    headroom = _cgroup_headroom(cgroup)
    known = [n for n in (free, headroom) if n is not None]
    return min(known) if known else None


def _meminfo(path: Path, field: str) -> int | None:
    try:
        lines = path.read_text().splitlines()
    except OSError:
        return None
    for line in lines:
        name, _, value = line.partition(":")
        if name == field:
            return int(value.split()[0]) * 1024
    return None


def _cgroup_headroom(root: Path) -> int | None:
    """Version 2 first, then version 1. File pages that the kernel gives back on demand do not count as used."""
    for folder, limit_file, usage_file in (
        (root, "memory.max", "memory.current"),
        (root / "memory", "memory.limit_in_bytes", "memory.usage_in_bytes"),
    ):
        try:
            limit, usage = (folder / limit_file).read_text().strip(), (folder / usage_file).read_text().strip()
            statistics = dict(line.split() for line in (folder / "memory.stat").read_text().splitlines())
        except (OSError, ValueError):
            continue
        if limit.isdigit() and usage.isdigit():
            reclaimable = int(statistics.get("total_inactive_file", statistics.get("inactive_file", 0)))
            return max(int(limit) - int(usage) + reclaimable, 0)
    return None
