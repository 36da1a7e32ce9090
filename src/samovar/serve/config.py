"""What the server was told at start. Built by `cli`, validated here, never changed."""

from __future__ import annotations

from dataclasses import dataclass, field

from samovar.base.errors import ConfigError


@dataclass(frozen=True, slots=True)
class SamplingDefaults:
    """Values for fields that a client leaves out, in the terms of `core.sampling.SamplingParams`."""

    temperature: float = 1.0
    top_p: float = 1.0
    top_k: int = 0
    min_p: float = 0.0
    repetition_penalty: float = 1.0


@dataclass(frozen=True, slots=True)
class ServeConfig:
    """Raises ConfigError, naming the flag, for a value that cannot work."""

    model: str
    """Name shown when no other was given: the checkpoint's hub id or path."""
    served_model_names: tuple[str, ...] = ()
    """Empty: every name a client sends is served. Otherwise these and no other; the first is the canonical one."""
    host: str = "127.0.0.1"
    port: int = 8000
    """0 lets the system choose."""
    api_keys: tuple[str, ...] = field(default=(), repr=False)
    """Empty: open to everyone, all in one tenant."""
    max_body_bytes: int = 32 << 20
    max_n: int = 128
    max_choices: int = 1024
    """Prompts x n of one request."""
    max_logprobs: int = 20
    keepalive_s: float = 5.0
    """A stream that was silent for this long gets a comment line."""
    drain_timeout_s: float = 30.0
    """On SIGTERM, open requests get this long to finish."""
    dead_linger_s: float = 5.0
    """After the engine died the server answers 503 for this long, then exits with a failure code."""
    tokenize_threads: int = 2
    """Threads that parse, tokenise and hash long prompts."""
    access_log: bool = False
    sampling: SamplingDefaults = SamplingDefaults()

    def __post_init__(self) -> None:
        at_least: tuple[tuple[str, float, float], ...] = (
            ("--port", self.port, 0),
            ("--max-body-bytes", self.max_body_bytes, 1024),
            ("--max-n", self.max_n, 1),
            ("--max-choices", self.max_choices, self.max_n),
            ("--max-logprobs", self.max_logprobs, 0),
            ("--keepalive-s", self.keepalive_s, 0.01),
            ("--drain-timeout-s", self.drain_timeout_s, 0),
            ("--dead-linger-s", self.dead_linger_s, 0),
            ("--tokenize-threads", self.tokenize_threads, 1),
        )
        for flag, value, limit in at_least:
            if not value >= limit:
                raise ConfigError(f"{flag} is {value}; it must be at least {limit:g}")
        if self.port > 65535:
            raise ConfigError(f"--port is {self.port}; it must be at most 65535")
        if any(not key for key in self.api_keys):
            raise ConfigError("--api-key is empty; leave it out to serve without keys")
        if any(not name for name in (self.model, *self.served_model_names)):
            raise ConfigError("--served-model-name is empty; leave it out to serve every name")

    @property
    def canonical_model(self) -> str:
        return self.served_model_names[0] if self.served_model_names else self.model
