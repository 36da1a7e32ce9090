"""How one model is spread over the ranks of one DP group, and how its steps are launched."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Literal, get_args

from samovar.base.errors import ConfigError
from samovar.spec.attention_shape import GqaShape
from samovar.spec.model_shape import ModelShape
from samovar.spec.number_format import FORMATS, NumberFormat

Mode = Literal["eager", "graph", "mono"]
MoeComm = Literal["fused", "a2a", "ag_rs"]
DcpComm = Literal["ag_rs", "a2a"]


@dataclass(frozen=True, slots=True)
class Layout:
    """`tp` ranks compute one rank of the DP group, `dp` of those run in step, so `tp * dp` devices in all. Engines that
    do not wait for each other are groups of their own."""

    tp: int = 1
    dp: int = 1
    ep: bool = False
    """Whole experts are divided over all devices; else each expert is."""
    dcp: int = 1
    """Decode context parallelism: KV by token over that many of the tp ranks."""
    mode: Mode = "graph"
    moe_comm: MoeComm = "ag_rs"
    """Between ranks of a DP group. fused: the exchange is inside the experts' kernel and hides behind it. a2a:
    dispatch and combine. ag_rs: all-gather and reduce-scatter, vLLM's default."""
    dcp_comm: DcpComm = "ag_rs"
    dcp_q_replicate: bool = False
    """Every DCP rank computes the group's queries, so that they need no gathering."""
    overlap: float = 0.0
    """Share of the shorter one of computing and exchanging that hides behind the other, 0 to 1."""
    kv_format: str = "auto"

    @property
    def devices(self) -> int:
        return self.tp * self.dp

    def kv(self, model: ModelShape) -> NumberFormat:
        return model.kv_format if self.kv_format == "auto" else FORMATS[self.kv_format]

    def check(self, model: ModelShape) -> None:
        """Raises ConfigError for a layout that this model cannot have; messages name the engine's flags."""
        for flag, value in (("--tensor-parallel-size", self.tp), ("--data-parallel-size", self.dp)):
            if value < 1:
                raise ConfigError(f"{flag} is {value}; it must be at least 1")
        if self.kv_format != "auto" and self.kv_format not in FORMATS:
            raise ConfigError(f"--kv-cache-dtype is {self.kv_format!r}; known: auto, {', '.join(FORMATS)}")
        if not 0 <= self.overlap <= 1:
            raise ConfigError(f"overlap is {self.overlap}; it must be between 0 and 1")
        for name, chosen, kinds in (
            ("mode", self.mode, get_args(Mode)),
            ("moe_comm", self.moe_comm, get_args(MoeComm)),
            ("dcp_comm", self.dcp_comm, get_args(DcpComm)),
        ):
            if chosen not in kinds:
                raise ConfigError(f"{name} is {chosen!r}; it must be one of {', '.join(kinds)}")
        if self.mode == "mono" and (self.dp > 1 or self.ep or self.dcp > 1):
            raise ConfigError(
                "--monokernel works with tensor parallelism alone, not with --data-parallel-size,"
                " --enable-expert-parallel or --decode-context-parallel-size"
            )
        self._check_experts(model)
        self._check_heads(model)

    def _check_experts(self, model: ModelShape) -> None:
        if model.moe is None:
            if self.dp > 1:
                raise ConfigError(
                    f"--data-parallel-size is {self.dp}, but {model.name} has no experts: its ranks do not wait for"
                    " each other, so make each one a group of its own, with 1"
                )
            if self.ep:
                raise ConfigError(f"--enable-expert-parallel: {model.name} has no experts")
        elif self.ep and model.moe.experts % self.devices:
            raise ConfigError(
                f"--enable-expert-parallel: {model.moe.experts} experts of {model.name} are no multiple of"
                f" {self.devices} devices"
            )

    def _check_heads(self, model: ModelShape) -> None:
        if self.dcp < 1 or self.tp % self.dcp:
            raise ConfigError(
                f"--decode-context-parallel-size is {self.dcp}; it must divide --tensor-parallel-size, {self.tp}"
            )
        for shape in model.attention:
            if shape.heads % self.tp:
                raise ConfigError(
                    f"--tensor-parallel-size is {self.tp}; it must divide the {shape.heads} heads of {model.name}"
                )
            if isinstance(shape, GqaShape) and self.dcp > max(1, self.tp // shape.kv_heads):
                raise ConfigError(
                    f"--decode-context-parallel-size is {self.dcp}; {model.name} has {shape.kv_heads} KV heads, so at"
                    f" most {max(1, self.tp // shape.kv_heads)} of {self.tp} ranks keep the same one"
                )
