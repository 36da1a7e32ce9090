"""`samovar serve`: puts the parts together and runs them. The process that answers HTTP never imports torch."""

from __future__ import annotations

import asyncio
from dataclasses import replace
from datetime import datetime
import logging
from pathlib import Path
import socket
from typing import Annotated

from rich.console import Console
from rich.markup import escape
import typer
import uvloop

from samovar.base.errors import ConfigError
from samovar.base.units import parse_bytes
from samovar.cli import kv_options
from samovar.cli.serve_start import progress, recorded, start_line
from samovar.cli.surroundings import cache_dir, instruction_set, set_up_log
from samovar.cli.template_check import volatile_rules, warn_of_break
from samovar.models.locate import DEFAULT_MODEL, locate
from samovar.runner.client import EngineClient
from samovar.runner.config import EngineProcessConfig
from samovar.serve.config import SamplingDefaults, ServeConfig, StoreLimits
from samovar.serve.run import listen
from samovar.serve.run import serve as serve_http
from samovar.text.checkpoint import load_text
from samovar.text.sampling_defaults import sampling_defaults
from samovar.text.turns.volatile import DEFAULT_RULES

log = logging.getLogger("samovar")

MODEL, SCHEDULING, AGENTS, HTTP, DEBUGGING = "Model", "Scheduling", "Agents", "Server", "Debugging"


