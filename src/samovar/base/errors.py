"""The one error tree. Each class carries the HTTP status a server answers with and whether a retry may help.

    SamovarError
    ├── ConfigError            a flag, file or combination that cannot work; raised before serving starts
    │   ├── CheckpointError    a checkpoint file is missing, truncated or malformed
    │   ├── TraceError         a trace file is missing or malformed; the message names file and place
    │   └── UnsupportedFeature a checkpoint asks for something not implemented; the message names it
    ├── RequestError           the client's input is wrong; never retryable as it stands
    │   ├── InvalidField       one field: names it, the value and the limit
    │   ├── ContextLengthExceeded
    │   ├── BodyTooLarge
    │   ├── UnsupportedEncoding the body is compressed in a way that nobody here can read
    │   ├── UploadTimeout      the body came too slowly or stopped
    │   ├── Unauthorized
    │   └── NotFound
    │       └── ModelNotFound  the name is not one of the served ones
    ├── Saturated              the server is full, whoever asks; try again after `retry_after_s`
    ├── RateLimited            one caller's share is used up; try again after `retry_after_s`
    ├── Draining               the server is shutting down
    ├── EngineDead             the engine process is gone
    ├── StepFailed             a step raised while it computed this request
    └── ReplayMismatch         a fresh core answered a logged call differently: it depends on something not in the log

`assert` is for our own bugs; everything a user can cause is one of these.
"""

from __future__ import annotations

from typing import ClassVar


class SamovarError(Exception):
    """Root of the tree. `param` names the offending request field, when there is one."""

    status: ClassVar[int] = 500
    retryable: ClassVar[bool] = False
    code: ClassVar[str] = "internal_error"

    def __init__(self, message: str, *, param: str | None = None, retry_after_s: float | None = None) -> None:
        super().__init__(message)
        self.message = message
        self.param = param
        self.retry_after_s = retry_after_s


class ConfigError(SamovarError):
    code = "config_error"


class CheckpointError(ConfigError):
    code = "checkpoint_error"


class TraceError(ConfigError):
    code = "trace_error"


class UnsupportedFeature(ConfigError):
    code = "unsupported_feature"


class RequestError(SamovarError):
    status = 400
    code = "invalid_request"


class InvalidField(RequestError):
    code = "invalid_value"


class ContextLengthExceeded(RequestError):
    """`num_tokens` of a prompt (`at_least`: or more) against a context of `limit`, where they are known."""

    code = "context_length_exceeded"

    def __init__(
        self,
        message: str,
        *,
        param: str | None = None,
        retry_after_s: float | None = None,
        num_tokens: int | None = None,
        limit: int | None = None,
        at_least: bool = False,
    ) -> None:
        super().__init__(message, param=param, retry_after_s=retry_after_s)
        self.num_tokens = num_tokens
        self.limit = limit
        self.at_least = at_least


class BodyTooLarge(RequestError):
    status = 413
    code = "body_too_large"


class UnsupportedEncoding(RequestError):
    status = 415
    code = "unsupported_encoding"


class UploadTimeout(RequestError):
    status = 408
    code = "request_timeout"


class Unauthorized(RequestError):
    status = 401
    code = "invalid_api_key"


class NotFound(RequestError):
    status = 404
    code = "not_found"


class ModelNotFound(NotFound):
    code = "model_not_found"


class Saturated(SamovarError):
    status = 429
    retryable = True
    code = "saturated"


class RateLimited(SamovarError):
    status = 429
    retryable = True
    code = "rate_limit_exceeded"


class Draining(SamovarError):
    status = 503
    retryable = True
    code = "draining"


class EngineDead(SamovarError):
    status = 503
    retryable = True
    code = "engine_dead"


class ReplayMismatch(SamovarError):
    code = "replay_mismatch"


class StepFailed(SamovarError):
    status = 500
    retryable = True
    code = "step_failed"


def error_classes() -> dict[str, type[SamovarError]]:
    """Every class of the tree by its `code`, so that an error that crossed a process border comes back as itself."""
    found: dict[str, type[SamovarError]] = {}
    todo: list[type[SamovarError]] = [SamovarError]
    while todo:
        cls = todo.pop()
        found[cls.code] = cls
        todo.extend(cls.__subclasses__())
    return found
