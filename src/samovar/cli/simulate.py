"""`samovar simulate`: agent sessions on an engine whose hardware one does not have, in the benchmark's own figures."""

from __future__ import annotations

from dataclasses import replace
from datetime import UTC, datetime
from pathlib import Path
import sys
from typing import Annotated, get_args

import msgspec
from rich.console import Console
import typer

from samovar.base.errors import ConfigError
from samovar.cli import kv_options, load_options, sim_options
from samovar.cli.load_options import OUT, WHAT, concurrencies, fit_load, one_of, read_load
from samovar.cli.sim_checks import (
    MOST_BLOCKS,
    MOST_DEVICES,
    MOST_DRAFTS,
    check_memory,
    check_results,
    fields_as_flags,
    refuse_above,
    refuse_below,
    refuse_share,
    refuse_times,
)
from samovar.cli.sim_options import ENGINE, HARDWARE, acceptance_of, front_end_of, hardware_of, price_for, rules_of
from samovar.cli.sim_screen import load_bars, show
from samovar.cli.surroundings import output_console
from samovar.kv.settings import tiers_of
from samovar.policy.choose import policy_names
from samovar.sim.cost.layout import DcpComm, Layout, Mode, MoeComm
from samovar.sim.plan_setup import Hardware, Setup, kv_tokens, lanes_of, num_pools, scaled_tiers
from samovar.sim.plan_trial import Bench
from samovar.sim.report import EXPLAINED, SimulationJob, beyond, facts, run_simulation
from samovar.sim.report_tables import evidence_table, links_table, points_table, steps_table, turn_table
from samovar.sim.settings import BalancerName
from samovar.workload.metrics import parse_slo
from samovar.workload.replay_folder import REPORT
from samovar.workload.result import write_result


