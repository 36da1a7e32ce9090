"""The form of every benchmark's result file, as `workload.result` defines it: simulations write the same."""

from __future__ import annotations

from samovar.workload.result import BenchResult, bench_result, git_revision, machine, write_result

__all__ = ["BenchResult", "bench_result", "git_revision", "machine", "write_result"]
