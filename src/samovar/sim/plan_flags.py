"""A configuration as flags: of `samovar simulate`, which reproduces its figures, of `samovar serve`, and of vLLM.

Only what differs from a command's default is named.
"""

from __future__ import annotations

import json

from samovar.kv.settings import TierSettings
from samovar.sim.cost.layout import Layout
from samovar.sim.plan_setup import Hardware, Setup, num_replicas, tiers_of_pool
from samovar.spec.attention_shape import CompressedShape

_DEFAULT_UTILIZATION = {"simulate": 0.9, "vllm": 0.92}


def simulate_flags(hardware: Hardware, setup: Setup, model: str, device: str) -> list[str]:
    """`model` and `device` as given on the command line; the load and its rules are the caller's to add."""
    words = ["--model", model, "--device", device, "--gpus", str(hardware.gpus)]
    words += _parallel(setup.layout)
    layout = setup.layout
    if layout.mode != "graph":
        words += ["--monokernel", "on"] if layout.mode == "mono" else ["--enforce-eager"]
    words += _exchanges(layout)
    if layout.kv_format != "auto":
        words += ["--kv-cache-dtype", layout.kv_format]
    words += _scheduling(setup) + _memory(setup, "simulate")
    if setup.acceptance.drafts:
        words += ["--num-speculative-tokens", str(setup.acceptance.drafts)]
        words += ["--acceptance-length", str(setup.acceptance.mean_tokens)]
    words += ["--retention-policy", setup.retention_policy]
    if setup.retention_ttl_s is not None:
        words += ["--retention-ttl-s", str(setup.retention_ttl_s)]
    words += ["--kv-shared"] if setup.shared_tiers else []
    return words + _tiers(tiers_of_pool(hardware, setup))


def serve_flags(hardware: Hardware, setup: Setup) -> list[str]:
    """What `samovar serve` has of it: one process serves one rank today, so layouts are not among its flags."""
    words = _scheduling(setup)
    words += ["--max-model-len", str(setup.max_model_len), "--retention-policy", setup.retention_policy]
    if setup.retention_ttl_s is not None:
        words += ["--retention-ttl-s", str(setup.retention_ttl_s)]
    words += ["--monokernel", "on" if setup.layout.mode == "mono" else "off"]
    return words + _tiers(tiers_of_pool(hardware, setup))


def vllm_flags(hardware: Hardware, setup: Setup) -> list[str]:
    layout = setup.layout
    words = _parallel(layout)
    if layout.mode == "mono":
        words.append("--monokernel")
    if layout.mode == "eager":
        words.append("--enforce-eager")
    if layout.dcp > 1 and layout.dcp_comm != "ag_rs":
        words += ["--dcp-comm-backend", layout.dcp_comm]
    if layout.dcp > 1 and layout.dcp_q_replicate:
        words.append("--dcp-q-replicate")
    words += _scheduling(setup) + _memory(setup, "vllm")
    if setup.acceptance.drafts:
        drafting = {"method": "mtp", "num_speculative_tokens": setup.acceptance.drafts}
        words += ["--speculative-config", json.dumps(drafting)]
    words += _tiers_of_vllm(tiers_of_pool(hardware, setup))
    return [*words, "--enable-prompt-tokens-details"]


def vllm_notes(hardware: Hardware, setup: Setup) -> list[str]:
    """What vLLM's flags cannot say, or does otherwise."""
    notes = []
    replicas = num_replicas(hardware, setup.layout)
    if replicas > 1:
        notes.append(f"start {replicas} of these and keep every session on one of them")
    if setup.layout.dp > 1 and setup.balancer == "sticky":
        notes.append("vLLM balances ranks by load: keep each session on one rank (X-data-parallel-rank)")
    if setup.retention_policy != "lru":
        notes.append(f"vLLM evicts by LRU; the figures are of retention policy {setup.retention_policy}")
    if setup.prefill_schedule_interval > 1 and setup.layout.dp == 1:
        notes.append("vLLM's --prefill-schedule-interval does nothing without data parallelism")
    if setup.layout.dcp > 1 and any(isinstance(one, CompressedShape) for one in hardware.model.attention):
        notes.append("vLLM has no decode context parallelism for attention with sliding windows")
    if setup.tiers is not None and setup.tiers.disk is not None:
        notes.append("the disk tier has no flag of vLLM's own")
    return notes


def _parallel(layout: Layout) -> list[str]:
    words = ["--tensor-parallel-size", str(layout.tp)]
    if layout.dp > 1:
        words += ["--data-parallel-size", str(layout.dp)]
    if layout.ep:
        words.append("--enable-expert-parallel")
    if layout.dcp > 1:
        words += ["--decode-context-parallel-size", str(layout.dcp)]
    return words


def _exchanges(layout: Layout) -> list[str]:
    words = []
    if layout.dp > 1 or layout.ep:
        words += ["--moe-comm", layout.moe_comm]
    if layout.dcp > 1:
        words += ["--dcp-comm-backend", layout.dcp_comm]
        words += ["--dcp-q-replicate"] if layout.dcp_q_replicate else []
    return words + (["--overlap", str(layout.overlap)] if layout.overlap else [])


def _scheduling(setup: Setup) -> list[str]:
    words = ["--max-num-seqs", str(setup.max_num_seqs), "--max-num-batched-tokens", str(setup.max_num_batched_tokens)]
    if setup.prefill_schedule_interval > 1:
        words += ["--prefill-schedule-interval", str(setup.prefill_schedule_interval)]
    if setup.long_prefill_token_threshold:
        words += ["--long-prefill-token-threshold", str(setup.long_prefill_token_threshold)]
    return words


def _memory(setup: Setup, command: str) -> list[str]:
    words = ["--max-model-len", str(setup.max_model_len)]
    if setup.num_gpu_blocks_override is not None:
        words += ["--num-gpu-blocks-override", str(setup.num_gpu_blocks_override)]
    elif setup.gpu_memory_utilization != _DEFAULT_UTILIZATION[command]:
        words += ["--gpu-memory-utilization", str(setup.gpu_memory_utilization)]
    return words


def _tiers(tiers: TierSettings | None) -> list[str]:
    if tiers is None:
        return []
    words: list[str] = []
    for host in tiers.hosts:
        if host.num_bytes is not None:
            words += ["--kv-offloading-size", _size(host.num_bytes)]
    return words + _disk(tiers)


def _disk(tiers: TierSettings) -> list[str]:
    if tiers.disk is None:
        return []
    words = ["--kv-disk-path", tiers.disk.path, "--kv-disk-size", _size(tiers.disk.num_bytes)]
    if tiers.disk.write_bytes_per_s is not None:
        words += ["--kv-disk-write-budget", _size(tiers.disk.write_bytes_per_s)]
    return words


def _tiers_of_vllm(tiers: TierSettings | None) -> list[str]:
    if tiers is None:
        return []
    gib = sum(host.num_bytes or 0 for host in tiers.hosts) / (1 << 30)
    return ["--kv-offloading-size", f"{gib:g}", "--kv-offloading-backend", "native"]


def _size(num_bytes: int) -> str:
    gib, rest = divmod(num_bytes, 1 << 30)
    return f"{num_bytes}B" if rest else f"{gib}GiB"
