"""`samovar bench kernels`, `decode` and `prefill`: what the native kernels reach of what the machine allows."""

from __future__ import annotations

from dataclasses import asdict
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from samovar.base.errors import ConfigError
from samovar.cli.bench_tables import limits_table, op_table, step_table
from samovar.cli.surroundings import cache_dir, instruction_set, output_console
from samovar.models.locate import DEFAULT_MODEL
from samovar.workload.result import bench_result, write_result

if TYPE_CHECKING:
    from samovar.bench.compute.setting import ComputeOptions, Setting

# What computes brings torch, whose import takes seconds: each command imports it when it runs.

Model = Annotated[
    str, typer.Option(help="A Hugging Face folder, a .gguf file or a hub id.", show_default=DEFAULT_MODEL)
]
Isa = Annotated[
    str | None, typer.Option(help="Instruction set of the native kernels.", show_default="SAMOVAR_ISA, or the best")
]
Threads = Annotated[int | None, typer.Option("--threads", "--num-threads", help="Of one op.", show_default="all cores")]
Quantized = Annotated[str, typer.Option(help="auto, none or int8, as for `samovar serve`.")]
Repeats = Annotated[int, typer.Option(help="Samples of each; medians are shown.")]
BlockSize = Annotated[int, typer.Option(help="Tokens per KV block.")]
Seed = Annotated[int, typer.Option(help="Of the random inputs.")]
Downloads = Annotated[Path | None, typer.Option(help="Where downloads are kept.", show_default="user cache")]
Json = Annotated[Path | None, typer.Option(help="Write the result here.")]
Torch = Annotated[bool, typer.Option("--torch/--no-torch", help="Also PyTorch's operators, eager, in bfloat16.")]


def kernels(
    model: Model = DEFAULT_MODEL,
    only: Annotated[str, typer.Option(help="Which ops.")] = "linear,attention,other",
    formats: Annotated[str, typer.Option(help="Of the linears' weights.")] = "bf16,q8,q4_0,q4_1,q4_k,q6_k",
    isa: Isa = None,
    threads: Threads = None,
    repeats: Repeats = 9,
    block_size: BlockSize = 16,
    seed: Seed = 0,
    download_dir: Downloads = None,
    json: Json = None,
) -> None:
    """Each native op at a model's shapes: time, and share of this machine's measured bandwidth or peak."""
    from samovar.bench.compute.figures import as_json
    from samovar.bench.compute.kernels import KernelOptions, run_kernels

    compute = _options(model, isa, threads, "auto", repeats, block_size, seed, download_dir)
    options = KernelOptions(compute, tuple(_words(only)), tuple(_words(formats)))
    with output_console(stderr=True).status("preparing") as status:
        run = run_kernels(options, status.update)
    console = output_console()
    console.print(limits_table(run.limits))
    console.print(op_table(_title(run.setting, compute), run.figures))
    if json is not None:
        more = {"only": list(options.groups), "formats": list(options.formats)}
        _write(json, "kernels", compute, run.setting, more, as_json(run.limits, run.figures))


def decode(
    model: Model = DEFAULT_MODEL,
    rows: Annotated[str, typer.Option(help="Sequences in a step: 1 to 64.")] = "1,2,4,8,16,32,64",
    depth: Annotated[str, typer.Option(help="Tokens before the step, of each.")] = "0,1024,4096",
    quantization: Quantized = "auto",
    torch: Torch = True,
    isa: Isa = None,
    threads: Threads = None,
    repeats: Repeats = 9,
    block_size: BlockSize = 16,
    seed: Seed = 0,
    download_dir: Downloads = None,
    json: Json = None,
) -> None:
    """One decode step: the mono program, the normal path and PyTorch, in turn."""
    from samovar.bench.compute.decode import DecodeOptions, run_decode
    from samovar.bench.compute.figures import as_json

    compute = _options(model, isa, threads, quantization, repeats, block_size, seed, download_dir)
    options = DecodeOptions(compute, _numbers("--rows", rows), _numbers("--depth", depth), torch)
    with output_console(stderr=True).status("preparing") as status:
        run = run_decode(options, status.update)
    console = output_console()
    console.print(limits_table(run.limits))
    console.print(step_table(_title(run.setting, compute), "rows", run.figures))
    if json is not None:
        more = {"rows": list(options.rows), "depth": list(options.depths), "torch": torch}
        _write(json, "decode", compute, run.setting, more, as_json(run.limits, run.figures))


