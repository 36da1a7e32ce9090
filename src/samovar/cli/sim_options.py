"""Flags that `samovar simulate` and `samovar plan` share, and how they are read. An engine's flags keep their names."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import Annotated

import typer

from samovar.base.errors import ConfigError
from samovar.cli.load_options import RULES, dollars, pair
from samovar.cli.sim_checks import MOST_SECONDS, refuse_endless
from samovar.sim.cost.step_log import load_steps
from samovar.sim.cost.step_table import StepTable
from samovar.sim.plan_setup import Hardware, Rules
from samovar.sim.settings import Acceptance, FrontEnd
from samovar.spec.catalog import load_device, load_kernels, load_model
from samovar.workload.metrics_cost import Price, price_of
from samovar.workload.replay import ReplayConfig

HARDWARE, ENGINE = "Hardware and model", "Engine"
MOST_OUTSIDE = 1e6
"""Of a time outside the steps, in its flag's unit: no front end is as slow."""

Grace = Annotated[float, typer.Option("--grace", help="Seconds for the last requests.", rich_help_panel=RULES)]
FrontEndRequest = Annotated[
    float,
    typer.Option(
        "--front-end-request-ms", help="Milliseconds of a request outside the engine's steps.", rich_help_panel=RULES
    ),
]
FrontEndPrompt = Annotated[
    float,
    typer.Option(
        "--front-end-prompt-token-us", help="Microseconds of a prompt token outside the steps.", rich_help_panel=RULES
    ),
]
FrontEndOutput = Annotated[
    float,
    typer.Option(
        "--front-end-output-token-ms",
        help="Milliseconds from the end of a step until the client has its token.",
        rich_help_panel=RULES,
    ),
]

Model = Annotated[
    str,
    typer.Option("--model", help="A model's name (kimi-k2.6, ...), or a .toml file.", rich_help_panel=HARDWARE),
]
DeviceName = Annotated[
    str, typer.Option("--device", help="A device's name (B200, ...), or a .toml file.", rich_help_panel=HARDWARE)
]
Steps = Annotated[
    str | None,
    typer.Option(
        "--steps",
        help="Measured steps in place of the cost model: a .jsonl log, a .toml table, or a name.",
        show_default=False,
        rich_help_panel=HARDWARE,
    ),
]
MoeComm = Annotated[
    str,
    typer.Option(
        "--moe-comm", help="How experts exchange between ranks: fused, a2a or ag_rs.", rich_help_panel=HARDWARE
    ),
]
DcpComm = Annotated[
    str,
    typer.Option("--dcp-comm-backend", help="How DCP ranks exchange outputs: ag_rs or a2a.", rich_help_panel=HARDWARE),
]
DcpQReplicate = Annotated[
    bool,
    typer.Option("--dcp-q-replicate", help="Every DCP rank computes the group's queries.", rich_help_panel=HARDWARE),
]
Overlap = Annotated[
    float,
    typer.Option(
        "--overlap", help="Share of the shorter of computing and exchanging that is hidden.", rich_help_panel=HARDWARE
    ),
]
CacheDtype = Annotated[
    str, typer.Option("--kv-cache-dtype", help="auto: as the model's file says.", rich_help_panel=HARDWARE)
]
Utilization = Annotated[
    float, typer.Option("--gpu-memory-utilization", help="Share of the device's memory.", rich_help_panel=HARDWARE)
]

MaxModelLen = Annotated[
    int | None,
    typer.Option(
        "--max-model-len", help="Context length in tokens.", show_default="the load's longest", rich_help_panel=ENGINE
    ),
]
MaxNumSeqs = Annotated[int, typer.Option("--max-num-seqs", help="Requests on a rank at once.", rich_help_panel=ENGINE)]
BatchedTokens = Annotated[
    int, typer.Option("--max-num-batched-tokens", help="Tokens of a rank per step.", rich_help_panel=ENGINE)
]
SpeculativeTokens = Annotated[
    int, typer.Option("--num-speculative-tokens", help="Tokens drafted per decode step.", rich_help_panel=ENGINE)
]
AcceptanceLength = Annotated[
    float | None,
    typer.Option(
        "--acceptance-length",
        help="Tokens of a decode step, the sampled one included (2.49 at 3 drafts).",
        show_default=False,
        rich_help_panel=ENGINE,
    ),
]


def hardware_of(model: str, device: str, gpus: int, steps: str | None) -> Hardware:
    """Raises ConfigError for names and files that are not known, among them the kernel figures that the device names:
    not only when they are needed, which is after all traces were read."""
    with _named("--device"):
        found = load_device(device)
        load_kernels(found.kernels)
    with _named("--model"):
        shape = load_model(model)
    return Hardware(shape, found, gpus, None if steps is None else _measured(steps))


@contextmanager
def _named(flag: str) -> Iterator[None]:
    """Complaints about a name or a file begin with the flag that gives it."""
    try:
        yield
    except ConfigError as error:
        raise ConfigError(f"{flag}: {error.message}", param=error.param) from None


