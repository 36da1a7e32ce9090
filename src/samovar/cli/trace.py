"""`samovar trace`: look at recorded agent sessions, draw them, make new ones, shrink them."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import fields
from pathlib import Path
import sys
from typing import Annotated

import msgspec
from rich import box
from rich.console import Console
from rich.markup import escape
from rich.measure import Measurement
from rich.table import Table
import typer

from samovar.base.errors import ConfigError
from samovar.base.folders import check_unused, make_folder
from samovar.cli.progress import counted
from samovar.cli.surroundings import output_console
from samovar.workload.kv_size import DEFAULT_MODEL, kv_size_of
from samovar.workload.reading import ReadCounts, read_session, read_sessions, trace_files
from samovar.workload.scale import ScaleCounts, divisor, scaled
from samovar.workload.session import SessionTree
from samovar.workload.session_plot import session_page
from samovar.workload.stats import trace_stats
from samovar.workload.stats_page import stats_page, write_page
from samovar.workload.stats_rows import Block, stats_blocks
from samovar.workload.stats_types import TraceStats
from samovar.workload.synth import synthesise
from samovar.workload.synth_config import SynthConfig
from samovar.workload.weka_writer import FileNames, write_weka

app = typer.Typer(help="Understand, draw and make traces of agent sessions.", no_args_is_help=True)

_DEFAULTS = SynthConfig()
_WIDEST = 1000
Advance = Callable[[int], None]
Paths = Annotated[list[Path], typer.Argument(help="Trace files, or folders of them.")]
SkipBad = Annotated[bool, typer.Option("--skip-bad", help="Leave broken files out, and count them.")]
Out = Annotated[Path, typer.Option(help="New folder to write one file per session into.")]
Overwrite = Annotated[bool, typer.Option("--overwrite", help="Also into a folder that is not empty.")]


@app.command()
def stats(
    paths: Paths,
    skip_bad: SkipBad = False,
    model: Annotated[
        str, typer.Option(help="Whose KV to count: a checkpoint (folder or .gguf) or a known name.")
    ] = DEFAULT_MODEL,
    kv_element_bytes: Annotated[int, typer.Option(help="Bytes of one number in the KV cache.")] = 2,
    sessions_at_once: Annotated[int, typer.Option(help="Sessions that share the cache of the capacity curve.")] = 16,
    json: Annotated[Path | None, typer.Option(help="Write the figures here as JSON; - for stdout.")] = None,
    html: Annotated[Path | None, typer.Option(help="Write them here as a page with charts.")] = None,
) -> None:
    """What a set of sessions asks of a server: lengths, gaps, sub-agents, hit rates, and how much cache they need."""
    if sessions_at_once < 1:
        raise ConfigError(f"--sessions-at-once is {sessions_at_once}; it must be at least 1")
    if kv_element_bytes < 1:
        raise ConfigError(f"--kv-element-bytes is {kv_element_bytes}; it must be at least 1")
    size = kv_size_of(model, kv_element_bytes)
    counts = ReadCounts()
    with counted(Console(stderr=True), "reading", len(trace_files(paths))) as advance:
        sessions = _watched(read_sessions(paths, skip_bad=skip_bad, counts=counts), counts, advance)
        found = trace_stats(sessions, size, lanes=sessions_at_once, skipped=counts.skipped)
    _report_skipped(counts)
    if json != Path("-"):
        _show(found)
    if json is not None:
        _write_json(found, json)
    if html is not None:
        write_page(stats_page(found, f"Agent load: {found.totals.sessions} sessions"), html)


@app.command()
def plot(
    file: Annotated[Path, typer.Argument(help="A file with one session.")],
    html: Annotated[Path | None, typer.Option(help="Write the page here.", show_default="<session>.html")] = None,
) -> None:
    """Draw one session: lanes of the agents, their contexts, and when the server is busy or idle."""
    session = read_session(file)
    path = html or Path(f"{FileNames().of(session.id)}.html")
    write_page(session_page(session), path)
    Console().print(f"wrote {path}", highlight=False, markup=False)


@app.command()
def synth(
    out: Out,
    sessions: Annotated[int, typer.Option(help="How many sessions.")] = _DEFAULTS.sessions,
    seed: Annotated[int, typer.Option(help="The same seed makes the same files.")] = _DEFAULTS.seed,
    turns_median: Annotated[float, typer.Option(help="Calls per session, sub-agents' too.")] = _DEFAULTS.turns_median,
    turns_p90: float = _DEFAULTS.turns_p90,
    input_median: Annotated[float, typer.Option(help="Prompt tokens per call.")] = _DEFAULTS.input_median,
    input_p90: float = _DEFAULTS.input_p90,
    output_median: Annotated[float, typer.Option(help="Answer tokens per call.")] = _DEFAULTS.output_median,
    output_p90: float = _DEFAULTS.output_p90,
    gap_median_s: Annotated[float, typer.Option(help="Seconds between turns.")] = _DEFAULTS.gap_median_s,
    gap_p90_s: float = _DEFAULTS.gap_p90_s,
    subagent_share: Annotated[float, typer.Option(help="Sessions with sub-agents.")] = _DEFAULTS.subagent_share,
    subagents_median: Annotated[float, typer.Option(help="Sub-agents in those.")] = _DEFAULTS.subagents_median,
    cut_share: Annotated[float, typer.Option(help="Turns that cut the prefix.")] = _DEFAULTS.cut_share,
    tool_tokens: Annotated[int, typer.Option(help="Tool definitions.")] = _DEFAULTS.tool_tokens,
    system_tokens: Annotated[int, typer.Option(help="System prompt.")] = _DEFAULTS.system_tokens,
    block_tokens: Annotated[int, typer.Option(help="Tokens per block id.")] = _DEFAULTS.block_tokens,
    decode_tokens_per_s: Annotated[
        float, typer.Option(help="Of the server that the recorded times show.")
    ] = _DEFAULTS.decode_tokens_per_s,
    prefill_tokens_per_s: float = _DEFAULTS.prefill_tokens_per_s,
    overwrite: Overwrite = False,
) -> None:
    """Make sessions with given statistics; the defaults are those of real coding agents."""
    given = locals()
    config = SynthConfig(**{field.name: given[field.name] for field in fields(SynthConfig)})
    check_unused(out, "--out", overwrite=overwrite)
    _write_sessions(synthesise(config), out, config.sessions, "making")


@app.command()
def scale(
    paths: Paths,
    out: Out,
    factor: Annotated[float, typer.Option(help="1 divided by a whole number.")] = 0.0625,
    skip_bad: SkipBad = False,
    overwrite: Overwrite = False,
) -> None:
    """Shrink sessions to fit small models: every length is scaled, what is reused stays reused."""
    n = divisor(factor)
    counts, sizes = ReadCounts(), ScaleCounts()
    files = trace_files(paths)
    if any(out.resolve() == file.parent.resolve() for file in files):
        raise ConfigError(f"--out {out}: the sessions to scale are read from this folder; name another one")
    check_unused(out, "--out", overwrite=overwrite)
    # As one stream, so that calls of unmarked sub-agents stay where they stand in the file.
    sessions = read_sessions(files, skip_bad=skip_bad, counts=counts, find_unmarked=False)
    _write_sessions(scaled(sessions, n, sizes), out, None, "scaling")
    if sizes.emptied:
        Console(stderr=True).print(sizes.told(), style="yellow", highlight=False, markup=False, soft_wrap=True)
    _report_skipped(counts)


def _write_sessions(sessions: Iterator[SessionTree], out: Path, total: int | None, verb: str) -> None:
    """Makes the folder with the first session: when that already fails, nothing is left behind."""
    names = FileNames()
    written = 0
    with counted(Console(stderr=True), verb, total) as advance:
        for session in sessions:
            if not written:
                make_folder(out, "--out")
            write_weka(session, out / f"{names.of(session.id)}.json")
            written += 1
            advance(written)
    Console().print(f"wrote {written} sessions into {out}", highlight=False, markup=False)


def _show(found: TraceStats) -> None:
    console = output_console()
    width = console.width
    for block in stats_blocks(found):
        console.print(f"[bold]{block.title}[/]", highlight=False)
        table = _table(block)
        # On a narrow terminal lines are broken, where rich would leave out names and digits.
        console.width = max(width, Measurement.get(console, console.options.update(width=_WIDEST), table).maximum)
        console.print(table)
        console.width = width
        if block.help:
            console.print(f"[dim]{escape(block.help)}[/]", highlight=False)
        console.print()


def _table(block: Block) -> Table:
    shown = any(block.columns)
    table = Table(show_header=shown, box=box.SIMPLE_HEAD, pad_edge=False, padding=(0, 1, 0, 0), show_edge=False)
    for at, column in enumerate(block.columns):
        table.add_column(escape(column), justify="left" if at == 0 else "right", no_wrap=True)
    for row in block.rows:
        table.add_row(*(escape(cell) for cell in row))
    return table


def _write_json(found: TraceStats, path: Path) -> None:
    data = msgspec.json.format(msgspec.json.encode(found), indent=2) + b"\n"
    if path == Path("-"):
        sys.stdout.write(data.decode())
        return
    try:
        path.write_bytes(data)
    except OSError as error:
        raise ConfigError(f"--json {path}: cannot be written: {error.strerror or error}") from None


def _report_skipped(counts: ReadCounts) -> None:
    if counts.skipped:
        console = Console(stderr=True)
        console.print(f"[yellow]skipped {len(counts.skipped)} of {counts.files} files:[/]", highlight=False)
        for message in counts.skipped:
            console.print(f"  {message}", highlight=False, markup=False, soft_wrap=True)


def _watched(sessions: Iterator[SessionTree], counts: ReadCounts, advance: Advance) -> Iterator[SessionTree]:
    for session in sessions:
        advance(counts.files)
        yield session
    advance(counts.files)
