"""What the cache had of a prompt and why no more, for the client that asks (`cache_report`) and for the log."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
import time
from typing import Any, Literal

from samovar.base.shown import shown
from samovar.core.events import Miss

What = Literal["system", "tools", "messages"]

_MEANINGS = {
    "none": "all that can be found was",
    "cold": "nothing is known of this prompt",
    "new": "new tokens follow",
    "cut": "it differs from the session's last prompt",
    "evicted": "the rest made room for others",
    "expired": "the rest was kept no longer",
    "failed_load": "a tier could not deliver the rest",
    "disabled": "the cache is off",
}
"""By `core.events.Miss.reason`."""


@dataclass(frozen=True, slots=True)
class Difference:
    """The first position at which a prompt differs from the last one of its session."""

    token: int
    message: int | None
    """Index in the prompt's messages. The client's may be counted differently: instructions and a `system` are the
    first message here, a turn of several items is one, and of several results in one message each is one."""
    what: What


def miss_report(
    miss: Miss | None,
    num_cached: int,
    prompt_tokens: int,
    difference: Difference | None,
    now_s: float | None = None,
) -> dict[str, Any]:
    """The `cache_report` of an answer: JSON. `miss` is of the first output, None while there was none.

    `position` is the first token that was not found in the cache; with a `difference` it is rounded down from that
    one to a whole block. For whom a block was evicted stays in this house: request ids count everybody's requests.
    `now_s`: of `time.monotonic`, which the engine's times are of too; None: now.
    """
    reason = None if miss is None else miss.reason
    complete = reason in (None, "none")
    report: dict[str, Any] = {
        "prompt_tokens": prompt_tokens,
        "cached_tokens": num_cached,
        "new_tokens": prompt_tokens - num_cached,
        "reason": reason,
        "position": None if complete else num_cached,
        "difference": None,
        "evicted_s_ago": None,
        "cached_by_tier": _found(miss, num_cached),
    }
    if difference is not None:
        report["difference"] = {
            "token": difference.token,
            "message": difference.message,
            "what": difference.what,
        }
    if miss is not None and reason in ("evicted", "expired") and miss.at_s:
        now_s = time.monotonic() if now_s is None else now_s
        report["evicted_s_ago"] = round(max(0.0, now_s - miss.at_s), 3)
    return report


def _found(miss: Miss | None, num_cached: int) -> dict[str, int]:
    """Of several choices one may have found less than the first one, whose miss this is: then nobody can say."""
    found = {} if miss is None else {tier: tokens for tier, tokens in miss.found_by_tier.items() if tokens}
    return found if sum(found.values()) == num_cached else {}


def wants_report(headers: Mapping[str, str], field: bool | None) -> bool:
    """Whether the client asked for it: the body's `cache_report`, else the header. Header names in lower case."""
    return headers.get("x-samovar-cache-report", "").strip().lower() in ("1", "true") if field is None else field


def miss_line(id: str, report: Mapping[str, Any], session_id: str = "") -> str:
    """A report as one line of the log. Of what the client sent only the name of its session is in it, made printable.
    `id`: of the answer."""
    reason = report["reason"] or "unknown"
    line = (
        f"cache: {id}: {report['cached_tokens']} of {report['prompt_tokens']} prompt tokens cached, "
        f"{report['new_tokens']} new: {reason}"
    )
    if reason in _MEANINGS:
        line += f" ({_MEANINGS[reason]})"
    if report["position"] is not None:
        line += f" at token {report['position']}"
    difference = report["difference"]
    if difference is not None:
        message = "" if difference["message"] is None else f" {difference['message']}"
        line += f"; first difference at token {difference['token']}, in {difference['what']}{message}"
    if report["evicted_s_ago"] is not None:
        line += f"; gone for {report['evicted_s_ago']:.1f} s"
    if report["cached_by_tier"]:
        line += "; found on " + ", ".join(f"{tier} {tokens}" for tier, tokens in report["cached_by_tier"].items())
    if session_id:
        line += f"; session {shown(session_id)}"
    return line
