"""The memory of parts against a dictionary of ways, under any order of finding, adding and forgetting."""

from __future__ import annotations

from hypothesis import settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, invariant, rule

from samovar.text.turns.memory import NODE_BYTES, Chain, New, Node, PartMemory

CHAINS = [Chain(b"a" * 16, 4), Chain(b"b" * 16, 4, b"pref")]
ways = st.lists(st.sampled_from("abc"), min_size=1, max_size=5)
ROOM = 9 * (NODE_BYTES + 10)


class Memory(RuleBasedStateMachine):
    """`said`: ids by chain and way, as last added. What is found must be among it; no more is promised."""

    def __init__(self) -> None:
        super().__init__()
        self.memory = PartMemory(ROOM)
        self.said: dict[tuple[Chain, tuple[str, ...]], bytes] = {}
        self.places: list[tuple[Chain, list[str], Node]] = []

    @rule(chain=st.sampled_from(CHAINS), way=ways, salt=st.sampled_from([b"", b"", b"g"]))
    def add(self, chain: Chain, way: list[str], salt: bytes) -> None:
        found = self.memory.find(chain, way)
        rest = way[found.depth :]
        news = [New(text, text.encode() + salt, b"k", encoded=not salt) for text in rest]
        node = self.memory.add(chain, found.node, news)
        for at, new in enumerate(news):
            self.said[chain, tuple(way[: found.depth + at + 1])] = new.ids
        if rest:
            assert node is not None
            self.places.append((chain, way, node))
            again = self.memory.find(chain, way)
            assert again.depth == len(way)  # what was just added is there: it fits

    @rule(chain=st.sampled_from(CHAINS), way=ways)
    def replace(self, chain: Chain, way: list[str]) -> None:
        """The last part gets other ids; what hung on it is gone."""
        before = self.memory.find(chain, way)
        found = self.memory.find(chain, way[:-1])
        if found.depth < len(way) - 1 or found.node is None:
            return
        self.memory.add(chain, found.node, [New(way[-1], b"other", b"k", encoded=False)])
        stays = before.depth == len(way) and before.ids[-1] == b"other"
        for known in [key for key in self.said if key[0] == chain and key[1][: len(way)] == tuple(way)]:
            if not stays:
                del self.said[known]
        self.said[chain, tuple(way)] = b"other"

    @rule(chain=st.sampled_from(CHAINS), way=ways)
    def find(self, chain: Chain, way: list[str]) -> None:
        found = self.memory.find(chain, way)
        expected = [self.said[chain, tuple(way[: at + 1])] for at in range(found.depth)]
        assert found.ids == [chain.prefix, *expected]
        assert len(found.rest) == len(way) - found.depth
        for text, ids in zip(way[found.depth :], found.rest, strict=True):
            assert ids in (None, text.encode())

    @rule(data=st.data(), way=ways)
    def find_from_a_place(self, data: st.DataObject, way: list[str]) -> None:
        if not self.places:
            return
        chain, before, node = data.draw(st.sampled_from(self.places))
        found = self.memory.find(chain, way, node)
        if found.node is None:
            assert node.trunk is None and not node.ids and not node.children
            assert self.memory.add(chain, node, [New("a", b"a", b"", encoded=True)]) is None
            assert self.memory.step_back(node, "open", 5) is None
            return
        whole = [*before, *way][: len(before) + found.depth]
        assert found.ids == [chain.prefix, *(self.said[chain, tuple(whole[: at + 1])] for at in range(len(whole)))]
        stepped = self.memory.step_back(node, "open", 6)
        assert stepped is not None
        assert stepped[1] == "".join(before[-2:]) + "open" and (stepped[0] is None) == (len(before) <= 2)

    @invariant()
    def sound(self) -> None:
        self.memory.check()


Memory.TestCase.settings = settings(max_examples=80, stateful_step_count=40, deadline=None)
TestMemory = Memory.TestCase


def test_the_longest_unused_conversation_goes_first_and_whole() -> None:
    memory = PartMemory(ROOM)
    for way in ("abc", "xyz", "abq"):
        found = memory.find(CHAINS[0], way)
        memory.add(CHAINS[0], found.node, [New(text, b"12", b"", encoded=True) for text in way[found.depth :]])
    memory.add(CHAINS[1], None, [New(text, b"12", b"", encoded=True) for text in "12"])
    # Nine fit: "c" went, the oldest leaf; then the next two go from "xyz", from its end.
    memory.add(CHAINS[1], None, [New(text, b"12", b"", encoded=True) for text in "789"])
    assert memory.find(CHAINS[0], "abq").depth == 3
    assert memory.find(CHAINS[1], "789").depth == 3
    assert memory.find(CHAINS[0], "xyz").depth < 3
    memory.check()


def test_the_only_part_of_a_chain_gets_other_ids() -> None:
    memory = PartMemory(ROOM)
    memory.add(CHAINS[0], None, [New("a", b"1", b"", encoded=True)])
    memory.add(CHAINS[0], None, [New("a", b"2", b"", encoded=False)])
    memory.check()
    assert memory.find(CHAINS[0], "a").ids == [b"", b"2"]
