"""`samovar plan`: which configuration of an engine fits a load, before any hardware is rented."""

from __future__ import annotations

from collections.abc import Sequence
from datetime import UTC, datetime
import os
from pathlib import Path
import sys
from typing import Annotated, get_args

import msgspec
from rich.console import Console
from rich.markup import escape
import typer

from samovar.cli import kv_options, load_options, sim_options
from samovar.cli.load_options import OUT, RULES, WHAT, concurrencies, fit_load, one_of, read_load
from samovar.cli.sim_checks import (
    MOST_DEVICES,
    MOST_DRAFTS,
    MOST_PROCESSES,
    check_memory,
    check_results,
    fields_as_flags,
    refuse_above,
    refuse_below,
    refuse_share,
)
from samovar.cli.sim_options import HARDWARE, acceptance_of, front_end_of, hardware_of, load_words, price_for, rules_of
from samovar.cli.sim_screen import show, trial_bar
from samovar.cli.surroundings import output_console
from samovar.kv.settings import tiers_of
from samovar.policy.choose import policy_names
from samovar.sim.cost.layout import DcpComm, Layout, MoeComm
from samovar.sim.plan import PAGE, RESULT, Named, PlanFound, PlanJob, PlanStopped, open_trials, run_plan
from samovar.sim.plan_changes import Offer, menu
from samovar.sim.plan_page import headline
from samovar.sim.plan_setup import Setup
from samovar.sim.plan_tables import plan_tables
from samovar.sim.plan_trial import Bench
from samovar.sim.plan_unfinished import unfinished_tables
from samovar.sim.report_notes import step_notes
from samovar.workload.metrics import parse_slo
from samovar.workload.result import BenchResult, write_result


