"""Fields of other APIs and servers that mean a hint."""

from __future__ import annotations

from typing import Any

import pytest

from samovar.base.errors import InvalidField
from samovar.policy.hints import Hint
from samovar.serve.bodies import ChatBody
from samovar.serve.hint_fields import Asked, cache_mark_s, time_s
from samovar.serve.hints import Hints, hints_of
from samovar.serve.validation import validate


def said(headers: dict[str, str] | None = None, marked_s: float | None = None, **fields: Any) -> Hints:
    return hints_of(validate(ChatBody, {"messages": [], **fields}), headers or {}, marked_s)


@pytest.mark.parametrize(
    ("text", "wanted"),
    [("5m", 300.0), ("1h", 3600.0), ("30m", 1800.0), ("24h", 86400.0), ("0s", 0.0), ("999999999h", 3599999996400.0)],
)
def test_times(text: str, wanted: float) -> None:
    assert time_s(text, "ttl") == wanted


@pytest.mark.parametrize(
    "value", ["", "5", "5 m", "m", "-5m", "5d", "1.5h", "1234567890s", "５m", "5m\n", 300, None, True, []]
)
def test_what_is_no_time(value: Any) -> None:
    with pytest.raises(InvalidField, match=r"^x\.ttl: must be a time such as '5m' or '1h'; got .+\.$"):
        time_s(value, "x.ttl")


def test_cache_marks() -> None:
    assert cache_mark_s({"type": "ephemeral"}, "m") == cache_mark_s({"type": "ephemeral", "ttl": None}, "m") == 300.0
    assert cache_mark_s({"type": "ephemeral", "ttl": "1h", "scope": "global"}, "m") == 3600.0
    for mark, where in (
        ("ephemeral", "m"),
        ({}, "m.type"),
        ({"type": "persistent"}, "m.type"),
        ({"type": "ephemeral", "ttl": 300}, "m.ttl"),
        ({"type": "ephemeral", "ttl": "soon"}, "m.ttl"),
    ):
        with pytest.raises(InvalidField) as caught:
            cache_mark_s(mark, "m")
        assert caught.value.param == where and "; got " in caught.value.message


@pytest.mark.parametrize(
    ("fields", "wanted"),
    [
        ({"prompt_cache_retention": "in_memory"}, Asked("prompt_cache_retention", Hint("retain", 300.0))),
        ({"prompt_cache_retention": "in-memory"}, Asked("prompt_cache_retention", Hint("retain", 300.0))),
        ({"prompt_cache_retention": "24h"}, Asked("prompt_cache_retention", Hint("retain", 86400.0))),
        ({"prompt_cache_options": {"ttl": "30m"}}, Asked("prompt_cache_options.ttl", Hint("retain", 1800.0))),
        ({"marked_s": 60.0}, Asked("cache_control", Hint("retain", 60.0))),
        ({"headers": {"x-dynamo-session-final": " True"}}, Asked("x-dynamo-session-final", Hint("release"))),
    ],
)
def test_what_every_client_may_send_is_answered_in_silence(fields: dict[str, Any], wanted: Asked) -> None:
    hints = said(**fields)
    assert hints.asked == (wanted,) and not hints.told
    beside = said(**fields, kv_hints={"actions": [{"action": "release"}]})
    assert beside.asked == (Asked("release", Hint("release")), wanted) and beside.told


def test_nothing_said() -> None:
    for fields in (
        {},
        {"prompt_cache_options": {"mode": "explicit", "ttl": None}},
        {"nvext": {}},
        {"nvext": {"greed_sampling": True, "agent_hints": None, "cache_control": None}},
        {"nvext": {"agent_hints": {"priority": None, "speculative_prefill": False}}},
        {"headers": {"x-dynamo-session-final": "false"}},
    ):
        assert said(**fields) == Hints(said().session)  # type: ignore[arg-type]


