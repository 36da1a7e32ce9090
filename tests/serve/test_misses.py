"""Why a prompt missed, told to the client and to the log."""

from __future__ import annotations

import json

from hypothesis import given
from hypothesis import strategies as st
import pytest

from samovar.core.events import Miss
from samovar.serve.misses import Difference, miss_line, miss_report, wants_report

REASONS = ("none", "cold", "new", "cut", "evicted", "expired", "failed_load", "disabled")


def test_a_cut_says_where() -> None:
    miss = Miss("cut", 40, block=6, found_by_tier={"device": 80, "host": 16, "disk": 0})
    report = miss_report(miss, 96, 136, Difference(103, 2, "messages"))
    assert report == {
        "prompt_tokens": 136, "cached_tokens": 96, "new_tokens": 40, "reason": "cut", "position": 96,
        "difference": {"token": 103, "message": 2, "what": "messages"}, "evicted_s_ago": None,
        "cached_by_tier": {"device": 80, "host": 16},
    }  # fmt: skip
    assert miss_line("chatcmpl-1", report) == (
        "cache: chatcmpl-1: 96 of 136 prompt tokens cached, 40 new: cut (it differs from the session's last prompt) "
        "at token 96; first difference at token 103, in messages 2; found on device 80, host 16"
    )


def test_an_eviction_says_when_and_not_for_whom() -> None:
    miss = Miss("evicted", 500, block=1, at_s=90.0, for_request=12345)
    report = miss_report(miss, 16, 516, None, now_s=102.5)
    assert report["evicted_s_ago"] == 12.5 and "12345" not in json.dumps(report)
    assert miss_line("x", report).endswith("evicted (the rest made room for others) at token 16; gone for 12.5 s")
    assert miss_report(Miss("evicted", 500, block=1), 16, 516, None)["evicted_s_ago"] is None, "long forgotten when"


@pytest.mark.parametrize("miss", [None, Miss("none", 8)])
def test_nothing_to_explain(miss: Miss | None) -> None:
    report = miss_report(miss, 992, 1000, None)
    assert (report["new_tokens"], report["position"], report["difference"]) == (8, None, None)
    assert report["reason"] == (miss and miss.reason)
    assert miss_line("x", report).startswith("cache: x: 992 of 1000 prompt tokens cached, 8 new: ")


@given(
    reason=st.sampled_from(REASONS),
    sizes=st.tuples(st.integers(0, 10**6), st.integers(0, 10**6)),
    at_s=st.floats(0, 1e6),
    difference=st.none()
    | st.builds(
        Difference,
        st.integers(0, 10**6),
        st.none() | st.integers(0, 99),
        st.sampled_from(["system", "tools", "messages"]),
    ),
)
def test_every_report_is_json_that_adds_up(
    reason: str, sizes: tuple[int, int], at_s: float, difference: Difference | None
) -> None:
    cached, total = sorted(sizes)
    report = miss_report(Miss(reason, total - cached, 0, at_s, 7), cached, total, difference)
    assert json.loads(json.dumps(report)) == report
    assert report["cached_tokens"] + report["new_tokens"] == report["prompt_tokens"] == total
    line = miss_line("id", report)
    assert line.isprintable() and len(line) < 300 and reason in line


def test_asking_for_it() -> None:
    header = {"x-samovar-cache-report": "1"}
    assert wants_report(header, None) and wants_report({}, True) and wants_report(header, True)
    assert not (wants_report({}, None) or wants_report(header, False) or wants_report({}, False))
    assert not wants_report({"x-samovar-cache-report": "0"}, None)


@pytest.mark.parametrize(("session", "told"), [("s/a1", "'s/a1'"), ("a\n\x1b[31m\u202e" + "b" * 500, "'a\\n\\x1b")])
def test_the_log_says_whose_turn_it_was(session: str, told: str) -> None:
    line = miss_line("x", miss_report(Miss("none", 8), 992, 1000, None), session)
    assert f"; session {told}" in line and line.isascii() and line.isprintable() and len(line) < 300
    assert "session" not in miss_line("x", miss_report(Miss("none", 8), 992, 1000, None))


def test_where_it_was_is_told_only_where_it_adds_up() -> None:
    """A second choice found less than the first one, whose miss is reported."""
    miss = Miss("new", 8, found_by_tier={"device": 64, "disk": 32})
    assert miss_report(miss, 96, 104, None)["cached_by_tier"] == {"device": 64, "disk": 32}
    report = miss_report(miss, 64, 104, None)
    assert report["cached_by_tier"] == {} and "found on" not in miss_line("x", report)
