"""The kv_hints envelope: two spellings, one meaning; what is unknown is ignored, what is wrong is refused by name."""

from __future__ import annotations

import re
from typing import Any

from hypothesis import given
from hypothesis import strategies as st
import pytest

from samovar.base.errors import InvalidField
from samovar.policy.hints import HINT_KINDS, Hint
from samovar.serve.hint_envelope import Envelope, read_envelope
from samovar.serve.hint_fields import Asked
from samovar.serve.hint_schema import MAX_ACTIONS

SENTENCE = re.compile(r"([^:]+): (must be .+; got .+|must have at most \d+ \w+; got \d+|this field is required)\.")


def read(*actions: Any, **fields: Any) -> Envelope:
    return read_envelope({"protocol_version": 1, "actions": list(actions), **fields}, "kv_hints", "s")


def rfc(kind: str, payload: dict[str, Any] | None = None, **fields: Any) -> dict[str, Any]:
    return {"action_id": "a", "action_type": kind, "action_version": "1.0", "payload": payload or {}, **fields}


def directives(*pairs: tuple[int, float | None]) -> dict[str, Any]:
    return {"scope": None, "directives": [{"start": 0, "priority": p, "duration": d} for p, d in pairs]}


MEANINGS: list[tuple[dict[str, Any], Hint]] = [
    ({"action": "retain", "ttl_s": 300}, Hint("retain", 300.0)),
    ({"action": "retain", "seconds": 0.5}, Hint("retain", 0.5)),
    ({"action": "retain", "ttl": "90s"}, Hint("retain", 90.0)),
    ({"action": "kv.retain", "ttl_s": 10**300}, Hint("retain", 1e300)),
    (rfc("kv.retain", {"duration": 60}), Hint("retain", 60.0)),
    (rfc("kv.retain", directives((100, 20.0), (50, 40.0), (0, 999.0))), Hint("retain", 40.0)),
    (rfc("kv.retain", directives((1, None), (1, 5.0))), Hint("retain", 1e9)),
    (rfc("kv.pin", {"ttl": "5m"}), Hint("retain", 300.0)),
    ({"action": "resume_in", "seconds": 12}, Hint("resume_in", 12.0)),
    ({"action": "resume_in", "seconds": 12, "bound": "at_most"}, Hint("resume_in", 12.0, bound="at_most")),
    ({"action": "resume_in", "seconds": 0, "bound": None}, Hint("resume_in", 0.0)),
    ({"action": "release"}, Hint("release")),
    (rfc("kv.deref"), Hint("release")),
    (rfc("kv.demote", {"session_id": "s"}), Hint("demote")),
    (rfc("kv.prefetch", action_version="1"), Hint("prefetch")),
    ({"action": "prefetch", "payload": None, "action_version": None}, Hint("prefetch")),
    ({"action": "priority", "value": -1}, Hint("priority", count=-1)),
    (rfc("kv.priority", {"priority": 7}), Hint("priority", count=7)),
    ({"action": "children", "count": 3}, Hint("children", count=3)),
    ({"action": None, "action_type": "children", "count": 0}, Hint("children", count=0)),
]


@pytest.mark.parametrize(("action", "hint"), MEANINGS)
def test_meanings(action: dict[str, Any], hint: Hint) -> None:
    (asked,) = read(action).asked
    assert asked == Asked(action.get("action") or action["action_type"], hint, "", action.get("action_id"))


def test_every_kind_can_be_asked_for() -> None:
    assert {hint.kind for _, hint in MEANINGS} == set(HINT_KINDS)


@pytest.mark.parametrize(
    ("action", "reason"),
    [
        ({"action": "kv.share"}, "unknown action"),
        (rfc("kv.fetch", {"block_hashes": [1]}), "unknown action"),
        (rfc("kv.future", action_version="7.3"), "unknown action"),
        (rfc("kv.demote", action_version="2.0"), "version 2.0 of this action is not known, 1.0 is"),
        (rfc("kv.demote", action_version="10"), "version 10 of this action is not known, 1.0 is"),
        (rfc("kv.demote", {"session_id": "other"}), "it names another session than the request does"),
        (rfc("kv.retain", directives((0, 5.0))), "no directive has a priority above 0"),
        (rfc("kv.retain", {"directives": []}), "no directive has a priority above 0"),
    ],
)
def test_ignored(action: dict[str, Any], reason: str) -> None:
    kept = {"action": "release"}
    asked = read(kept, action, kept).asked
    assert [each.hint for each in asked] == [Hint("release"), None, Hint("release")]
    assert asked[1].why_not == reason and asked[1].id == action.get("action_id")


