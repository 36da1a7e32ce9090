"""The filter of all keys ever computed against a set of them."""

from __future__ import annotations

from hypothesis import given
from hypothesis import strategies as st

from samovar.base.keys import extend_keys, pack_tokens, root_key
from samovar.core.ceiling import Ceiling

ROOT = root_key(b"ceiling")
PROMPTS = st.lists(
    st.tuples(st.integers(0, 40), st.integers(0, 3), st.integers(0, 20)).map(
        lambda parts: [0] * parts[0] + [parts[1]] * parts[2]
    ),
    max_size=8,
)


@given(prompts=PROMPTS, asked=PROMPTS)
def test_chains_are_found_as_far_as_they_were_added(prompts: list[list[int]], asked: list[list[int]]) -> None:
    ceiling, added = Ceiling(1 << 16), set()
    for prompt in prompts:
        keys = extend_keys(ROOT, pack_tokens(prompt), 1)
        ceiling.add(keys)
        added.update(keys)
        assert ceiling.match(keys, len(keys)) == len(keys)
    for prompt in asked:
        keys = extend_keys(ROOT, pack_tokens(prompt), 1)
        assert ceiling.match(keys, len(keys)) == sum(key in added for key in keys)


def test_what_goes_on_costs_its_new_keys_only() -> None:
    keys = extend_keys(ROOT, pack_tokens(range(1000)), 1)
    ceiling = Ceiling(1 << 16)
    ceiling.add(keys)

    class Counted(list):
        num_read = 0

        def __reversed__(self):
            for key in super().__reversed__():
                self.num_read += 1
                yield key

    longer = Counted(extend_keys(ROOT, pack_tokens(range(1005)), 1))
    ceiling.add(longer)
    assert longer.num_read == 5 + 8 and ceiling.match(longer, 1005) == 1005
