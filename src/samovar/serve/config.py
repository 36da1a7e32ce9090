"""What the server was told at start. Built by `cli`, validated here, never changed."""

from __future__ import annotations

from dataclasses import dataclass, field
import math

from samovar.base.errors import ConfigError
from samovar.base.shown import shown
from samovar.text.turns.volatile import DEFAULT_RULES, VolatileLines


@dataclass(frozen=True, slots=True)
class SamplingDefaults:
    """Values for fields that a client leaves out, in the terms of `core.sampling.SamplingParams`. Bounded like the
    client's own (`bodies`): raises ConfigError with the field as `param`, since every request would carry it."""

    temperature: float = 1.0
    top_p: float = 1.0
    top_k: int = 0
    """0 and -1 are off."""
    min_p: float = 0.0
    repetition_penalty: float = 1.0

    def __post_init__(self) -> None:
        _number("temperature", self.temperature, 0, 2)
        _number("top_p", self.top_p, 0, 1, above=True)
        _number("top_k", self.top_k, -1, 2**31 - 1, whole=True)
        _number("min_p", self.min_p, 0, 1)
        _number("repetition_penalty", self.repetition_penalty, 0.01, 100)


def _number(name: str, value: object, low: float, high: float, *, above: bool = False, whole: bool = False) -> None:
    """`above`: the lower bound itself is not allowed."""
    kinds = int if whole else (int, float)
    good = isinstance(value, kinds) and not isinstance(value, bool) and math.isfinite(value) and low <= value <= high
    if not good or (above and value == low):
        kind = "an integer" if whole else "a number"
        bounds = f"above {low:g} and at most {high:g}" if above else f"from {low:.10g} to {high:.10g}"
        raise ConfigError(f"sampling default {name} is {shown(value)}; it must be {kind} {bounds}", param=name)


@dataclass(frozen=True, slots=True)
class StoreLimits:
    """Of `responses.store`. Raises ConfigError for values that cannot work."""

    max_responses: int = 1000
    """0 keeps none."""
    max_bytes: int = 256 << 20
    max_tenant_bytes: int = 64 << 20

    def __post_init__(self) -> None:
        for name, value in (
            ("--max-stored-responses", self.max_responses),
            ("--max-stored-response-bytes", self.max_bytes),
            ("max_tenant_bytes", self.max_tenant_bytes),
        ):
            if value < 0:
                raise ConfigError(f"{name} is {value}; it must be at least 0")


@dataclass(frozen=True, slots=True)
class ServeConfig:
    """Raises ConfigError, naming the flag or the setting, for a value that cannot work."""

    model: str
    """Name shown when no other was given: the checkpoint's hub id or path."""
    served_model_names: tuple[str, ...] = ()
    """Empty: every name a client sends is served. Otherwise these and no other; the first is the canonical one."""
    tool_call_parser: str = "auto"
    """How the model writes tool calls (`text.formats.table`); "auto": what the chat template is written for."""
    reasoning_parser: str = "auto"
    """How it writes reasoning (`text.formats.reasoning`); "none": it has none."""
    volatile_lines: tuple[str, ...] = DEFAULT_RULES
    """Regular expressions: lines of system messages that one matches at its beginning do not reach the prompt."""
    host: str = "127.0.0.1"
    port: int = 8000
    """0 lets the system choose."""
    api_keys: tuple[str, ...] = field(default=(), repr=False)
    """Empty: open to everyone, all in one tenant."""
    stored_responses: StoreLimits = field(default_factory=StoreLimits)
    """What is kept for `previous_response_id`."""
    max_body_bytes: int = 32 << 20
    max_upload_bytes: int = 512 << 20
    """Request bodies in memory together, until they are tokenised; what comes beyond is asked to try again."""
    body_timeout_s: float = 60.0
    """An upload that brings nothing for this long is given up; likewise a connection that brings no whole request."""
    max_connections: int = 4096
    """Open connections; what comes beyond is asked to try again. Fewer when the process may open fewer files."""
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
    live_page: bool = True
    """Whether `/` and `/live` show what the cache holds. What they show comes from `/v1/cache`, which stays."""
    access_log: bool = False
    cache_log: bool = True
    """One line per request: what the cache had of its prompt, and why no more."""
    sampling: SamplingDefaults = SamplingDefaults()

    def __post_init__(self) -> None:
        at_least: tuple[tuple[str, float, float], ...] = (
            ("--port", self.port, 0),
            ("--max-body-bytes", self.max_body_bytes, 1024),
            ("max_upload_bytes", self.max_upload_bytes, self.max_body_bytes),
            ("body_timeout_s", self.body_timeout_s, 0.01),
            ("max_connections", self.max_connections, 1),
            ("max_n", self.max_n, 1),
            ("max_choices", self.max_choices, self.max_n),
            ("--max-logprobs", self.max_logprobs, 0),
            ("--keepalive-s", self.keepalive_s, 0.01),
            ("--drain-timeout-s", self.drain_timeout_s, 0),
            ("dead_linger_s", self.dead_linger_s, 0),
            ("tokenize_threads", self.tokenize_threads, 1),
        )
        for name, value, limit in at_least:
            if not value >= limit:
                raise ConfigError(f"{name} is {value}; it must be at least {limit:.10g}")
        VolatileLines(self.volatile_lines)
        if self.port > 65535:
            raise ConfigError(f"--port is {self.port}; it must be at most 65535")
        if any(not key for key in self.api_keys):
            raise ConfigError("--api-key is empty; leave it out to serve without keys")
        if any(not name for name in (self.model, *self.served_model_names)):
            raise ConfigError("--served-model-name is empty; leave it out to serve every name")
        for name in (self.model, *self.served_model_names):
            # They go into JSON, metrics and the log, where a line break or half a character would do harm.
            if not name.isprintable():
                raise ConfigError(f"the model's name {shown(name)} must be printable text")

    @property
    def canonical_model(self) -> str:
        return self.served_model_names[0] if self.served_model_names else self.model

    @property
    def public_model(self) -> str:
        """The canonical name without folders, for pages that need no key: a path says how this machine is laid out."""
        name = self.canonical_model
        return name.rstrip("/").rpartition("/")[2] or name if name.startswith(("/", ".", "~")) else name