@fields_as_flags()
def simulate(
    trace: load_options.Trace,
    model: sim_options.Model,
    device: sim_options.DeviceName,
    concurrency: Annotated[
        str, typer.Option(help="Live session trees, one part of the run for each: 16,32,64.", rich_help_panel=WHAT)
    ] = "1",
    duration: Annotated[float, typer.Option(help="Seconds to measure for each.", rich_help_panel=WHAT)] = 600.0,
    scale: load_options.Scale = 1.0,
    fit_by: load_options.FitBy = "skip",
    sessions: load_options.Sessions = None,
    skip_bad: load_options.SkipBad = False,
    # -- rules
    time_scale: load_options.TimeScale = 1.0,
    start: load_options.Start = "0.25:0.75",
    warmup_calls: load_options.WarmupCalls = 0,
    idle_cap: load_options.IdleCap = 10.0,
    tree_idle_cap: load_options.TreeIdleCap = 300.0,
    grace: sim_options.Grace = 30.0,
    front_end_request_ms: sim_options.FrontEndRequest = 0.0,
    front_end_prompt_token_us: sim_options.FrontEndPrompt = 0.0,
    front_end_output_token_ms: sim_options.FrontEndOutput = 0.0,
    seed: load_options.Seed = 42,
    # -- hardware
    gpus: Annotated[
        int | None,
        typer.Option(
            help="Devices; more than one engine takes are engines of their own, each with its share of the sessions.",
            show_default="what one engine takes",
            rich_help_panel=HARDWARE,
        ),
    ] = None,
    tensor_parallel_size: Annotated[
        int, typer.Option("--tensor-parallel-size", "--tp", help="Devices of a rank.", rich_help_panel=HARDWARE)
    ] = 1,
    data_parallel_size: Annotated[
        int, typer.Option("--data-parallel-size", "--dp", help="Ranks that step together.", rich_help_panel=HARDWARE)
    ] = 1,
    enable_expert_parallel: Annotated[
        bool,
        typer.Option(
            "--enable-expert-parallel", "--ep", help="Whole experts on each device.", rich_help_panel=HARDWARE
        ),
    ] = False,
    decode_context_parallel_size: Annotated[
        int,
        typer.Option(
            "--decode-context-parallel-size", "--dcp", help="Ranks that share out KV.", rich_help_panel=HARDWARE
        ),
    ] = 1,
    moe_comm: sim_options.MoeComm = "ag_rs",
    dcp_comm_backend: sim_options.DcpComm = "ag_rs",
    dcp_q_replicate: sim_options.DcpQReplicate = False,
    overlap: sim_options.Overlap = 0.0,
    monokernel: Annotated[
        str, typer.Option(help="on or off: a decode step as one kernel.", rich_help_panel=HARDWARE)
    ] = "off",
    enforce_eager: Annotated[
        bool, typer.Option("--enforce-eager", help="Without graphs.", rich_help_panel=HARDWARE)
    ] = False,
    kv_cache_dtype: sim_options.CacheDtype = "auto",
    gpu_memory_utilization: sim_options.Utilization = 0.9,
    steps: sim_options.Steps = None,
    # -- engine
    num_gpu_blocks_override: kv_options.NumBlocksOverride = None,
    enable_prefix_caching: kv_options.EnablePrefixCaching = True,
    kv_transfer_config: kv_options.TransferConfig = None,
    kv_offloading_size: kv_options.OffloadingSize = None,
    kv_disk_path: kv_options.DiskPath = None,
    kv_disk_size: kv_options.DiskSize = None,
    kv_disk_write_budget: kv_options.DiskWriteBudget = None,
    kv_shared: Annotated[
        bool,
        typer.Option(
            "--kv-shared",
            help="One pool of host memory and disk for all ranks of a machine; sizes are then the machine's.",
            rich_help_panel=kv_options.PANEL,
        ),
    ] = False,
    retention_policy: kv_options.RetentionPolicy = "agent",
    retention_ttl_s: kv_options.RetentionTTL = None,
    max_model_len: sim_options.MaxModelLen = None,
    max_num_seqs: sim_options.MaxNumSeqs = 256,
    max_num_batched_tokens: sim_options.BatchedTokens = 8192,
    long_prefill_token_threshold: Annotated[
        int,
        typer.Option(help="Prefill tokens per request and step while another could run.", rich_help_panel=ENGINE),
    ] = 0,
    prefill_schedule_interval: Annotated[
        int, typer.Option(help="Prefill in every Nth step only.", rich_help_panel=ENGINE)
    ] = 1,
    num_speculative_tokens: sim_options.SpeculativeTokens = 0,
    acceptance_length: sim_options.AcceptanceLength = None,
    balancer: Annotated[
        str,
        typer.Option(help=f"Rank of a request: {', '.join(get_args(BalancerName))}.", rich_help_panel=ENGINE),
    ] = "sticky",
    # -- figures
    slo: load_options.Slo = None,
    price: load_options.PriceText = None,
    prices: load_options.Prices = None,
    # -- results
    output: Annotated[
        Path | None,
        typer.Option(help="New folder for the results.", show_default="simulate-TIME", rich_help_panel=OUT),
    ] = None,
    overwrite: load_options.Overwrite = False,
    json: Annotated[
        Path | None, typer.Option(help="Write the result here too; - for stdout.", rich_help_panel=OUT)
    ] = None,
) -> None:
    """Replay agent sessions on a simulated engine: the real scheduler, cache and tiers, with modelled steps."""
    console = output_console(stderr=True)
    loads = concurrencies(concurrency)
    check_results(json)
    refuse_share("--overlap", overlap)
    refuse_below(
        1,
        gpus=gpus,
        tensor_parallel_size=tensor_parallel_size,
        data_parallel_size=data_parallel_size,
        decode_context_parallel_size=decode_context_parallel_size,
        max_model_len=max_model_len,
        max_num_seqs=max_num_seqs,
        max_num_batched_tokens=max_num_batched_tokens,
        prefill_schedule_interval=prefill_schedule_interval,
        num_gpu_blocks_override=num_gpu_blocks_override,
    )
    refuse_below(
        0, long_prefill_token_threshold=long_prefill_token_threshold, num_speculative_tokens=num_speculative_tokens
    )
    refuse_above(MOST_DEVICES, gpus=gpus)
    refuse_above(MOST_DRAFTS, num_speculative_tokens=num_speculative_tokens)
    check_memory(kv_cache_dtype, gpu_memory_utilization)
    refuse_above(MOST_BLOCKS, num_gpu_blocks_override=num_gpu_blocks_override)
    layout = Layout(
        tp=tensor_parallel_size,
        dp=data_parallel_size,
        ep=enable_expert_parallel,
        dcp=decode_context_parallel_size,
        mode=_mode(monokernel, enforce_eager),
        moe_comm=one_of("--moe-comm", moe_comm, get_args(MoeComm)),
        dcp_comm=one_of("--dcp-comm-backend", dcp_comm_backend, get_args(DcpComm)),
        dcp_q_replicate=dcp_q_replicate,
        overlap=overlap,
        kv_format=kv_cache_dtype,
    )
    hardware = hardware_of(model, device, layout.devices if gpus is None else gpus, steps)
    ranks = one_of("--balancer", balancer, get_args(BalancerName))
    policy = one_of("--retention-policy", retention_policy, policy_names())
    refuse_times(retention_ttl_s=retention_ttl_s)
    _refuse_without_effect(layout, enable_prefix_caching, ranks, hardware, policy, retention_ttl_s)
    layout.check(hardware.model)
    tiers = tiers_of(
        kv_transfer_config,
        offloading_size=kv_offloading_size,
        disk_path=kv_disk_path,
        disk_size=kv_disk_size,
        disk_write_budget=kv_disk_write_budget,
    )
    if tiers is not None and not enable_prefix_caching:
        raise ConfigError("tiers below the device have no effect with --no-enable-prefix-caching: leave one out")
    if kv_shared and (tiers is None or layout.dp == 1):
        raise ConfigError(
            "--kv-shared has no effect without tiers and --data-parallel-size: a rank alone shares nothing"
        )
    pools = num_pools(hardware, layout, kv_shared)
    front_end = front_end_of(front_end_request_ms, front_end_prompt_token_us, front_end_output_token_ms)
    rules = rules_of(
        duration=duration,
        grace=grace,
        start=start,
        warmup_calls=warmup_calls,
        time_scale=time_scale,
        idle_cap=idle_cap,
        tree_idle_cap=tree_idle_cap,
        sessions=sessions,
        seed=seed,
        front_end=front_end,
    )
    limits = parse_slo(slo or ())
    loaded = read_load(trace, scale, skip_bad)
    setup = Setup(
        layout=layout,
        max_model_len=loaded.longest_tokens if max_model_len is None else max_model_len,
        max_num_seqs=max_num_seqs,
        max_num_batched_tokens=max_num_batched_tokens,
        prefill_schedule_interval=prefill_schedule_interval,
        long_prefill_token_threshold=long_prefill_token_threshold,
        gpu_memory_utilization=gpu_memory_utilization,
        num_gpu_blocks_override=num_gpu_blocks_override,
        enable_prefix_caching=enable_prefix_caching,
        acceptance=acceptance_of(num_speculative_tokens, acceptance_length),
        retention_policy=policy,
        retention_ttl_s=retention_ttl_s,
        # Flags say the size of each pool; a setup counts all of them.
        tiers=None if tiers is None else scaled_tiers(tiers, pools),
        shared_tiers=kv_shared,
        balancer=ranks,
    )
    for load in loads:
        lanes_of(hardware, setup, load)
    if max_model_len is None:
        # Longer sessions than a rank can hold are left out or cut, as --fit says.
        setup = _within(hardware, setup)
    fitted = fit_load(loaded, setup.max_model_len, fit_by, _context_limit(setup, max_model_len))
    bench = Bench(hardware, rules, limits, price_for(hardware.device.name, price, prices))
    given = {"model": model, "device": device, "steps": steps}
    job = SimulationJob(bench, setup, loads, fitted, loaded.described, given)
    path = output or Path(f"simulate-{datetime.now(UTC):%Y%m%d-%H%M%S}")
    _tell(console, (*loaded.notes, *facts(job)))
    with load_bars(console, loads) as progress:
        found = run_simulation(job, path, progress, overwrite=overwrite)
    for table in (
        points_table(found.parts),
        turn_table(found.parts),
        evidence_table(found.parts),
        steps_table(found.parts),
        links_table(found.parts),
    ):
        show(console, table)
    _tell(console, tuple(beyond(job, found.parts)))
    if json is not None and str(json) == "-":
        sys.stdout.write(msgspec.json.encode(found.result).decode() + "\n")
    elif json is not None:
        write_result(found.result, json)
    console.print(
        f"results in {path}, the report in {path / REPORT}, what bounds them in {path / EXPLAINED}", highlight=False
    )