REFUSED: list[tuple[dict[str, Any], str, str]] = [
    ({"protocol_version": 2}, "protocol_version", "must be 1; got 2"),
    ({"protocol_version": "0.2"}, "protocol_version", "must be 1; got '0.2'"),
    ({"protocol_version": True}, "protocol_version", "must be 1; got true"),
    ({"protocol_version": [1]}, "protocol_version", "must be 1; got [1]"),
    ({"message_id": 5}, "message_id", "must be a string; got 5"),
    ({"message_id": "m" * 513}, "message_id", "must have at most 512 characters; got 513"),
    ({"actions": None}, "actions", "this field is required"),
    ({"actions": {}}, "actions", "must be an array; got {}"),
    ({"actions": [{"action": "release"}] * 33}, "actions", "must have at most 32 elements; got 33"),
    ({"actions": ["release"]}, "actions[0]", "must be an object; got 'release'"),
    ({"actions": [{}]}, "actions[0].action", "this field is required"),
    ({"actions": [{"action": ""}]}, "actions[0].action", "this field is required"),
    ({"actions": [{"action": 1}]}, "actions[0].action", "must be a string; got 1"),
    ({"actions": [{"action": "a" * 65}]}, "actions[0].action", "must have at most 64 characters; got 65"),
    ({"actions": [{"action_type": 1}]}, "actions[0].action_type", "must be a string; got 1"),
    ({"actions": [{"action": "release", "action_id": 1}]}, "actions[0].action_id", "must be a string; got 1"),
    ({"actions": [{"action": "release", "payload": 1}]}, "actions[0].payload", "must be an object; got 1"),
    ({"actions": [{"action": "retain"}]}, "actions[0].ttl_s", "this field is required"),
    ({"actions": [rfc("kv.retain")]}, "actions[0].payload.ttl_s", "this field is required"),
    (
        {"actions": [{"action": "release"}, {"action": "retain", "ttl_s": -1}]},
        "actions[1].ttl_s",
        "must be a number of seconds, at least 0; got -1",
    ),
    (
        {"actions": [rfc("kv.retain", {"duration": "5m"})]},
        "actions[0].payload.duration",
        "must be a number of seconds, at least 0; got '5m'",
    ),
    ({"actions": [{"action": "retain", "ttl": 5}]}, "actions[0].ttl", "must be a time such as '5m' or '1h'; got 5"),
    (
        {"actions": [rfc("kv.retain", {"directives": [{"priority": -1}]})]},
        "actions[0].payload.directives[0].priority",
        "must be an integer from 0 to 2147483647; got -1",
    ),
    (
        {"actions": [rfc("kv.retain", {"directives": [{"priority": 1}] * 129})]},
        "actions[0].payload.directives",
        "must have at most 128 elements; got 129",
    ),
    ({"actions": [rfc("retain", {"directives": [1]})]}, "actions[0].payload.directives[0]", "must be an object; got 1"),
    (
        {"actions": [{"action": "resume_in", "seconds": 1, "bound": "about"}]},
        "actions[0].bound",
        "must be 'exact', 'at_most' or 'at_least'; got 'about'",
    ),
    (
        {"actions": [{"action": "priority", "value": 1.0}]},
        "actions[0].value",
        "must be an integer from -2147483648 to 2147483647; got 1.0",
    ),
    (
        {"actions": [{"action": "children", "count": -1}]},
        "actions[0].count",
        "must be an integer from 0 to 2147483647; got -1",
    ),
]


@pytest.mark.parametrize(("fields", "where", "said"), REFUSED)
@pytest.mark.parametrize("path", ["kv_hints", ""])
def test_refused(fields: dict[str, Any], where: str, said: str, path: str) -> None:
    with pytest.raises(InvalidField) as caught:
        read_envelope({"actions": [], **fields}, path, "s")
    assert caught.value.param == (f"{path}.{where}" if path else where)
    assert caught.value.message == f"{caught.value.param}: {said}."


@pytest.mark.parametrize("value", [float("nan"), float("inf"), -float("inf"), -0.001, 10**400, True, "1", [], {}])
@pytest.mark.parametrize("action", [{"action": "retain"}, {"action": "resume_in"}])
def test_times_that_are_none(action: dict[str, Any], value: Any) -> None:
    with pytest.raises(InvalidField, match=r"must be a number of seconds, at least 0; got"):
        read({**action, "seconds": value})


def test_an_envelope_as_a_whole() -> None:
    assert read() == Envelope(None, ())
    assert read(message_id="m", protocol_version="0.1").message_id == "m"
    assert read(protocol_version=None) == read_envelope({"actions": []}, "", "")
    assert len(read(*[{"action": "release"}] * MAX_ACTIONS).asked) == MAX_ACTIONS


words = st.sampled_from(
    ["action", "action_type", "action_id", "action_version", "payload", "ttl_s", "ttl", "seconds", "duration", "bound",
     "value", "count", "directives", "priority", "session_id"]
)  # fmt: skip
values = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats() | st.text(max_size=5)
    | st.sampled_from([*HINT_KINDS, "kv.retain", "kv.deref", "1.0", "2", "5m", "s", 1, 300]),
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(words, inner, max_size=4),
    max_leaves=12,
)  # fmt: skip
actions = st.lists(
    st.dictionaries(words, values, max_size=5)
    | st.builds(
        lambda kind, rest: {**rest, "action": kind},
        st.sampled_from(HINT_KINDS),
        st.dictionaries(words, values, max_size=4),
    ),
    max_size=4,
)


@given(given_actions=actions, version=st.sampled_from([1, 1, 1, "0.1", None, 2]), message_id=st.none() | values)
def test_whatever_comes_is_read_or_refused_by_name(given_actions: Any, version: Any, message_id: Any) -> None:
    given_ = {"protocol_version": version, "message_id": message_id, "actions": given_actions}
    try:
        envelope = read_envelope(given_, "kv_hints", "s")
    except InvalidField as error:
        told = SENTENCE.fullmatch(error.message)
        assert told and told[1] == error.param and error.message.isascii() and len(error.message) < 400
        return
    assert len(envelope.asked) == len(given_actions)
    for asked in envelope.asked:
        assert (asked.hint is None) == bool(asked.why_not)
        if asked.hint is not None:
            assert asked.hint.seconds >= 0 and asked.hint.seconds < float("inf")
