"""`samovar bench replay` and `samovar report`: agent sessions against a server, and what came of it."""

from __future__ import annotations

import asyncio
from datetime import UTC, datetime
from pathlib import Path
import secrets
import sys
from typing import Annotated, get_args

import msgspec
from rich.console import Console
from rich.markup import escape
import typer

from samovar.base.errors import ConfigError
from samovar.bench.replay import ReplayOptions
from samovar.bench.replay_files import ReplaySource
from samovar.bench.replay_job import ReplayJob, run_job
from samovar.bench.replay_server import Form, ServerOptions, base_url
from samovar.cli.load_options import JUDGE, OUT, RULES, WHAT, concurrencies, dollars, one_of, pair, read_load
from samovar.cli.replay_screen import LiveTable
from samovar.cli.surroundings import output_console
from samovar.workload.metrics import parse_slo
from samovar.workload.metrics_cost import Price, price_of
from samovar.workload.prompts import TokenRange
from samovar.workload.replay import ReplayConfig
from samovar.workload.replay_fit import Fit
from samovar.workload.replay_folder import REPORT
from samovar.workload.report import report_page, write_report
from samovar.workload.report_data import named_apart
from samovar.workload.result import write_result

SEND = "Requests"


def replay(
    url: Annotated[str, typer.Option(help="The server's address, with or without /v1.", rich_help_panel=WHAT)],
    trace: Annotated[
        list[Path], typer.Option(help="Trace files or folders (several may be given).", rich_help_panel=WHAT)
    ],
    concurrency: Annotated[
        str, typer.Option(help="Live session trees, one part of the run for each: 1,2,4.", rich_help_panel=WHAT)
    ] = "1",
    duration: Annotated[float, typer.Option(help="Seconds to measure for each.", rich_help_panel=WHAT)] = 120.0,
    scale: Annotated[
        float, typer.Option(help="Shrink all lengths; reuse stays as it is (1/16 = 0.0625).", rich_help_panel=WHAT)
    ] = 1.0,
    fit_by: Annotated[
        str,
        typer.Option("--fit", help="Sessions longer than the context: skip or cut.", rich_help_panel=WHAT),
    ] = "skip",
    sessions: Annotated[
        int | None,
        typer.Option(help="Session trees to begin for each.", show_default="no limit", rich_help_panel=WHAT),
    ] = None,
    skip_bad: Annotated[bool, typer.Option(help="Leave broken trace files out.", rich_help_panel=WHAT)] = False,
    # -- rules
    time_scale: Annotated[
        float, typer.Option(help="Stretch recorded gaps; below 1 tools are faster.", rich_help_panel=RULES)
    ] = 1.0,
    start: Annotated[
        str, typer.Option(help="First sessions begin at a share of theirs drawn from FROM:TO.", rich_help_panel=RULES)
    ] = "0.25:0.75",
    warmup_calls: Annotated[
        int, typer.Option(help="More calls per lane before measuring (AgentX: 10).", rich_help_panel=RULES)
    ] = 0,
    idle_cap: Annotated[float, typer.Option(help="Longest time with nothing running.", rich_help_panel=RULES)] = 10.0,
    tree_idle_cap: Annotated[
        float, typer.Option(help="Longest time with nothing running of one session tree.", rich_help_panel=RULES)
    ] = 300.0,
    cache_bust: Annotated[
        bool, typer.Option(help="A session replayed again does not find its first replay.", rich_help_panel=RULES)
    ] = True,
    live_history: Annotated[
        bool, typer.Option(help="Send the server's own answers back as history.", rich_help_panel=RULES)
    ] = False,
    seed: Annotated[int, typer.Option(help="Of the starting points.", rich_help_panel=RULES)] = 42,
    # -- requests
    model: Annotated[
        str | None, typer.Option(help="Model name.", show_default="first one served", rich_help_panel=SEND)
    ] = None,
    send: Annotated[
        str,
        typer.Option(help="tokens, text or chat; auto: the first that the server takes.", rich_help_panel=SEND),
    ] = "auto",
    token_range: Annotated[
        str | None, typer.Option(help="Token ids to use, LOW:HIGH.", show_default="1000:30000", rich_help_panel=SEND)
    ] = None,
    max_context_length: Annotated[
        int | None, typer.Option(help="Tokens.", show_default="the server's", rich_help_panel=SEND)
    ] = None,
    timeout: Annotated[float, typer.Option(help="Seconds for one request.", rich_help_panel=SEND)] = 600.0,
    grace: Annotated[float, typer.Option(help="Seconds for the last ones.", rich_help_panel=SEND)] = 30.0,
    max_failed: Annotated[float, typer.Option(help="Share of failed requests.", rich_help_panel=SEND)] = 0.1,
    api_key: Annotated[
        str | None, typer.Option(envvar="SAMOVAR_API_KEY", help="Key of the server.", rich_help_panel=SEND)
    ] = None,
    run_id: Annotated[
        str | None,
        typer.Option(help="Equal ids send equal prompts.", show_default="random", rich_help_panel=SEND),
    ] = None,
    # -- figures
    block_size: Annotated[
        int | None,
        typer.Option(help="For the ceiling.", show_default="the server's, or 16", rich_help_panel=JUDGE),
    ] = None,
    slo: Annotated[
        list[str] | None,
        typer.Option(help="p90_interactivity=50, p90_ttft_s=2, ...", show_default=False, rich_help_panel=JUDGE),
    ] = None,
    gpus: Annotated[int, typer.Option(help="Accelerators of the server.", rich_help_panel=JUDGE)] = 1,
    gpu: Annotated[
        str | None, typer.Option(help="Their name in the price table.", show_default="no cost", rich_help_panel=JUDGE)
    ] = None,
    price: Annotated[
        str | None,
        typer.Option(help="$/h instead of the table's: own=1.2,rent=2.9.", show_default=False, rich_help_panel=JUDGE),
    ] = None,
    prices: Annotated[
        Path | None, typer.Option(help="Another price table (TOML).", show_default=False, rich_help_panel=JUDGE)
    ] = None,
    # -- results
    output: Annotated[
        Path | None,
        typer.Option(help="New folder for the results.", show_default="replay-TIME", rich_help_panel=OUT),
    ] = None,
    overwrite: Annotated[
        bool, typer.Option("--overwrite", help="Also into a folder that is not empty.", rich_help_panel=OUT)
    ] = False,
    json: Annotated[
        Path | None, typer.Option(help="Write the result here too; - for stdout.", rich_help_panel=OUT)
    ] = None,
) -> None:
    """Replay agent sessions against a server, by AgentX's rules: live session trees, closed loop, recorded gaps."""
    console = output_console(stderr=True)
    options = ReplayOptions(
        run=run_id or secrets.token_hex(6),
        duration_s=duration,
        grace_s=grace,
        timeout_s=timeout,
        max_failed=max_failed,
        cache_bust=cache_bust,
        live_history=live_history,
        tokens=_token_range(token_range, send),
        api_key=api_key,
    )
    start_from, start_to = pair("--start", start, float)
    lanes = concurrencies(concurrency)
    rules = ReplayConfig(
        concurrency=lanes[0],
        start_from=start_from,
        start_to=start_to,
        warmup_calls=warmup_calls,
        time_scale=time_scale,
        tree_idle_cap_s=tree_idle_cap,
        idle_cap_s=idle_cap,
        max_visits=sessions,
        seed=seed,
    )
    loaded = read_load(trace, scale, skip_bad)
    for note in loaded.notes:
        console.print(note, style="yellow", highlight=False, markup=False, soft_wrap=True)
    job = ReplayJob(
        url=base_url(url),
        trees=loaded.trees,
        load=loaded.described,
        fit=one_of("--fit", fit_by, get_args(Fit)),
        lanes=lanes,
        rules=rules,
        options=options,
        server=ServerOptions(
            model, None if send == "auto" else one_of("--send", send, get_args(Form)), max_context_length, block_size
        ),
        gpus=gpus,
        price=_price(gpu, price, prices),
        slo=parse_slo(slo or ()),
    )
    path = output or Path(f"replay-{datetime.now(UTC):%Y%m%d-%H%M%S}")
    with LiveTable(console, lanes) as screen:
        result, partial = asyncio.run(run_job(job, path, screen, overwrite=overwrite))
    if json is not None and str(json) == "-":
        sys.stdout.write(msgspec.json.encode(result).decode() + "\n")
    elif json is not None:
        write_result(result, json)
    console.print(f"results in {path}, the report in {path / REPORT}", highlight=False)
    if partial:
        console.print(f"[bold red]partial:[/] {escape(partial)}", highlight=False)
        raise typer.Exit(1)


def report(
    runs: Annotated[list[Path], typer.Argument(help="Folders of replays, or of agentx-harness artifacts.")],
    html: Annotated[Path, typer.Option(help="The file to write.")] = Path(REPORT),
    title: Annotated[str, typer.Option(help="Its heading.")] = "Agent replay",
) -> None:
    """Lay the results of several replays over each other in one HTML file."""
    write_report(report_page(named_apart(ReplaySource(path).read() for path in runs), title), html)
    Console(stderr=True).print(f"report of {len(runs)} runs in {html}", highlight=False)


def _token_range(text: str | None, send: str) -> TokenRange:
    if text is None:
        return TokenRange()
    if send in ("text", "chat"):
        raise ConfigError(f"--token-range {text}: has no effect with --send {send}, which sends words; leave one out")
    return TokenRange(*pair("--token-range", text, int))


def _price(gpu: str | None, text: str | None, table: Path | None) -> Price | None:
    given = dollars(text)
    if gpu is None and table is not None:
        raise ConfigError(f"--prices {table}: needs --gpu, the name of the accelerator whose price to take from it")
    if gpu is None and not given:
        return None
    return price_of(gpu or "unnamed", table, own=given.get("own"), rent=given.get("rent"))
