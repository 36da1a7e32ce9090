"""Processor sharing by hand."""

from __future__ import annotations

from functools import partial

import pytest

from samovar.sim.links import Channel
from samovar.sim.links_events import LinkEvents
from samovar.spec.link import Link


def ends(channel: Channel, begins: list[tuple[float, float]]) -> list[float]:
    """When flows of (begin, bytes) end, in the order of `begins`."""
    found: dict[int, float] = {}
    todo = sorted(enumerate(begins), key=lambda entry: entry[1][0])
    while todo or channel.num_flows:
        end_s = channel.next_end_s()
        if todo and (end_s is None or todo[0][1][0] < end_s):
            number, (at, num_bytes) = todo.pop(0)
            channel.begin(num_bytes, at, partial(found.__setitem__, number))
            channel.check(at)
        else:
            flow, at = channel.pop()
            flow.on_end(at)
            channel.check(at)
    return [found[number] for number in range(len(begins))]


def test_a_lone_flow_takes_latency_and_bytes_over_bandwidth() -> None:
    channel = Channel("link", 10.0, latency_s=0.5)
    assert ends(channel, [(2.0, 30.0)]) == [pytest.approx(5.5)]
    assert channel.busy_s == pytest.approx(3.0)
    assert channel.moved_bytes(5.5) == pytest.approx(30.0)


def test_equal_flows_end_together_and_a_link_is_no_faster_for_having_more() -> None:
    assert ends(Channel("link", 10.0), [(0.0, 20.0)] * 4) == [pytest.approx(8.0)] * 4


def test_a_second_flow_slows_the_first_and_is_alone_afterwards() -> None:
    # 10 bytes alone in the first second, 5 each until the second flow has its 15 (t = 4); the first has 25 then.
    assert ends(Channel("link", 10.0), [(0.0, 40.0), (1.0, 15.0)]) == [pytest.approx(5.5), pytest.approx(4.0)]


def test_a_flow_has_a_cap_however_idle_the_link_is() -> None:
    channel = Channel("link", 10.0, flow_bytes_per_s=4.0)
    assert ends(channel, [(0.0, 8.0)]) == [pytest.approx(2.0)]
    assert ends(Channel("link", 10.0, flow_bytes_per_s=4.0), [(0.0, 8.0)] * 2) == [pytest.approx(2.0)] * 2
    assert ends(Channel("link", 10.0, flow_bytes_per_s=4.0), [(0.0, 10.0)] * 4) == [pytest.approx(4.0)] * 4


def test_a_flow_that_waits_for_its_latency_takes_nothing_from_others() -> None:
    # The second joins at 2.0: the first has 20 of 30 by then, and both have 5 bytes/s.
    assert ends(Channel("link", 10.0, latency_s=1.0), [(-1.0 + 1.0, 30.0), (2.0, 30.0)]) == [
        pytest.approx(5.0),
        pytest.approx(7.0),
    ]


def test_no_bytes_take_the_latency() -> None:
    assert ends(Channel("link", 10.0, latency_s=0.25), [(1.0, 0.0)]) == [pytest.approx(1.25)]


def test_what_is_taken_out_leaves_the_link_to_the_others() -> None:
    channel = Channel("link", 10.0)
    first = channel.begin(100.0, 0.0, lambda at: None)
    second = channel.begin(100.0, 0.0, lambda at: None)
    assert channel.left_bytes(first, 4.0) == pytest.approx(80.0)
    assert channel.take_out(first, 4.0) == pytest.approx(80.0)
    assert channel.next_end_s() == pytest.approx(12.0)
    again = channel.begin(80.0, 12.0, lambda at: None, latency=False)
    assert channel.pop()[0] is second
    last, end_s = channel.pop()
    assert last is again and end_s == pytest.approx(20.0)
    channel.check(20.0)
    assert channel.moved_bytes(20.0) == pytest.approx(200.0) and channel.busy_s == pytest.approx(20.0)


def test_the_next_end_keeps_its_value_to_the_last_bit() -> None:
    channel = Channel("link", 3.0, latency_s=0.1)
    for start in (0.0, 0.1, 0.17):
        channel.begin(1 / 7, start, lambda at: None)
    while channel.num_flows:
        end_s = channel.next_end_s()
        assert channel.pop()[1] == end_s


def test_stages_follow_each_other_at_their_own_moments_however_late_one_asks() -> None:
    events = LinkEvents()
    ssd = events.add(Link("ssd", "test", 2.0, 1.0, 0.5), "ssd", "read", "write")
    host = events.add(Link("host", "test", 10.0, 10.0, 0.0), "host")
    seen: list[tuple[str, float]] = []

    def read(at: float) -> None:
        seen.append(("read", at))
        events.begin(host.inward, 10.0, at, lambda end: seen.append(("copied", end)))

    events.begin(ssd.inward, 10.0, 0.0, read)
    events.begin(ssd.outward, 10.0, 0.0, lambda at: seen.append(("written", at)))
    late = events.at(6.0, lambda at: seen.append(("late", at)))
    called_off = events.at(1.0, lambda at: seen.append(("never", at)))
    events.call_off(called_off)
    assert events.next_s() == pytest.approx(5.5)
    events.advance(100.0)
    assert seen == [("read", 5.5), ("late", 6.0), ("copied", 6.5), ("written", 10.5)]
    assert late.at_s == 6.0 and events.next_s() is None
    events.check()
    assert [channel.name for channel in events.channels] == ["ssd read", "ssd write", "host in", "host out"]


def test_equal_flows_end_at_the_very_same_moment_whatever_rounding_does() -> None:
    for size in range(1, 50):
        found = ends(Channel("link", 55e9 / 7), [(12345.678, size * 1e5 / 7)] * 3)
        assert found[0] == found[1] == found[2]
