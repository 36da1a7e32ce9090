"""Flags of `samovar serve` about where KV is kept and what goes first. vLLM's names where vLLM has the flag."""

from __future__ import annotations

from typing import Annotated

import typer

PANEL = "KV cache"

BlockSize = Annotated[int, typer.Option("--block-size", help="Tokens per KV block.", rich_help_panel=PANEL)]
CacheMemoryBytes = Annotated[
    str | None,
    typer.Option(
        "--kv-cache-memory-bytes",
        help="Memory for KV: bytes, or with a unit (512MiB, 4GiB).",
        show_default="4GiB, or half of what is free",
        rich_help_panel=PANEL,
    ),
]
CacheDtype = Annotated[
    str,
    typer.Option("--kv-cache-dtype", help="auto, bfloat16 or int8. auto: as --dtype.", rich_help_panel=PANEL),
]
NumBlocksOverride = Annotated[
    int | None,
    typer.Option("--num-gpu-blocks-override", help="Number of KV blocks instead of a size.", rich_help_panel=PANEL),
]
EnablePrefixCaching = Annotated[
    bool,
    typer.Option(
        "--enable-prefix-caching/--no-enable-prefix-caching",
        help="Reuse the KV of prompts seen before.",
        rich_help_panel=PANEL,
    ),
]

TransferConfig = Annotated[
    str | None,
    typer.Option(
        "--kv-transfer-config",
        help="Tiers below the device, as vLLM's JSON: kv_connector, kv_role, kv_connector_extra_config.",
        rich_help_panel=PANEL,
    ),
]
OffloadingSize = Annotated[
    str | None,
    typer.Option(
        "--kv-offloading-size",
        help="Host memory for KV that the device has no room for: GiB, or with a unit (512MiB).",
        rich_help_panel=PANEL,
    ),
]
DiskPath = Annotated[
    str | None,
    typer.Option(
        "--kv-disk-path",
        help="Folder for KV that outlives a restart. Models may share it; each has its own size there.",
        rich_help_panel=PANEL,
    ),
]
DiskSize = Annotated[
    str | None,
    typer.Option("--kv-disk-size", help="What it may take there: GiB, or with a unit.", rich_help_panel=PANEL),
]
DiskWriteBudget = Annotated[
    str | None,
    typer.Option(
        "--kv-disk-write-budget",
        help="What may be written there per second on average (50MiB).",
        show_default="no limit",
        rich_help_panel=PANEL,
    ),
]
Verify = Annotated[
    int,
    typer.Option(
        "--kv-verify",
        help="Compute one load in this many again and compare; 0: none.",
        rich_help_panel=PANEL,
    ),
]
RetentionPolicy = Annotated[
    str,
    typer.Option(
        "--retention-policy",
        help="Which cached blocks go first: lru, ttl, agent (by when a conversation is expected back), or an entry "
        "point of the group samovar.retention_policies.",
        rich_help_panel=PANEL,
    ),
]
RetentionTTL = Annotated[
    float | None,
    typer.Option(
        "--retention-ttl-s",
        help="How long policy ttl keeps a conversation after its last turn.",
        show_default="300",
        rich_help_panel=PANEL,
    ),
]
