"""A simulated run in the figures that publications use."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import replace
import resource
from statistics import fmean
import time

from benchmarks.sim_published_form import Progress, Seen

from samovar.sim.outcome import SimRun, StepKind
from samovar.sim.plan_setup import Hardware, Rules, Setup, kv_tokens, sim_settings
from samovar.sim.run import simulate
from samovar.sim.settings import SimSettings
from samovar.spec.catalog import load_kernels
from samovar.workload.metrics import Spread, summarise
from samovar.workload.replay_script import Script


def run(
    hardware: Hardware,
    setup: Setup,
    rules: Rules,
    scripts: Sequence[Script],
    progress: Progress,
    change: Callable[[SimSettings], SimSettings] = lambda settings: settings,
) -> Seen:
    settings = change(sim_settings(hardware, setup, rules))
    began_s = time.process_time()
    made = simulate(settings, scripts, progress)
    seen = figures(made, hardware.gpus)
    seen |= {"kv_tokens": kv_tokens(hardware, setup), "cpu_s": time.process_time() - began_s}
    # An engine's own log leaves out the time between steps.
    between_ms = 1e3 * load_kernels(hardware.device.kernels).step.sync_s if setup.layout.dp > 1 else 0.0
    return seen | {f"log_{name}": seen[name] - between_ms for name in seen if name.startswith("step_")}


def figures(made: SimRun, gpus: int) -> Seen:
    """Times of steps, and of tokens, in ms; others in seconds; shares in percent."""
    records = [record for record in made.records if record.phase == "profile"]
    point = summarise(records, concurrency=records[0].concurrency, gpus=gpus)
    seen: Seen = {
        "requests": point.ok,
        "requests_per_s": point.ok / point.window_s,
        "window_s": point.window_s,
        "tokens_per_gpu_s": point.tokens_per_gpu_s,
        "computed_per_gpu_s": point.computed_per_gpu_s,
        "cached_per_gpu_s": point.cached_per_gpu_s,
        "generated_per_gpu_s": point.generated_per_gpu_s,
        "hit": 100 * (point.hit_rate or 0.0),
        "hit_ceiling": 100 * (point.hit_ceiling or 0.0),
        "mean_input": point.prompt_tokens / point.ok,
        "mean_output": point.output_tokens / point.ok,
        "p90_interactivity": point.p90_interactivity or 0.0,
        "cut": point.cut,
        "took_s": made.took_s,
        "simulated_s": made.simulated_s,
        "steps": made.num_steps,
        "peak_gb": resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 1e6,
        "preemptions": sum(stats.preemptions for stats in made.stats),
    }
    seen |= _spread("ttft", point.ttft_s) | _spread("itl", point.itl_s, 1e3) | _spread("latency", point.latency_s)
    ranks = made.steps.ranks
    steps = sum(kind.count for kind in ranks.values())
    for name in ("decode", "mixed", "prefill"):
        kind = ranks.get(name, StepKind())
        seen |= {f"share_{name}": 100 * kind.count / steps, f"step_{name}_p50": 1e3 * kind.p50_s}
        seen[f"step_{name}_p90"] = 1e3 * kind.p90_s
    group = made.steps.group
    steps = sum(kind.count for kind in group.values())
    seen["group_decode"] = 100 * group.get("decode", StepKind()).count / steps
    pieces = made.steps.pieces
    seen |= {"gap_p50": 1e3 * pieces.p50_s, "gap_mean": 1e3 * pieces.seconds / max(1, pieces.count)}
    return seen | _memory(made)


def _spread(name: str, spread: Spread, unit: float = 1.0) -> Seen:
    values = {"mean": spread.mean, "p50": spread.p50, "p90": spread.p90, "p99": spread.p99}
    return {f"{name}_{key}": unit * (value or 0.0) for key, value in values.items()}


def _memory(made: SimRun) -> Seen:
    """Blocks in use, of all; what is only cached counts as free, as engines report it."""
    shares: dict[float, list[float]] = {}
    for sample in made.memory:
        total = sample.used_blocks + sample.cached_blocks + sample.free_blocks
        shares.setdefault(sample.time_s, []).append(100 * sample.used_blocks / total)
    of_all = sorted(fmean(ranks) for ranks in shares.values()) or [0.0]
    return {
        "kv_used_p50": of_all[len(of_all) // 2],
        "kv_used_most": of_all[-1],
        "running": fmean(sample.running for sample in made.memory) * len(made.stats) if made.memory else 0.0,
        "waiting": fmean(sample.waiting for sample in made.memory) * len(made.stats) if made.memory else 0.0,
    }


def for_share(rules: Rules, share: float) -> Rules:
    return replace(rules, duration_s=max(1.0, share * rules.duration_s))
