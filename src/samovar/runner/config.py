"""What an engine process is told at its start. Torch-free: the process that starts it builds this."""

from __future__ import annotations

from dataclasses import dataclass
import math

from samovar.base.errors import ConfigError
from samovar.core.config import refuse_wide_shares, refuse_without_effect
from samovar.kv.settings import TierSettings, tiers_of
from samovar.policy.choose import policy_names
from samovar.spec.dtype import DTYPES, QUANTIZATIONS

DTYPE_CHOICES = ("auto", *DTYPES)
KV_DTYPE_CHOICES = ("auto", "bfloat16", "int8")
DEVICES = ("cpu",)
MONOKERNEL_CHOICES = ("auto", "on", "off")
POLICIES = ("lru", "ttl", "agent")
"""Ours; others may be installed beside them."""
MOST_THREADS = 1024


@dataclass(frozen=True, slots=True, kw_only=True)
class EngineProcessConfig:
    """Fields carry vLLM's flag names where vLLM has the flag; None means "auto". Crosses the process border as JSON.

    Raises `ConfigError` for what can be refused without looking at the checkpoint or the machine.
    """

    model: str
    """A Hugging Face folder, a .gguf file or a hub id."""
    cache_dir: str
    """Where downloads are kept."""
    dtype: str = "auto"
    """Of activations, plain weights and KV. "auto": bfloat16 where native kernels run the model; elsewhere what
    safetensors weights are stored in, if that is one of the two, else float32. "float32" runs on PyTorch alone."""
    quantization: str = "auto"
    """What native kernels hold weights in. "auto": a GGUF file's own quantisation, safetensors as `dtype`; "none":
    everything as `dtype`; "int8": everything in 8 bits."""
    kv_cache_dtype: str = "auto"
    """"auto": as `dtype`. "int8": 8 bits with a scale per token and head, about half of bfloat16's memory; on native
    kernels alone."""
    isa: str = "auto"
    """Instruction set of the native kernels; "auto": the best this CPU has; "torch": none of them, PyTorch instead."""
    monokernel: str = "auto"
    """Whether decode steps run as one native call ("mono decode"). "auto": up to as many rows as it is measured to gain
    for; "on": up to 64; "off": never."""
    device: str = "cpu"
    block_size: int = 16
    num_gpu_blocks_override: int | None = None
    """Blocks of the pool; goes before `kv_cache_memory_bytes`."""
    kv_cache_memory_bytes: int | None = None
    """Auto: 4 GiB or half of the memory that is free once the weights are loaded, whichever is less."""
    max_model_len: int | None = None
    """Auto: the checkpoint's context, or what the pool holds if that is less."""
    max_num_seqs: int = 256
    max_num_batched_tokens: int | None = None
    """Auto: the largest step that stays under 200 ms at the measured prefill rate."""
    max_num_mixed_prefill_tokens: int | None = None
    """Auto: on native kernels what takes 50 ms; elsewhere no limit."""
    depth: int = 2
    long_prefill_token_threshold: int = 0
    prefill_schedule_interval: int = 1
    max_num_queued_reqs: int = 0
    max_num_queued_tokens: int = 0
    max_num_queued_reqs_per_tenant: int = 0
    max_num_queued_tokens_per_tenant: int = 0
    enable_prefix_caching: bool = True
    kv_transfer_config: str | None = None
    """Tiers below the device, in vLLM's JSON (`kv.config`); else the four that follow, as the flags have them."""
    kv_offloading_size: str | None = None
    kv_disk_path: str | None = None
    kv_disk_size: str | None = None
    kv_disk_write_budget: str | None = None
    kv_verify: int = 0
    """One load in so many is computed again and compared; 0: none."""
    retention_policy: str = "agent"
    """One of ours, or an entry point of the group `samovar.retention_policies`."""
    retention_ttl_s: float | None = None
    """Of policy "ttl"."""
    num_threads: int | None = None
    """Of one operator. Auto: the cores this process may run on; for PyTorch its own choice, the physical cores."""
    record_path: str | None = None
    """Where to write the log of every call into the core, for replay."""
    step_log: str | None = None
    """Where to write what each step did and how long it took."""
    debug: bool = False
    """Tracebacks in the log."""

    def __post_init__(self) -> None:
        self._choice("dtype", DTYPE_CHOICES)
        self._choice("quantization", QUANTIZATIONS)
        self._choice("kv_cache_dtype", KV_DTYPE_CHOICES)
        self._choice("monokernel", MONOKERNEL_CHOICES)
        self._choice("device", DEVICES)
        for name in ("block_size", "max_num_seqs", "depth", "prefill_schedule_interval"):
            self._at_least(name, 1)
        queues = ("max_num_queued_reqs", "max_num_queued_tokens")
        for name in (*queues, *(f"{name}_per_tenant" for name in queues), "long_prefill_token_threshold", "kv_verify"):
            self._at_least(name, 0)
        if self.max_num_mixed_prefill_tokens is not None:
            self._at_least("max_num_mixed_prefill_tokens", 0)
        optional = ("num_gpu_blocks_override", "kv_cache_memory_bytes", "max_model_len", "max_num_batched_tokens")
        for name in (*optional, "num_threads"):
            if getattr(self, name) is not None:
                self._at_least(name, 1)
        if self.num_threads is not None and self.num_threads > MOST_THREADS:
            raise ConfigError(
                f"--num-threads must be at most {MOST_THREADS}, got {self.num_threads}", param="num_threads"
            )
        refuse_without_effect(
            self.max_num_seqs,
            self.max_num_batched_tokens,
            self.long_prefill_token_threshold,
            self.prefill_schedule_interval,
        )
        self._check_retention()
        self._check_tiers()
        refuse_wide_shares(*((name, getattr(self, name), getattr(self, f"{name}_per_tenant")) for name in queues))

    def tiers(self) -> TierSettings | None:
        """Below the device; None for none."""
        return tiers_of(
            self.kv_transfer_config,
            offloading_size=self.kv_offloading_size,
            disk_path=self.kv_disk_path,
            disk_size=self.kv_disk_size,
            disk_write_budget=self.kv_disk_write_budget,
        )

    def _check_tiers(self) -> None:
        tiers = self.tiers()
        if tiers is None:
            if self.kv_verify:
                raise ConfigError(
                    f"--kv-verify {self.kv_verify} has no effect without a tier to load from: give "
                    "--kv-offloading-size or --kv-transfer-config",
                    param="kv_verify",
                )
            return
        flag = "--kv-transfer-config" if self.kv_transfer_config is not None else "--kv-offloading-size"
        flag = flag if self.kv_disk_path is None else "--kv-disk-path"
        if not self.enable_prefix_caching:
            raise ConfigError(f"{flag} has no effect without prefix caching, which says what is in the tiers")
        if tiers.load_failure_policy != "recompute":
            raise ConfigError(
                f"--kv-transfer-config: kv_load_failure_policy {tiers.load_failure_policy!r} is not supported: what "
                "cannot be loaded is computed; give recompute",
                param="kv_transfer_config",
            )

    def _check_retention(self) -> None:
        name, ttl_s = self.retention_policy, self.retention_ttl_s
        # Looking at what is installed takes a while.
        if name not in POLICIES:
            self._choice("retention_policy", policy_names())
        if ttl_s is None:
            return
        if name != "ttl":
            raise ConfigError(
                f"--retention-ttl-s {ttl_s} has no effect with --retention-policy {name}", param="retention_ttl_s"
            )
        if not 0 < ttl_s < math.inf:
            raise ConfigError(f"--retention-ttl-s must be more than 0, got {ttl_s}", param="retention_ttl_s")

    def _choice(self, name: str, allowed: tuple[str, ...]) -> None:
        value = getattr(self, name)
        if value not in allowed:
            raise ConfigError(f"{_flag(name)} must be one of {', '.join(allowed)}, got {value!r}", param=name)

    def _at_least(self, name: str, limit: int) -> None:
        value = getattr(self, name)
        if value < limit:
            raise ConfigError(f"{_flag(name)} must be at least {limit}, got {value}", param=name)


def _flag(name: str) -> str:
    return "--" + name.replace("_", "-")