def prefill(
    model: Model = DEFAULT_MODEL,
    tokens: Annotated[str, typer.Option(help="Lengths of cold prompts.")] = "512,4096",
    max_num_batched_tokens: Annotated[
        int | None, typer.Option(help="Tokens per step.", show_default="what takes 200 ms, measured")
    ] = None,
    quantization: Quantized = "auto",
    torch: Torch = True,
    isa: Isa = None,
    threads: Threads = None,
    repeats: Repeats = 5,
    block_size: BlockSize = 16,
    seed: Seed = 0,
    download_dir: Downloads = None,
    json: Json = None,
) -> None:
    """A cold prompt, until the logits of its last token: the native kernels and PyTorch, in turn."""
    from samovar.bench.compute.figures import as_json
    from samovar.bench.compute.prefill import PrefillOptions, run_prefill

    compute = _options(model, isa, threads, quantization, repeats, block_size, seed, download_dir)
    options = PrefillOptions(compute, _numbers("--tokens", tokens), max_num_batched_tokens, torch)
    with output_console(stderr=True).status("preparing") as status:
        run = run_prefill(options, status.update)
    console, steps = output_console(), run.steps
    console.print(limits_table(steps.limits))
    title = f"{_title(steps.setting, compute)}, steps of {run.step_tokens} tokens"
    console.print(step_table(title, "tokens", steps.figures))
    if json is not None:
        more = {"tokens": list(options.tokens), "max_num_batched_tokens": run.step_tokens, "torch": torch}
        _write(json, "prefill", compute, steps.setting, more, as_json(steps.limits, steps.figures))


def _options(
    model: str,
    isa: str | None,
    threads: int | None,
    quantization: str,
    repeats: int,
    block_size: int,
    seed: int,
    download_dir: Path | None,
) -> ComputeOptions:
    from samovar.bench.compute.setting import ComputeOptions

    folder = str(download_dir or cache_dir())
    return ComputeOptions(
        model, folder, isa or instruction_set(), threads, quantization, repeats, block_tokens=block_size, seed=seed
    )


def _title(setting: Setting, compute: ComputeOptions) -> str:
    return f"{compute.model}: {setting.compute}, median of {compute.repeats}"


def _write(
    path: Path, name: str, compute: ComputeOptions, setting: Setting, more: dict[str, Any], measured: dict[str, Any]
) -> None:
    """What was asked for, with every "auto" as what it became. The model by its file's name: where it lies is this
    machine's affair."""
    config = asdict(compute) | {
        "model": Path(compute.model).name,
        "isa": setting.isa,
        "num_threads": setting.threads,
        "spec": asdict(setting.spec),
    }
    del config["cache_dir"], config["seed"], config["repeats"]
    result = bench_result(name, config | more, measured, seed=compute.seed, repeats=compute.repeats)
    write_result(result, path)


def _words(text: str) -> list[str]:
    return [word.strip() for word in text.split(",") if word.strip()]


def _numbers(flag: str, text: str) -> tuple[int, ...]:
    """Each once, in the order given. Raises ConfigError."""
    words = _words(text)
    if not words or not all(word.isascii() and word.isdigit() for word in words):
        raise ConfigError(f"{flag} takes whole numbers with commas between them, got {text!r}")
    return tuple(dict.fromkeys(int(word) for word in words))
