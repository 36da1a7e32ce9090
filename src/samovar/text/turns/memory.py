"""Parts of texts with their ids, remembered in the places where they stood.

A trie: a node is a part that follows everything on the way to it. So what a model generated is found again in exactly
its conversation, while equal text elsewhere is not touched by it. Parts that were encoded are also found by their text
alone. Every chain is of one cache domain, and nothing is found across chains. Least recently used conversations lose
their ends first.
"""

from __future__ import annotations

from collections import OrderedDict
from collections.abc import Sequence
from dataclasses import dataclass, field
import threading

from samovar.base.keys import KEY_BYTES
from samovar.text.turns.bounded import text_bytes

MAX_BYTES = 256 << 20
"""About 200 conversations of 131,072 tokens."""
NODE_BYTES = 600
"""What a node takes beside its text, ids and keys."""


@dataclass(frozen=True, slots=True)
class Chain:
    """Where texts are remembered together."""

    root: bytes
    """Root key of the cache domain (`base.keys.root_key`)."""
    block_tokens: int
    prefix: bytes = b""
    """Packed ids that precede every text (BOS, where it is asked for)."""


@dataclass(eq=False, slots=True)
class Node:
    """Owned by the memory, which alone changes it. Forgotten ones are emptied, so that who holds one holds little."""

    trunk: Trunk | None = field(repr=False)
    """None once forgotten."""
    parent: Node | None = field(repr=False)
    text: str
    ids: bytes
    keys: bytes
    """Of the blocks that end in this part."""
    children: dict[str, Node] = field(default_factory=dict, repr=False)

    @property
    def num_bytes(self) -> int:
        return text_bytes(self.text) + len(self.ids) + len(self.keys) + NODE_BYTES


@dataclass(eq=False, slots=True)
class Trunk:
    """One chain's parts."""

    chain: Chain
    top: Node = field(init=False, repr=False)
    by_text: dict[str, Node] = field(default_factory=dict, repr=False)
    """Nodes whose ids are what their text encodes to."""

    def __post_init__(self) -> None:
        self.top = Node(self, None, "", self.chain.prefix, b"")


@dataclass(frozen=True, slots=True)
class Found:
    """How far a text was known."""

    node: Node | None
    """The deepest known place; None when nothing of this chain is known."""
    depth: int
    """Parts on the way to it."""
    ids: list[bytes]
    """Of the chain's prefix and these parts."""
    keys: list[bytes]
    rest: list[bytes | None]
    """Ids of the parts behind it, where they are known by their text alone."""


@dataclass(frozen=True, slots=True)
class New:
    """A part to remember."""

    text: str
    ids: bytes
    keys: bytes
    encoded: bool
    """The ids are what the text encodes to."""