def serve(
    model: Annotated[
        str,
        typer.Argument(help="A Hugging Face folder, a .gguf file or a hub id.", show_default=DEFAULT_MODEL),
    ] = DEFAULT_MODEL,
    # -- model
    dtype: Annotated[
        str,
        typer.Option(
            help="auto, float32 or bfloat16. auto: bfloat16 on native kernels, else the checkpoint's own. "
            "float32: exact, on PyTorch.",
            rich_help_panel=MODEL,
        ),
    ] = "auto",
    quantization: Annotated[
        str,
        typer.Option(
            help="auto: a GGUF file in its own quantisation, safetensors in bfloat16. none: everything in bfloat16. "
            "int8: everything in 8 bits.",
            rich_help_panel=MODEL,
        ),
    ] = "auto",
    monokernel: Annotated[
        str,
        typer.Option(
            help="auto, on or off: run a decode step as one native call. auto: up to as many rows as it gains for, "
            "measured once.",
            rich_help_panel=MODEL,
        ),
    ] = "auto",
    max_model_len: Annotated[
        int | None,
        typer.Option(help="Context length in tokens.", show_default="the checkpoint's", rich_help_panel=MODEL),
    ] = None,
    served_model_name: Annotated[
        list[str] | None,
        typer.Option(
            help="Names to answer to (several may follow); others are a 404. Without it every name is served.",
            rich_help_panel=MODEL,
            show_default=False,
        ),
    ] = None,
    chat_template: Annotated[
        Path | None, typer.Option(help="A Jinja file in place of the checkpoint's template.", rich_help_panel=MODEL)
    ] = None,
    generation_config: Annotated[
        str,
        typer.Option(
            help="auto: sampling defaults from the checkpoint's generation_config.json. vllm: the API's own.",
            rich_help_panel=MODEL,
        ),
    ] = "auto",
    download_dir: Annotated[
        Path | None, typer.Option(help="Where downloads are kept.", show_default="user cache", rich_help_panel=MODEL)
    ] = None,
    num_threads: Annotated[
        int | None, typer.Option(help="Threads of one operator.", show_default="all cores", rich_help_panel=MODEL)
    ] = None,
    # -- KV cache
    block_size: kv_options.BlockSize = 16,
    kv_cache_memory_bytes: kv_options.CacheMemoryBytes = None,
    kv_cache_dtype: kv_options.CacheDtype = "auto",
    num_gpu_blocks_override: kv_options.NumBlocksOverride = None,
    enable_prefix_caching: kv_options.EnablePrefixCaching = True,
    kv_transfer_config: kv_options.TransferConfig = None,
    kv_offloading_size: kv_options.OffloadingSize = None,
    kv_disk_path: kv_options.DiskPath = None,
    kv_disk_size: kv_options.DiskSize = None,
    kv_disk_write_budget: kv_options.DiskWriteBudget = None,
    kv_verify: kv_options.Verify = 0,
    retention_policy: kv_options.RetentionPolicy = "agent",
    retention_ttl_s: kv_options.RetentionTTL = None,
    # -- scheduling
    max_num_seqs: Annotated[
        int, typer.Option(help="Requests on the device at once.", rich_help_panel=SCHEDULING)
    ] = 256,
    max_num_batched_tokens: Annotated[
        int | None,
        typer.Option(
            help="Tokens per step.",
            show_default="what takes 200 ms, measured",
            rich_help_panel=SCHEDULING,
        ),
    ] = None,
    max_num_mixed_prefill_tokens: Annotated[
        int | None,
        typer.Option(
            help="Prefill tokens of a step in which other requests decode; 0: no limit.",
            show_default="what takes 50 ms, measured; none on PyTorch",
            rich_help_panel=SCHEDULING,
        ),
    ] = None,
    long_prefill_token_threshold: Annotated[
        int,
        typer.Option(
            help="Prefill tokens per request and step while another could run; 0: no limit.",
            rich_help_panel=SCHEDULING,
        ),
    ] = 0,
    prefill_schedule_interval: Annotated[
        int, typer.Option(help="Prefill in every Nth step only.", rich_help_panel=SCHEDULING)
    ] = 1,
    async_scheduling: Annotated[
        bool, typer.Option(help="Plan the next step while one runs.", rich_help_panel=SCHEDULING)
    ] = True,
    max_num_queued_reqs: Annotated[
        int, typer.Option(help="Waiting requests at most, then 429; 0: no limit.", rich_help_panel=SCHEDULING)
    ] = 1024,
    max_num_queued_tokens: Annotated[
        int,
        typer.Option(help="Uncached prompt tokens waiting at most, then 429; 0: no limit.", rich_help_panel=SCHEDULING),
    ] = 0,
    max_num_queued_reqs_per_tenant: Annotated[
        int,
        typer.Option(
            help="Waiting requests of one API key at most, then 429; 0: no limit.", rich_help_panel=SCHEDULING
        ),
    ] = 0,
    max_num_queued_tokens_per_tenant: Annotated[
        int,
        typer.Option(
            help="Uncached prompt tokens of one API key waiting at most, then 429; 0: no limit.",
            rich_help_panel=SCHEDULING,
        ),
    ] = 0,
    # -- agents
    tool_call_parser: Annotated[
        str,
        typer.Option(
            help="How the model writes tool calls: auto (what the chat template is written for), or a format's name.",
            rich_help_panel=AGENTS,
        ),
    ] = "auto",
    reasoning_parser: Annotated[
        str, typer.Option(help="How it writes reasoning: auto, none, or a format's name.", rich_help_panel=AGENTS)
    ] = "auto",
    max_stored_responses: Annotated[
        int,
        typer.Option(help="Responses kept for previous_response_id, of all callers; 0: none.", rich_help_panel=AGENTS),
    ] = 1000,
    max_stored_response_bytes: Annotated[
        str, typer.Option(help="What they may take together.", rich_help_panel=AGENTS)
    ] = "256MiB",
    # -- server
    host: Annotated[str, typer.Option(help="Address to listen on.", rich_help_panel=HTTP)] = "127.0.0.1",
    port: Annotated[int, typer.Option(help="0: any free one.", rich_help_panel=HTTP)] = 8000,
    api_key: Annotated[
        list[str] | None,
        typer.Option(
            help="Keys to ask for (several may follow). Each is a tenant with a cache of its own.",
            envvar="SAMOVAR_API_KEY",
            rich_help_panel=HTTP,
            show_default=False,
        ),
    ] = None,
    max_body_bytes: Annotated[
        str, typer.Option(help="Largest request body, expanded.", rich_help_panel=HTTP)
    ] = "32MiB",
    max_logprobs: Annotated[
        int, typer.Option(help="Most likely tokens a client may ask for.", rich_help_panel=HTTP)
    ] = 20,
    max_connections: Annotated[int, typer.Option(help="Open connections at most.", rich_help_panel=HTTP)] = 4096,
    body_timeout_s: Annotated[
        float, typer.Option(help="An upload silent for this long is given up.", rich_help_panel=HTTP)
    ] = 60.0,
    keepalive_s: Annotated[
        float, typer.Option(help="A silent stream gets a comment after this long.", rich_help_panel=HTTP)
    ] = 5.0,
    drain_timeout_s: Annotated[
        float, typer.Option(help="Time for open requests to finish on SIGTERM.", rich_help_panel=HTTP)
    ] = 30.0,
    access_log: Annotated[bool, typer.Option(help="One line per request.", rich_help_panel=HTTP)] = False,
    cache_log: Annotated[
        bool,
        typer.Option(help="One line per request: tokens cached, tokens new, and why.", rich_help_panel=HTTP),
    ] = True,
    live_page: Annotated[
        bool, typer.Option(help="Show at / what the cache holds and why, for a browser.", rich_help_panel=HTTP)
    ] = True,
    record_trace: Annotated[
        Path | None,
        typer.Option(
            help="Record sessions into this folder, as traces without any text, for `samovar trace`.",
            rich_help_panel=HTTP,
        ),
    ] = None,
    volatile_lines: Annotated[
        list[str] | None,
        typer.Option(
            help="Lines of system messages that clients change from turn to turn: regular expressions for their "
            "beginning (several may follow). They do not reach the prompt. off: all lines do.",
            rich_help_panel=AGENTS,
            show_default=" ".join(DEFAULT_RULES),
        ),
    ] = None,
    # -- debugging
    record_path: Annotated[
        Path | None,
        typer.Option(help="Write every call into the scheduling core here, for replay.", rich_help_panel=DEBUGGING),
    ] = None,
    step_log: Annotated[
        Path | None,
        typer.Option(help="Write here what each step did and how long it took.", rich_help_panel=DEBUGGING),
    ] = None,
    debug: Annotated[bool, typer.Option(help="Tracebacks and more in the log.", rich_help_panel=DEBUGGING)] = False,
) -> None:
    """Serve a model over the OpenAI API."""
    console = Console(stderr=True)
    set_up_log(console, debug=debug)
    if num_gpu_blocks_override is not None and kv_cache_memory_bytes is not None:
        raise ConfigError(
            "--kv-cache-memory-bytes has no effect with --num-gpu-blocks-override, which gives the number of blocks "
            "itself: leave one of them out"
        )
    for flag, share in (
        ("--max-num-queued-reqs-per-tenant", max_num_queued_reqs_per_tenant),
        ("--max-num-queued-tokens-per-tenant", max_num_queued_tokens_per_tenant),
    ):
        if share and not api_key:
            raise ConfigError(f"{flag} {share} has no effect without --api-key: a key is what makes a tenant")
    if generation_config not in ("auto", "vllm"):
        raise ConfigError(f"--generation-config must be auto or vllm, got {generation_config!r}")
    downloads = download_dir or cache_dir()
    engine = EngineProcessConfig(
        model=model,
        cache_dir=str(downloads),
        dtype=dtype,
        quantization=quantization,
        kv_cache_dtype=kv_cache_dtype,
        isa=instruction_set(),
        monokernel=monokernel,
        block_size=block_size,
        num_gpu_blocks_override=num_gpu_blocks_override,
        kv_cache_memory_bytes=None
        if kv_cache_memory_bytes is None
        else parse_bytes(kv_cache_memory_bytes, "--kv-cache-memory-bytes"),
        max_model_len=max_model_len,
        max_num_seqs=max_num_seqs,
        max_num_batched_tokens=max_num_batched_tokens,
        max_num_mixed_prefill_tokens=max_num_mixed_prefill_tokens,
        depth=2 if async_scheduling else 1,
        long_prefill_token_threshold=long_prefill_token_threshold,
        prefill_schedule_interval=prefill_schedule_interval,
        max_num_queued_reqs=max_num_queued_reqs,
        max_num_queued_tokens=max_num_queued_tokens,
        max_num_queued_reqs_per_tenant=max_num_queued_reqs_per_tenant,
        max_num_queued_tokens_per_tenant=max_num_queued_tokens_per_tenant,
        enable_prefix_caching=enable_prefix_caching,
        kv_transfer_config=kv_transfer_config,
        kv_offloading_size=kv_offloading_size,
        kv_disk_path=None if kv_disk_path is None else str(Path(kv_disk_path).expanduser()),
        kv_disk_size=kv_disk_size,
        kv_disk_write_budget=kv_disk_write_budget,
        kv_verify=kv_verify,
        retention_policy=retention_policy,
        retention_ttl_s=retention_ttl_s,
        num_threads=num_threads,
        record_path=None if record_path is None else str(record_path),
        step_log=None if step_log is None else str(step_log),
        debug=debug,
    )
    server = ServeConfig(
        model=model,
        served_model_names=tuple(served_model_name or ()),
        tool_call_parser=tool_call_parser,
        reasoning_parser=reasoning_parser,
        stored_responses=_store_limits(max_stored_responses, max_stored_response_bytes),
        host=host,
        port=port,
        api_keys=tuple(api_key or ()),
        max_body_bytes=parse_bytes(max_body_bytes, "--max-body-bytes"),
        max_logprobs=max_logprobs,
        max_connections=max_connections,
        body_timeout_s=body_timeout_s,
        keepalive_s=keepalive_s,
        drain_timeout_s=drain_timeout_s,
        access_log=access_log,
        cache_log=cache_log,
        live_page=live_page,
        volatile_lines=volatile_rules(volatile_lines),
    )
    with listen(server) as listener:  # before anything slow: a taken port is known at once
        running = _run(
            console, engine, server, listener, downloads, chat_template, generation_config == "auto", record_trace
        )
        # The loop in C: a token costs this process a third less.
        with asyncio.Runner(loop_factory=uvloop.new_event_loop) as runner:
            raise typer.Exit(runner.run(running))