def test_dynamo() -> None:
    hints = said(
        nvext={
            "agent_hints": {
                "priority": 5, "strict_priority": 1, "osl": 1024, "speculative_prefill": True,
                "latency_sensitivity": 5.0, "prefix_id": "p" * 100, "k" * 100: 1,
            },
            "cache_control": {"type": "ephemeral", "ttl": "90s"},
            "annotations": ["x"],
        }
    )  # fmt: skip
    assert hints.told and hints.message_id is None
    assert hints.actions == (Hint("priority", count=-5), Hint("prefetch"), Hint("retain", 90.0))
    report = hints.report([])
    assert [(told["action"].removeprefix("nvext."), told["reason"]) for told in report["answers"]] == [
        ("agent_hints.priority", "the engine said nothing of it"),
        ("agent_hints.strict_priority", "requests are ordered by priority alone; send priority"),
        ("agent_hints.osl", "output lengths are not planned for"),
        ("agent_hints.speculative_prefill", "the engine said nothing of it"),
        ("agent_hints.latency_sensitivity", "it has no effect here; send priority"),
        ("agent_hints.prefix_id", "unknown hint"),
        (f"agent_hints.{'k' * 64}", "unknown hint"),
        ("cache_control", "the engine said nothing of it"),
    ]


def test_a_priority_of_dynamo_is_the_request_s_too() -> None:
    assert said(nvext={"agent_hints": {"priority": 5}}).priority == -5
    assert said(nvext={"agent_hints": {"priority": -(2**31)}}).priority == 2**31 - 1
    assert said(kv_hints={"actions": [{"action": "priority", "value": 5}]}).priority is None


@pytest.mark.parametrize(
    ("nvext", "where", "wanted"),
    [
        ({"agent_hints": []}, "agent_hints", "must be an object; got []"),
        ({"agent_hints": {str(at): 1 for at in range(33)}}, "agent_hints", "must have at most 32 elements; got 33"),
        ({"agent_hints": {"priority": "high"}}, "agent_hints.priority", "must be an integer from"),
        ({"agent_hints": {"priority": True}}, "agent_hints.priority", "must be an integer from"),
        ({"agent_hints": {"osl": -1}}, "agent_hints.osl", "must be an integer from 0 to 2147483647; got -1"),
        ({"agent_hints": {"strict_priority": 0.5}}, "agent_hints.strict_priority", "must be an integer from 0"),
        ({"agent_hints": {"latency_sensitivity": "x"}}, "agent_hints.latency_sensitivity", "must be a number; got 'x'"),
        (
            {"agent_hints": {"speculative_prefill": 1}},
            "agent_hints.speculative_prefill",
            "must be true or false; got 1",
        ),
        ({"cache_control": {"type": "ephemeral", "ttl": "long"}}, "cache_control.ttl", "must be a time such as"),
    ],
)
def test_dynamo_refused(nvext: dict[str, Any], where: str, wanted: str) -> None:
    with pytest.raises(InvalidField) as caught:
        said(nvext=nvext)
    assert caught.value.param == f"nvext.{where}"
    assert caught.value.message.startswith(f"nvext.{where}: {wanted}")


@pytest.mark.parametrize(
    ("fields", "where"),
    [
        ({"prompt_cache_retention": "forever"}, "prompt_cache_retention"),
        ({"prompt_cache_retention": 24}, "prompt_cache_retention"),
        ({"prompt_cache_options": "30m"}, "prompt_cache_options"),
        ({"prompt_cache_options": {"ttl": 30}}, "prompt_cache_options.ttl"),
        ({"kv_hints": []}, "kv_hints"),
        ({"kv_hints": {}}, "kv_hints.actions"),
        ({"nvext": 5}, "nvext"),
    ],
)
def test_refused(fields: dict[str, Any], where: str) -> None:
    with pytest.raises(InvalidField) as caught:
        said(**fields)
    assert caught.value.param == where