class PartMemory:
    """Bounded in bytes. Safe to use from several threads; nothing long is done under the lock."""

    def __init__(self, max_bytes: int = MAX_BYTES) -> None:
        self._max_bytes = max_bytes
        self._num_bytes = 0
        self._trunks: dict[Chain, Trunk] = {}
        self._leaves: OrderedDict[Node, None] = OrderedDict()
        self._lock = threading.Lock()

    @property
    def num_bytes(self) -> int:
        return self._num_bytes

    def find(self, chain: Chain, parts: Sequence[str], start: Node | None = None, *, touch: bool = True) -> Found:
        """`parts` in order, from the chain's beginning or from behind `start`. `touch`: this is a use of them."""
        with self._lock:
            trunk = self._trunks.get(chain)
            node = start or (trunk.top if trunk else None)
            if trunk is None or node is None or node.trunk is not trunk:
                return Found(None, 0, [chain.prefix], [], [None] * len(parts))
            ids, keys = _way_to(node)
            depth = 0
            for part in parts:
                below = node.children.get(part)
                if below is None:
                    break
                node = below
                ids.append(node.ids)
                keys.append(node.keys)
                depth += 1
            if touch:
                self._touch(node)
            by_text = trunk.by_text
            rest = [known.ids if (known := by_text.get(part)) else None for part in parts[depth:]]
            return Found(node, depth, ids, keys, rest)

    def step_back(self, node: Node | None, text: str, length: int) -> tuple[Node | None, str] | None:
        """From the open part `text` behind `node` towards the beginning, until the open text has `length` characters.
        The node it follows then (None: it begins the chain), and that text; None when the place was forgotten."""
        with self._lock:
            if node is not None and node.trunk is None:
                return None
            pieces = [text]
            have = len(text)
            while have < length and node is not None:
                pieces.append(node.text)
                have += len(node.text)
                node = node.parent if node.parent is not None and node.parent.parent is not None else None
            return node, "".join(reversed(pieces))

    def add(self, chain: Chain, after: Node | None, parts: Sequence[New]) -> Node | None:
        """Remembers `parts` behind `after` (None: at the chain's beginning) and returns the last one's node; None when
        there are none or no room for them, or `after` was forgotten meanwhile."""
        with self._lock:
            if not parts or (after is not None and after.trunk is None):
                return None
            node = after or self._trunks.setdefault(chain, Trunk(chain)).top
            for part in parts:
                node = self._put(node, part)
            self._touch(node)
            self._shrink(node)
            return node if node.trunk is not None else None

    def check(self) -> None:
        """Recomputes everything that is kept."""
        total = 0
        leaves = set()
        for chain, trunk in self._trunks.items():
            assert trunk.chain == chain and trunk.top.children and trunk.top.parent is None
            todo = [trunk.top]
            while todo:
                node = todo.pop()
                assert node.trunk is trunk
                if node is not trunk.top:
                    total += node.num_bytes
                    assert node.parent is not None and node.parent.children[node.text] is node
                    if not node.children:
                        leaves.add(node)
                todo.extend(node.children.values())
            assert all(node.trunk is trunk and node.text == text for text, node in trunk.by_text.items())
        assert total == self._num_bytes <= self._max_bytes
        assert leaves == set(self._leaves)

    def _put(self, parent: Node, part: New) -> Node:
        trunk = parent.trunk
        assert trunk is not None
        known = parent.children.get(part.text)
        if known is not None:
            if known.ids == part.ids:
                return known
            # The same text was generated again as other ids: those have KV now.
            self._forget(known)
            self._trunks[trunk.chain] = parent.trunk = trunk
        node = Node(trunk, parent, part.text, part.ids, part.keys)
        parent.children[part.text] = node
        self._leaves.pop(parent, None)
        self._leaves[node] = None
        self._num_bytes += node.num_bytes
        if part.encoded:
            trunk.by_text[part.text] = node
        return node

    def _touch(self, node: Node) -> None:
        if node in self._leaves:
            self._leaves.move_to_end(node)

    def _shrink(self, newest: Node) -> None:
        while self._num_bytes > self._max_bytes:
            leaf = next(iter(self._leaves))
            parent = leaf.parent
            self._forget(leaf)
            if parent is not None and parent in self._leaves and leaf is not newest:
                # The rest of that conversation goes before any other does.
                self._leaves.move_to_end(parent, last=False)

    def _forget(self, node: Node) -> None:
        """`node` and everything behind it. What it hangs on becomes a leaf when nothing else does."""
        parent = node.parent
        assert parent is not None
        del parent.children[node.text]
        todo = [node]
        while todo:
            gone = todo.pop()
            todo.extend(gone.children.values())
            self._leaves.pop(gone, None)
            self._num_bytes -= gone.num_bytes
            trunk = gone.trunk
            assert trunk is not None
            if trunk.by_text.get(gone.text) is gone:
                del trunk.by_text[gone.text]
            gone.trunk = gone.parent = None
            gone.text, gone.ids, gone.keys, gone.children = "", b"", b"", {}
        if parent.children:
            return
        if parent.parent is not None:
            self._leaves[parent] = None
        elif parent.trunk is not None:
            del self._trunks[parent.trunk.chain]
            parent.trunk = None


def _way_to(node: Node) -> tuple[list[bytes], list[bytes]]:
    """Ids and keys of the parts on the way, the chain's prefix first."""
    ids: list[bytes] = []
    keys: list[bytes] = []
    at: Node | None = node
    while at is not None:
        ids.append(at.ids)
        keys.append(at.keys)
        at = at.parent
    ids.reverse()
    keys.reverse()
    return ids, keys


def last_key(chain: Chain, keys: bytes) -> bytes:
    """Of the last full block, or the chain's root."""
    return keys[-KEY_BYTES:] if keys else chain.root
