"""`samovar bench kv`: what the KV tiers reach of a plain copy and of a plain read."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import asdict
from pathlib import Path
from typing import Annotated

from rich.box import SIMPLE_HEAD
from rich.table import Table
import typer

from samovar.base.errors import ConfigError
from samovar.base.units import parse_bytes
from samovar.bench.kv import KVBench, KVRun, pool_shapes, run
from samovar.bench.kv_figures import KVFigure
from samovar.cli.bench_tables import seconds
from samovar.cli.surroundings import cache_dir, output_console
from samovar.models.locate import DEFAULT_MODEL, locate
from samovar.workload.result import bench_result, write_result


def kv(
    size: Annotated[str, typer.Option(help="Block sizes, besides the model's own.")] = "2MiB,256KiB",
    threads: Annotated[str, typer.Option(help="How many at a time.")] = "1,2",
    disk: Annotated[
        Path | None, typer.Option(help="A folder to measure the disk in; its files are removed.", show_default="none")
    ] = None,
    memory: Annotated[str, typer.Option(help="Of each of the three regions blocks are copied between.")] = "512MiB",
    disk_bytes: Annotated[str, typer.Option(help="Of the files that are read.")] = "512MiB",
    repeats: Annotated[int, typer.Option(help="Samples of each; medians are shown.")] = 7,
    model: Annotated[
        str, typer.Option(help="A Hugging Face folder, a .gguf file or a hub id.", show_default=DEFAULT_MODEL)
    ] = DEFAULT_MODEL,
    block_size: Annotated[int, typer.Option(help="Tokens per KV block.")] = 16,
    kv_cache_dtype: Annotated[str, typer.Option(help="bfloat16 or int8.")] = "bfloat16",
    seed: Annotated[int, typer.Option(help="Of contents and orders.")] = 0,
    download_dir: Annotated[
        Path | None, typer.Option(help="Where downloads are kept.", show_default="user cache")
    ] = None,
    json: Annotated[Path | None, typer.Option(help="Write the result here.")] = None,
) -> None:
    """Put, get, store and load of KV blocks with their checksums, and the disk log: speeds beside plain operations."""
    bench = KVBench(
        sizes_bytes=tuple(parse_bytes(word, "--size") for word in _words("--size", size)),
        threads=_numbers("--threads", threads),
        repeats=repeats,
        memory_bytes=parse_bytes(memory, "--memory"),
        disk=disk,
        disk_bytes=parse_bytes(disk_bytes, "--disk-bytes"),
        seed=seed,
    )
    spec = locate(model, download_dir or cache_dir()).spec
    shapes = pool_shapes(spec, block_size, kv_cache_dtype)
    with output_console(stderr=True).status("preparing") as status:
        measured = run(bench, shapes, status.update)
    _show(measured, bench)
    if json is not None:
        # Where the folder is is this machine's affair; whether there was one is not.
        config = asdict(bench) | {"disk": disk is not None}
        config |= {"model": Path(model).name, "block_size": block_size, "kv_cache_dtype": kv_cache_dtype}
        del config["seed"], config["repeats"]
        write_result(bench_result("kv", config, asdict(measured), seed=seed, repeats=repeats), json)


def _show(measured: KVRun, bench: KVBench) -> None:
    console = output_console()
    parts = (
        ("host tier, blocks of any kind", measured.host),
        ("host tier, the model's blocks", measured.blocks),
        ("disk", measured.disk),
    )
    for title, figures in parts:
        if figures:
            console.print(_table(f"{title}, median of {bench.repeats}", figures))
    missed = [figure for figure in measured.figures if figure.missed]
    if missed:
        console.print(f"{len(missed)} of these are below their target")


def _table(title: str, figures: Sequence[KVFigure]) -> Table:
    table = Table(title=title, box=SIMPLE_HEAD, title_justify="left")
    for index, column in enumerate(("what", "block", "threads", "per block", "speed", "share", "of", "target")):
        table.add_column(column, justify="left" if index in (0, 6) else "right")
    for figure in figures:
        own = figure.what == figure.beside
        table.add_row(
            figure.what,
            f"{figure.block_bytes / 1024:,.0f} KiB",
            str(figure.threads),
            seconds(figure.median_s),
            f"{figure.bytes_per_s / 1e9:.2f} GB/s",
            "" if own else f"{figure.share:.0%}",
            "" if own else figure.beside,
            "" if figure.target is None else f"{figure.target:.0%}{' MISSED' if figure.missed else ''}",
        )
    return table


def _words(flag: str, text: str) -> list[str]:
    words = [word.strip() for word in text.split(",") if word.strip()]
    if not words:
        raise ConfigError(f"{flag} is empty: give values with commas between them")
    return words


def _numbers(flag: str, text: str) -> tuple[int, ...]:
    words = _words(flag, text)
    if not all(word.isascii() and word.isdigit() for word in words):
        raise ConfigError(f"{flag} takes whole numbers with commas between them, got {text!r}")
    return tuple(dict.fromkeys(int(word) for word in words))