@fields_as_flags()
def plan(
    trace: load_options.Trace,
    model: sim_options.Model,
    device: sim_options.DeviceName,
    gpus: Annotated[int, typer.Option(help="Devices of the machine.", rich_help_panel=HARDWARE)] = 8,
    slo: load_options.Slo = None,
    concurrency: Annotated[
        str, typer.Option(help="Live session trees; each load is planned for.", rich_help_panel=WHAT)
    ] = "1,16,64",
    duration: Annotated[
        float,
        typer.Option(
            help="Seconds to measure of each simulation; fewer than 8 lanes get up to four times that.",
            rich_help_panel=WHAT,
        ),
    ] = 900.0,
    scale: load_options.Scale = 1.0,
    fit_by: load_options.FitBy = "skip",
    skip_bad: load_options.SkipBad = False,
    # -- rules
    time_scale: load_options.TimeScale = 1.0,
    start: load_options.Start = "0.25:0.75",
    warmup_calls: load_options.WarmupCalls = 0,
    idle_cap: load_options.IdleCap = 10.0,
    tree_idle_cap: load_options.TreeIdleCap = 300.0,
    grace: sim_options.Grace = 120.0,
    front_end_request_ms: sim_options.FrontEndRequest = 0.0,
    front_end_prompt_token_us: sim_options.FrontEndPrompt = 0.0,
    front_end_output_token_ms: sim_options.FrontEndOutput = 0.0,
    seed: load_options.Seed = 42,
    processes: Annotated[
        int | None,
        typer.Option(help="Simulations at once.", show_default="one per core", rich_help_panel=RULES),
    ] = None,
    # -- hardware
    moe_comm: sim_options.MoeComm = "ag_rs",
    dcp_comm_backend: sim_options.DcpComm = "ag_rs",
    dcp_q_replicate: sim_options.DcpQReplicate = False,
    overlap: sim_options.Overlap = 0.0,
    kv_cache_dtype: sim_options.CacheDtype = "auto",
    gpu_memory_utilization: sim_options.Utilization = 0.9,
    # -- engine
    max_model_len: sim_options.MaxModelLen = None,
    max_num_seqs: sim_options.MaxNumSeqs = 256,
    max_num_batched_tokens: sim_options.BatchedTokens = 8192,
    num_speculative_tokens: sim_options.SpeculativeTokens = 0,
    acceptance_length: sim_options.AcceptanceLength = None,
    kv_offloading_size: Annotated[
        str | None,
        typer.Option(
            help="Try a host tier of so much memory, of all devices together: GiB, or with a unit.",
            rich_help_panel=kv_options.PANEL,
        ),
    ] = None,
    retention_policy: kv_options.RetentionPolicy = "agent",
    # -- figures
    price: load_options.PriceText = None,
    prices: load_options.Prices = None,
    # -- results
    output: Annotated[
        Path | None, typer.Option(help="New folder for the results.", show_default="plan-TIME", rich_help_panel=OUT)
    ] = None,
    overwrite: load_options.Overwrite = False,
    json: Annotated[
        Path | None, typer.Option(help="Write the result here too; - for stdout.", rich_help_panel=OUT)
    ] = None,
) -> None:
    """Find the layout and knobs that serve a load best, and say what each optimisation contributes, and why."""
    console = output_console(stderr=True)
    loads = tuple(sorted(concurrencies(concurrency)))
    check_results(json)
    refuse_share("--overlap", overlap)
    refuse_below(
        1,
        gpus=gpus,
        processes=processes,
        max_model_len=max_model_len,
        max_num_seqs=max_num_seqs,
        max_num_batched_tokens=max_num_batched_tokens,
    )
    refuse_below(0, num_speculative_tokens=num_speculative_tokens)
    refuse_above(MOST_PROCESSES, processes=processes)
    refuse_above(MOST_DEVICES, gpus=gpus)
    refuse_above(MOST_DRAFTS, num_speculative_tokens=num_speculative_tokens)
    check_memory(kv_cache_dtype, gpu_memory_utilization)
    hardware = hardware_of(model, device, gpus, None)
    front_end = front_end_of(front_end_request_ms, front_end_prompt_token_us, front_end_output_token_ms)
    rules = rules_of(
        duration=duration,
        grace=grace,
        start=start,
        warmup_calls=warmup_calls,
        time_scale=time_scale,
        idle_cap=idle_cap,
        tree_idle_cap=tree_idle_cap,
        sessions=None,
        seed=seed,
        front_end=front_end,
    )
    bench = Bench(hardware, rules, parse_slo(slo or ()), price_for(hardware.device.name, price, prices))
    acceptance = acceptance_of(num_speculative_tokens, acceptance_length)
    offer = Offer(
        tiers=tiers_of(offloading_size=kv_offloading_size),
        acceptance=acceptance if acceptance.drafts else None,
        retention_policy=one_of("--retention-policy", retention_policy, policy_names()),
    )
    loaded = read_load(trace, scale, skip_bad)
    base = Setup(
        layout=Layout(
            moe_comm=one_of("--moe-comm", moe_comm, get_args(MoeComm)),
            dcp_comm=one_of("--dcp-comm-backend", dcp_comm_backend, get_args(DcpComm)),
            dcp_q_replicate=dcp_q_replicate,
            overlap=overlap,
            kv_format=kv_cache_dtype,
        ),
        max_model_len=loaded.longest_tokens if max_model_len is None else max_model_len,
        max_num_seqs=max_num_seqs,
        max_num_batched_tokens=max_num_batched_tokens,
        gpu_memory_utilization=gpu_memory_utilization,
    )
    found = menu(hardware, base, offer)
    fitted = fit_load(loaded, base.max_model_len, fit_by, f"--max-model-len is {base.max_model_len}")
    words = (*load_words(trace, scale, fit_by, skip_bad, rules), *_figure_words(slo or (), price, prices))
    job = PlanJob(bench, found, loads, fitted, loaded.described, Named(model, device, words))
    path = output or Path(f"plan-{datetime.now(UTC):%Y%m%d-%H%M%S}")
    trials = open_trials(job, path, overwrite=overwrite)
    facts = [
        f"{len(fitted.trees)} sessions at {', '.join(map(str, loads))} lanes, {duration:g} s of each configuration"
    ]
    facts += [*loaded.notes, *step_notes(hardware, base.layout)]
    _tell(console, facts)
    if trials.num_taken:
        _tell(console, [f"{trials.num_taken} simulations of an earlier run are taken over from {trials.path}"])
    with trials, trial_bar(console, hardware) as progress:
        made = run_plan(job, trials, _cores() if processes is None else processes, facts, progress)
    if isinstance(made, PlanFound):
        _show(console, job, made)
    else:
        _show_stopped(console, job, made, path)
    if made.result is not None:
        _write_json(made.result, json)
        _tell(console, [f"the page is {path / PAGE}, the figures are in {path / RESULT}"])
    if isinstance(made, PlanStopped):
        raise made.cause


def _show(console: Console, job: PlanJob, made: PlanFound) -> None:
    hardware, slo = job.bench.hardware, job.bench.slo
    for table in plan_tables(hardware, made.plan, slo, job.menu.refused):
        show(console, table)
    console.print(f"\n[bold]{escape(headline(hardware, made.plan, slo))}[/]", highlight=False, soft_wrap=True)
    for what, line in made.commands.items():
        _tell(console, [f"{what}:\n  {line}"])


def _show_stopped(console: Console, job: PlanJob, made: PlanStopped, folder: Path) -> None:
    if not made.part.trials:
        _tell(console, [f"{made.part.why} before any simulation had ended"])
        return
    for table in unfinished_tables(job.bench.hardware, made.part, job.bench.slo):
        show(console, table)
    _tell(console, [f"\n{made.part.told}; the same command with --output {folder} goes on from there"])


def _tell(console: Console, lines: Sequence[str]) -> None:
    for line in lines:
        console.print(line, highlight=False, markup=False, soft_wrap=True)


def _write_json(result: BenchResult, json: Path | None) -> None:
    if json is not None and str(json) == "-":
        sys.stdout.write(msgspec.json.encode(result).decode() + "\n")
    elif json is not None:
        write_result(result, json)


def _figure_words(slo: Sequence[str], price: str | None, prices: Path | None) -> list[str]:
    """As they were given."""
    words = [word for one in slo for word in ("--slo", one)]
    words += [] if price is None else ["--price", price]
    return words + ([] if prices is None else ["--prices", str(prices)])


def _cores() -> int:
    return len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else os.cpu_count() or 1
