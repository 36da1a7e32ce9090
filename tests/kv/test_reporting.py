"""Whose conversations a disk had, from the records it had."""

from __future__ import annotations

from hypothesis import given
from hypothesis import strategies as st
import pytest

from samovar.base.keys import join_keys
from samovar.kv import reporting
from samovar.kv.reporting import recovered_conversations

Turn = tuple[str, str]


def key(path: str) -> bytes:
    """Of a block, which is the last letter of all before it."""
    return path.encode().rjust(16, b".")


def records(*turns: Turn) -> list[tuple[bytes, bytes, str]]:
    """As a disk writes them: of each turn (stream, path) the blocks that it does not have."""
    found: dict[bytes, tuple[bytes, bytes, str]] = {}
    for stream, path in turns:
        for end in range(1, len(path) + 1):
            parent = key(path[: end - 1]) if end > 1 else b""
            found.setdefault(key(path[:end]), (key(path[:end]), parent, stream))
    return list(found.values())


def chain(path: str) -> bytes:
    return join_keys(key(path[:end]) for end in range(1, len(path) + 1))


def paths(*args: object) -> list[tuple[str, bytes]]:
    return [(found.stream, found.keys) for found in recovered_conversations(*args)]  # type: ignore[arg-type]


def test_the_latest_first_each_with_the_end_of_its_last_turn() -> None:
    """They share the beginning, which the first one wrote; what nobody is named for is nobody's."""
    log = records(("t\0a", "abc"), ("t\0b", "abX"), ("", "abcdZ"), ("t\0a", "abcde"), ("t\0c", "q"), ("t\0b", "abXY"))
    assert paths(log, (), 1.0) == [("t\0b", chain("abXY")), ("t\0c", chain("q")), ("t\0a", chain("abcde"))]


def test_what_is_of_no_use_is_left_out() -> None:
    log = records(("t\0a", "abcde"), ("t\0b", "abX"))
    assert paths(log, [key("abcde"), key("abX")], 1.0) == [("t\0a", chain("abcd"))]


def test_a_damaged_block_that_was_written_again_behind_what_follows_it() -> None:
    log = records(("t\0a", "abcd"))
    again = log.pop(1)
    log.append((*again[:2], ""))
    assert paths(log, (), 1.0) == [("t\0a", chain("abcd"))]


def test_so_much_is_remembered_the_latest_first(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(reporting, "MOST_RECOVERED_BYTES", 16 * 5)
    log = records(("t\0a", "abc"), ("t\0b", "XYZ"), ("t\0c", "pq"))
    assert [stream for stream, _ in paths(log, (), 1.0)] == ["t\0c", "t\0b"]


@given(st.lists(st.tuples(st.sampled_from(["", "t\0a", "t\0b"]), st.text("ab", min_size=1, max_size=6)), max_size=12))
def test_every_chain_is_whole_and_ends_with_the_last_record_of_its_stream(turns: list[Turn]) -> None:
    log = records(*turns)
    parents = {record[0]: record[1] for record in log}
    for found in recovered_conversations(log, (), 7.0):
        keys = [found.keys[at : at + 16] for at in range(0, len(found.keys), 16)]
        assert [parents[k] for k in keys] == [b"", *keys[:-1]] and found.found_s == 7.0
        assert keys[-1] == [record[0] for record in log if record[2] == found.stream][-1]
    assert {found.stream for found in recovered_conversations(log, (), 7.0)} == {r[2] for r in log} - {""}
