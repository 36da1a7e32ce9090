"""Conversations under random turns: nothing is cut off that the new prompt has, and nobody joins a stream that runs."""

from __future__ import annotations

from hypothesis import settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, initialize, invariant, rule

from samovar.base.keys import split_keys
from samovar.core.stream import Joined
from samovar.core.streams import Streams
from tests.core.test_streams import keys

WHO = {
    "session": st.sampled_from(["p", "p", "p", "q", ""]),
    "tenant": st.sampled_from(["", "", "", "t"]),
    "shared": st.sampled_from([False, False, False, True]),
}
ENDS = st.sampled_from([True, True, True, False])
HEADS = ("", "abcdefghijklmnop", "abcdefghijklmnop")


class StreamsMachine(RuleBasedStateMachine):
    @initialize(max_bytes=st.sampled_from([1 << 20, 1 << 20, 3000]))
    def start(self, max_bytes: int) -> None:
        self.streams = Streams(max_bytes=max_bytes)
        self.now = 0.0
        self.running: list[tuple[Joined, str, tuple[str, str, bool]]] = []
        self.said: list[tuple[str, tuple[str, str, bool]]] = []

    @rule(head=st.sampled_from(HEADS), text=st.text("xyz", min_size=1, max_size=4), ends=ENDS, **WHO)
    def begin(self, head: str, text: str, ends: bool, session: str, tenant: str, shared: bool) -> None:
        self._join(head + text, session, tenant, shared)
        if ends:
            self.end(-1, "", 1.0)

    @rule(pick=st.integers(0, 99), drop=st.sampled_from([0, 0, 1, 3]), text=st.text("xyz", min_size=1, max_size=3),
          ends=ENDS)  # fmt: skip
    def go_on(self, pick: int, drop: int, text: str, ends: bool) -> None:
        """From what was said before, or a little before its end."""
        if self.said:
            before, who = self.said[-1 - pick % min(4, len(self.said))]
            self._join(before[: len(before) - drop] + text, *who)
            if ends:
                self.end(-1, "u", 1.0)

    def _join(self, prompt: str, session: str, tenant: str, shared: bool) -> None:
        before = {stream.name: (stream.turn, stream.running) for stream in self.streams.latest()}
        likely = self.streams.likely(tenant, session, keys(prompt), shared=shared)
        joined = self.streams.join(tenant, session, "", keys(prompt), shared=shared)
        stream = joined.stream
        assert (stream.tenant, stream.session_id, stream.running) == (tenant, session, 1)
        assert not stream.released and not stream.demoted
        assert before.get(stream.name, (b"", 0))[1] == 0, "it ran already"
        if likely is not None and self.streams.get(likely.name) is not None:
            assert likely is stream
        for orphans in joined.orphans:
            turn = split_keys(before[orphans.stream][0])
            assert orphans.keys == turn[orphans.first :] and turn[: orphans.first] == keys(prompt)[: orphans.first]
            assert set(orphans.keys).isdisjoint(keys(prompt)), "the new prompt has what it is said to cut off"
        self.running.append((joined, prompt, (session, tenant, shared)))

    @rule(pick=st.integers(0, 99), answer=st.text("uv", max_size=3), done=st.sampled_from([1.0, 1.0, 0.5, 0.0]))
    def end(self, pick: int, answer: str, done: float) -> None:
        if not self.running:
            return
        self.now += 1.0
        joined, prompt, who = self.running.pop(pick % len(self.running) if pick >= 0 else -1)
        said = (prompt + answer)[: int(len(prompt + answer) * done)]
        before = split_keys(joined.stream.turn)
        known = self.streams.ended(joined.stream, keys(said), len(prompt), self.now)
        assert before[:known] == keys(said)[:known]
        remembered = self.streams.get(joined.stream.name) is joined.stream
        stopped_early = keys(said) == before[: len(said)]
        if remembered:
            assert split_keys(joined.stream.turn) == (before if stopped_early else keys(said))
        self.said += [(said, who)] if said else []

    @rule(pick=st.integers(0, 99), seconds=st.sampled_from([None, 0.0, 3.0]), tool=st.booleans())
    def say(self, pick: int, seconds: float | None, tool: bool) -> None:
        known = list(self.streams.latest())
        if known:
            stream = known[pick % len(known)]
            self.streams.retain(stream, None if seconds is None else self.now + seconds)
            stream.awaits = ("tool",) if tool else ()

    @invariant()
    def agrees(self) -> None:
        if not hasattr(self, "streams"):
            return
        self.streams.check()
        for tenant in ("", "t"):
            kept = [s for s in self.streams.latest() if s.tenant == tenant and (s.retained_until_s or 0.0) > self.now]
            assert self.streams.retained_blocks(tenant, self.now, besides=None) == sum(s.num_blocks for s in kept)
        for stream in self.streams.latest():
            children = {s.name for s in self.streams.latest() if s.parent == stream.name}
            assert children <= {s.name for s in self.streams.with_descendants([stream])}


TestStreams = StreamsMachine.TestCase
TestStreams.settings = settings(max_examples=80, stateful_step_count=40, deadline=None)
