"""`samovar policy`: judge retention policies before they keep anything."""

from __future__ import annotations

from pathlib import Path
import sys
from typing import Annotated

import msgspec
from rich import box
from rich.console import Console
from rich.markup import escape
from rich.table import Table
import typer

from samovar.base.errors import ConfigError
from samovar.base.folders import check_writable
from samovar.bench.policy_eval import EvalConfig, EvalResult, evaluate
from samovar.bench.policy_eval_rows import eval_page, point_table, told, verdict_table
from samovar.bench.policy_eval_trace import ask
from samovar.cli.progress import counted
from samovar.cli.surroundings import output_console
from samovar.workload.reading import ReadCounts, read_sessions
from samovar.workload.result import bench_result, write_result
from samovar.workload.stats_page import write_page

app = typer.Typer(help="Judge what is kept in the cache.", no_args_is_help=True)

_DEFAULTS = EvalConfig()


@app.callback()
def policy() -> None:
    """Judge what is kept in the cache."""


@app.command("eval")
def eval_(
    trace: Annotated[list[Path], typer.Option(help="Trace files, or folders of them.")],
    capacity: Annotated[str, typer.Option(help="Sizes of the cache, as shares of all distinct blocks.")] = ",".join(
        map(str, _DEFAULTS.capacity)
    ),
    policy: Annotated[
        str, typer.Option(help="Policies: lru, ttl, agent, belady, and those of entry points.")
    ] = ",".join(_DEFAULTS.policies),
    hints: Annotated[
        str,
        typer.Option(help="What clients say: none, perfect, class, noisy, adversarial, all-release, all-retain."),
    ] = ",".join(_DEFAULTS.hints),
    seeds: Annotated[str, typer.Option(help="Of the times at which sessions start: 1-5, or 1,2,7.")] = "1-5",
    mean_start_gap: Annotated[
        float, typer.Option(help="Mean seconds between the starts of two sessions.")
    ] = _DEFAULTS.mean_start_gap_s,
    lru_range: Annotated[
        str, typer.Option(help="The gap counts where LRU hits so many percent of the tokens.")
    ] = "40-85",
    skip_bad: Annotated[bool, typer.Option("--skip-bad", help="Leave broken files out, and count them.")] = False,
    json: Annotated[Path | None, typer.Option(help="Write the figures here as JSON; - for stdout.")] = None,
    html: Annotated[Path | None, typer.Option(help="Write them here as a page with charts.")] = None,
) -> None:
    """Replay recorded sessions through the real prefix index under each policy: what hits, and how much of what LRU
    leaves to gain."""
    config = EvalConfig(
        capacity=tuple(_number(word, "--capacity") for word in _words(capacity)),
        policies=_words(policy),
        hints=_words(hints),
        seeds=_seeds(seeds),
        mean_start_gap_s=mean_start_gap,
        lru_range=_range(lru_range),
    )
    if json is not None and json != Path("-"):
        check_writable(json, "--json")
    if html == Path("-"):
        raise ConfigError("--html -: a page does not go to stdout; name a file")
    if html is not None:
        check_writable(html, "--html")
    counts = ReadCounts()
    asked = ask(read_sessions(trace, skip_bad=skip_bad, counts=counts))
    for message in counts.skipped:
        Console(stderr=True).print(f"skipped {message}", style="yellow", highlight=False, markup=False, soft_wrap=True)
    with counted(Console(stderr=True), "replaying", config.num_replays) as advance:
        result = evaluate(config, asked, advance)
    if json != Path("-"):
        _show(config, result)
    if json is not None:
        _write_json(config, result, json)
    if html is not None:
        write_page(eval_page(config, result), html)


def _words(text: str) -> tuple[str, ...]:
    return tuple(word.strip() for word in text.split(",") if word.strip())


def _number(word: str, flag: str) -> float:
    try:
        return float(word)
    except ValueError:
        raise ConfigError(f"{flag} has {word!r}; it must be a number") from None


def _seeds(text: str) -> tuple[int, ...]:
    """ "1-5", "1,2,7", "1-3,9"."""
    found: list[int] = []
    for word in _words(text):
        first, dash, last = word.partition("-")
        if not first.isdecimal() or (dash and not last.isdecimal()):
            raise ConfigError(f"--seeds has {word!r}; give whole numbers, or a range such as 1-5")
        found += range(int(first), int(last if dash else first) + 1)
        if len(found) > 1000:
            raise ConfigError(f"--seeds is {text!r}; at most 1000 seeds are replayed")
    return tuple(found)


def _range(text: str) -> tuple[float, float]:
    low, _, high = text.replace("%", "").partition("-")
    return _number(low, "--lru-range") / 100, _number(high, "--lru-range") / 100


def _show(config: EvalConfig, result: EvalResult) -> None:
    console = output_console()
    console.print(told(result), highlight=False)
    for hints in config.hints if config.judged else config.hints[:1]:
        console.print(f"\n[bold]Hit rate in % of prompt tokens, mean of {len(config.seeds)} seeds; hints: {hints}[/]")
        console.print(_table(*point_table(config, result, hints)))
    if config.judged:
        console.print("\n[bold]Over all points (one capacity, one seed)[/]", highlight=False)
        console.print(_table(*verdict_table(config, result), left=2))


def _table(columns: list[str], rows: list[list[str]], left: int = 1) -> Table:
    table = Table(box=box.SIMPLE_HEAD, pad_edge=False, padding=(0, 1, 0, 0), show_edge=False)
    for at, column in enumerate(columns):
        table.add_column(escape(column), justify="left" if at < left else "right", no_wrap=True)
    for row in rows:
        table.add_row(*(escape(cell) for cell in row))
    return table


def _write_json(config: EvalConfig, result: EvalResult, path: Path) -> None:
    made = bench_result(
        "policy eval", msgspec.to_builtins(config), msgspec.to_builtins(result), seed=config.seeds[0],
        repeats=len(config.seeds),
    )  # fmt: skip
    if path == Path("-"):
        sys.stdout.write(msgspec.json.format(msgspec.json.encode(made), indent=2).decode() + "\n")
        return
    write_result(made, path)
