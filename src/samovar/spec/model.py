"""Shapes of a model, without torch: what the runner builds from and the cost model counts with."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Literal

from samovar.spec.dtype import ELEMENT_BYTES, KV_SCALE_BYTES, KVDTypeName


@dataclass(frozen=True, slots=True)
class RopeSpec:
    """Rotary embedding. `kind` "llama3" and "yarn" take their parameters from `parameters`, named as in Hugging Face
    configurations (`factor`, `original_max_position_embeddings`, `low_freq_factor`, `beta_fast`, ...)."""

    theta: float
    kind: Literal["default", "linear", "llama3", "yarn"] = "default"
    parameters: dict[str, float] = field(default_factory=dict)


@dataclass(frozen=True, slots=True)
class ModelSpec:
    """A dense decoder of the llama family."""

    architecture: str
    """"llama", "mistral", "qwen2" or "qwen3"."""
    vocab_size: int
    hidden_size: int
    intermediate_size: int
    num_layers: int
    num_heads: int
    num_kv_heads: int
    head_dim: int
    rms_norm_eps: float
    rope: RopeSpec
    max_position_embeddings: int
    tie_word_embeddings: bool = False
    qkv_bias: bool = False
    o_bias: bool = False
    mlp_bias: bool = False
    qk_norm: bool = False

    def kv_bytes_per_token(self, element_bytes: int) -> int:
        """K and V over all layers."""
        return 2 * self.num_layers * self.num_kv_heads * self.head_dim * element_bytes

    def kv_bytes_per_token_in(self, dtype: KVDTypeName) -> int:
        """As `kv_bytes_per_token`, with what is kept beside the elements."""
        if dtype == "int8":
            return self.kv_bytes_per_token(1) + 2 * self.num_layers * self.num_kv_heads * KV_SCALE_BYTES
        return self.kv_bytes_per_token(ELEMENT_BYTES[dtype])

    def num_parameters(self) -> int:
        qkv = self.hidden_size * (self.num_heads + 2 * self.num_kv_heads) * self.head_dim
        out = self.num_heads * self.head_dim * self.hidden_size
        mlp = 3 * self.hidden_size * self.intermediate_size
        norms = 2 * self.hidden_size + (2 * self.head_dim if self.qk_norm else 0)
        biases = (self.num_heads + 2 * self.num_kv_heads) * self.head_dim if self.qkv_bias else 0
        biases += self.hidden_size if self.o_bias else 0
        biases += 2 * self.intermediate_size + self.hidden_size if self.mlp_bias else 0
        embeddings = self.vocab_size * self.hidden_size * (1 if self.tie_word_embeddings else 2)
        return self.num_layers * (qkv + out + mlp + norms + biases) + embeddings + self.hidden_size
