"""What the core tells its caller: verdicts on submission and outputs after a step, in a form that crosses processes."""

from __future__ import annotations

import enum

import msgspec

from samovar.base.errors import SamovarError, error_classes
from samovar.base.ids import RequestId
from samovar.core.plan import TokenLogprobs
from samovar.policy.hints import HintAnswer


class FinishReason(enum.Enum):
    STOP = "stop"
    """A stop token."""
    LENGTH = "length"
    ABORT = "abort"
    """Ended from outside: the client went away, or a stop string was seen where the text is."""
    ERROR = "error"


class ErrorInfo(msgspec.Struct, frozen=True, array_like=True):
    """An error of `base.errors` in a form that crosses a process border."""

    code: str
    message: str
    param: str | None = None
    retry_after_s: float | None = None

    @staticmethod
    def of(error: SamovarError) -> ErrorInfo:
        return ErrorInfo(error.code, error.message, error.param, error.retry_after_s)

    def exception(self) -> SamovarError:
        cls = error_classes().get(self.code, SamovarError)
        return cls(self.message, param=self.param, retry_after_s=self.retry_after_s)


class Verdict(msgspec.Struct, frozen=True, array_like=True):
    """The answer to a submission: accepted when `error` is None."""

    request_id: RequestId
    error: ErrorInfo | None = None
    hints: tuple[HintAnswer, ...] = ()
    """One for each of its hints."""


class Miss(msgspec.Struct, frozen=True, array_like=True):
    """Why the cache did not cover more of a prompt.

    `reason` is one of
    - "none": everything a hit may cover was found;
    - "cold": nothing is known of this prompt;
    - "new": tokens never seen before follow the hit;
    - "cut": the session's earlier turn differs from block `block` on;
    - "evicted": it was here; `at_s` and `for_request` say when and for whom it went, while that is remembered;
    - "expired": a retention limit ended it;
    - "failed_load": a tier had it and could not deliver;
    - "disabled": no cache was wanted.
    """

    reason: str
    num_tokens: int = 0
    """Prompt tokens that had to be computed because of it."""
    block: int = -1
    at_s: float = 0.0
    for_request: RequestId | None = None
    found_by_tier: dict[str, int] = {}
    """Prompt tokens that did not have to be computed, by where they were."""


class Output(msgspec.Struct, frozen=True, array_like=True, gc=False):
    """New tokens of one request, its end, or both."""

    request_id: RequestId
    token_ids: tuple[int, ...] = ()
    """A stop token that ended the output is the last one here; whether to show it is the front end's choice."""
    logprobs: tuple[TokenLogprobs, ...] = ()
    """One per token when asked for, else ()."""
    finish: FinishReason | None = None
    stop_token: int | None = None
    """The stop token that ended the output, if one did."""
    error: ErrorInfo | None = None
    """Set with `finish` ERROR."""
    num_cached_tokens: int = 0
    """Prompt tokens this request did not have to compute. Final from the first token on."""
    miss: Miss | None = None
    """With the first token only."""