def _measured(name: str) -> StepTable:
    with _named("--steps"):
        table = load_steps(name)
    if len(prefill := table.knots[1]) == 1:
        raise ConfigError(
            f"--steps {name}: all its steps compute {prefill[0]:g} tokens of prompts, which does not tell what a "
            "prompt takes; steps with and without prompts are needed"
        )
    return table


def acceptance_of(drafts: int, length: float | None) -> Acceptance:
    if drafts == 0 and length is not None:
        raise ConfigError(f"--acceptance-length {length:g} has no effect without --num-speculative-tokens")
    if drafts and length is None:
        raise ConfigError(
            f"--num-speculative-tokens {drafts} needs --acceptance-length: how many tokens a step gives on average, "
            f"the sampled one included, from 1 to {1 + drafts}"
        )
    try:
        return Acceptance(drafts, 1.0 if length is None else length)
    except ConfigError as error:
        flags = {"drafts": "--num-speculative-tokens", "mean_tokens": "--acceptance-length"}
        name = error.param or ""
        raise ConfigError(error.message.replace(name, flags.get(name, name), 1), param=name) from None


def front_end_of(request_ms: float, prompt_token_us: float, output_token_ms: float) -> FrontEnd:
    times = {
        "--front-end-request-ms": request_ms,
        "--front-end-prompt-token-us": prompt_token_us,
        "--front-end-output-token-ms": output_token_ms,
    }
    refuse_endless(times)
    for flag, value in times.items():
        if not 0 <= value <= MOST_OUTSIDE:
            raise ConfigError(f"{flag} is {value:g}; it must be from 0 to {MOST_OUTSIDE:g}")
    return FrontEnd(request_ms / 1e3, prompt_token_us / 1e6, output_token_ms / 1e3)


def rules_of(
    *,
    duration: float,
    grace: float,
    start: str,
    warmup_calls: int,
    time_scale: float,
    idle_cap: float,
    tree_idle_cap: float,
    sessions: int | None,
    seed: int,
    front_end: FrontEnd,
) -> Rules:
    """At concurrency 1. Raises ConfigError. Idle caps may be infinite: nothing is cut out then."""
    refuse_endless({"--duration": duration, "--grace": grace, "--time-scale": time_scale})
    if duration > MOST_SECONDS:
        raise ConfigError(f"--duration is {duration:g} s; it must be at most {MOST_SECONDS:g}")
    start_from, start_to = pair("--start", start, float)
    replay = ReplayConfig(
        concurrency=1,
        start_from=start_from,
        start_to=start_to,
        warmup_calls=warmup_calls,
        time_scale=time_scale,
        tree_idle_cap_s=tree_idle_cap,
        idle_cap_s=idle_cap,
        max_visits=sessions,
        seed=seed,
    )
    return Rules(replay=replay, duration_s=duration, grace_s=grace, front_end=front_end)


def price_for(device: str, text: str | None, table: Path | None) -> Price | None:
    """None for a device without a price, when nobody gave one. Raises ConfigError for what is given and wrong."""
    given = dollars(text)
    try:
        return price_of(device, table, own=given.get("own"), rent=given.get("rent"))
    except ConfigError as error:
        if table is None and error.param == "gpu":
            return None
        raise ConfigError(error.message.replace("--gpu", "--device"), param=error.param) from None


def load_words(trace: Sequence[Path], scale: float, fit_by: str, skip_bad: bool, rules: Rules) -> tuple[str, ...]:
    """The load and its rules as flags of `samovar simulate`; what is the default there is left out."""
    replay, usual = rules.replay, ReplayConfig(concurrency=1)
    words = [word for path in trace for word in ("--trace", str(path))]
    for flag, value, default in (
        ("--scale", scale, 1.0),
        ("--time-scale", replay.time_scale, usual.time_scale),
        ("--warmup-calls", replay.warmup_calls, usual.warmup_calls),
        ("--idle-cap", replay.idle_cap_s, usual.idle_cap_s),
        ("--tree-idle-cap", replay.tree_idle_cap_s, usual.tree_idle_cap_s),
        ("--seed", replay.seed, usual.seed),
        ("--grace", rules.grace_s, Rules(replay=usual, duration_s=1).grace_s),
        ("--front-end-request-ms", rules.front_end.request_s * 1e3, 0.0),
        ("--front-end-prompt-token-us", rules.front_end.prompt_token_s * 1e6, 0.0),
        ("--front-end-output-token-ms", rules.front_end.output_token_s * 1e3, 0.0),
    ):
        if value != default:
            words += [flag, str(value)]
    if (replay.start_from, replay.start_to) != (usual.start_from, usual.start_to):
        words += ["--start", f"{replay.start_from}:{replay.start_to}"]
    words += ["--fit", fit_by] if fit_by != "skip" else []
    return (*words, "--skip-bad") if skip_bad else tuple(words)