def _mode(monokernel: str, eager: bool) -> Mode:
    mono = one_of("--monokernel", monokernel, ("on", "off")) == "on"
    if mono and eager:
        raise ConfigError("--monokernel on and --enforce-eager exclude each other: leave one out")
    return "mono" if mono else "eager" if eager else "graph"


def _refuse_without_effect(
    layout: Layout, caching: bool, balancer: str, hardware: Hardware, policy: str, ttl_s: float | None
) -> None:
    """Settings that would do nothing together."""
    experts = hardware.model.moe is not None and (layout.dp > 1 or layout.ep)
    for told, without in (
        (f"--moe-comm {layout.moe_comm}", layout.moe_comm == "ag_rs" or experts),
        (f"--dcp-comm-backend {layout.dcp_comm}", layout.dcp_comm == "ag_rs" or layout.dcp > 1),
        ("--dcp-q-replicate", not layout.dcp_q_replicate or layout.dcp > 1),
        (f"--balancer {balancer}", balancer == "sticky" or layout.dp > 1),
        (f"--retention-ttl-s {ttl_s}", ttl_s is None or policy == "ttl"),
    ):
        if not without:
            raise ConfigError(f"{told} has no effect with this layout and policy: leave it out")
    if hardware.measured is not None and (layout.mode != "graph" or layout.overlap):
        raise ConfigError(
            "--steps gives the time of every step, so that --monokernel, --enforce-eager and --overlap have no effect"
        )
    if not caching and policy != "agent" and policy != "lru":
        raise ConfigError(f"--retention-policy {policy} has no effect with --no-enable-prefix-caching")


def _within(hardware: Hardware, setup: Setup) -> Setup:
    return replace(setup, max_model_len=min(setup.max_model_len, kv_tokens(hardware, setup)))


def _context_limit(setup: Setup, given: int | None) -> str:
    """What the context is bounded by, in words."""
    if given is not None:
        return f"--max-model-len is {given}"
    blocks = setup.num_gpu_blocks_override
    held = "" if blocks is None else f"with --num-gpu-blocks-override {blocks} "
    return f"{held}one rank keeps the KV of {setup.max_model_len:,} tokens"


def _tell(console: Console, lines: tuple[str, ...]) -> None:
    for line in lines:
        console.print(line, highlight=False, markup=False, soft_wrap=True)