def _store_limits(responses: int, num_bytes: str) -> StoreLimits:
    most = parse_bytes(num_bytes, "--max-stored-response-bytes")
    # A caller's share: a quarter, so that one of them cannot push out everyone's.
    return StoreLimits(responses, most, most // 4)


async def _run(
    console: Console,
    engine: EngineProcessConfig,
    server: ServeConfig,
    listener: socket.socket,
    downloads: Path,
    chat_template: Path | None,
    checkpoint_defaults: bool,
    record_trace: Path | None,
) -> int:
    with console.status(f"starting {escape(engine.model)}") as status:
        checkpoint = await asyncio.to_thread(locate, engine.model, downloads)
        starting = asyncio.create_task(EngineClient.start(engine, lambda text: progress(console, status, text)))
        try:
            text = await asyncio.to_thread(load_text, checkpoint.path, datetime.now, chat_template, checkpoint.header)
            await asyncio.to_thread(warn_of_break, text, server.volatile_lines)
            if checkpoint_defaults:
                chosen = sampling_defaults(checkpoint.path)
                server = replace(server, sampling=SamplingDefaults(**chosen))
                log.info("sampling defaults: %s", chosen or "the API's own")
            service = await starting
        except BaseException:
            starting.cancel()
            await asyncio.gather(starting, return_exceptions=True)
            raise
    try:
        address, port = listener.getsockname()[:2]
        info = service.info
        log.info("%s", start_line(info, server.canonical_model, address, port))
        with recorded(service, server.canonical_model, record_trace) as watched:
            return await serve_http(watched, text.tokenizer, text.template, server, listener)
    finally:
        await service.close()
