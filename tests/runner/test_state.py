"""Request states and block tables against plain lists."""

from __future__ import annotations

from hypothesis import given
from hypothesis import strategies as st
import numpy as np
import pytest

from samovar.base.ids import BlockId, RequestId
from samovar.base.keys import pack_tokens
from samovar.core.plan import Redirect, Start
from samovar.core.sampling import SamplingParams
from samovar.runner.state import BlockTable, RunnerRequest

VOCAB = 50


def state(tokens: list[int], num_prompt: int | None = None, **values: float) -> RunnerRequest:
    sampling = SamplingParams(max_tokens=100, **values)  # type: ignore[arg-type]
    start = Start(RequestId(1), pack_tokens(tokens), len(tokens) if num_prompt is None else num_prompt, sampling)
    return RunnerRequest(start, 1, VOCAB)


@given(st.lists(st.integers(0, VOCAB - 1), min_size=1, max_size=20), st.data())
def test_tokens_and_counts_like_a_list(prompt: list[int], data: st.DataObject) -> None:
    """Tokens are put at the end or, when a step runs again, over what was there."""
    kept = state(prompt, presence_penalty=1.0)
    model = list(prompt)
    for _ in range(data.draw(st.integers(0, 150))):
        back = data.draw(st.integers(0, min(2, len(model) - len(prompt))))
        token = data.draw(st.integers(0, VOCAB - 1))
        del model[len(model) - back :]
        kept.put(len(model), token)
        model.append(token)
        if data.draw(st.booleans()):
            break
    assert kept.span(0, kept.num_tokens).tolist() == model
    assert kept.counts is not None
    output = np.array(model[len(prompt) :], dtype=np.int64)
    assert kept.counts.output.tolist() == np.bincount(output, minlength=VOCAB).tolist()
    assert set(np.flatnonzero(kept.counts.in_prompt).tolist()) == set(prompt)


def test_many_tokens_grow_the_buffer() -> None:
    kept = state([1])
    for position in range(1, 1000):
        kept.put(position, position % VOCAB)
    assert kept.span(0, 1000).tolist() == [1] + [position % VOCAB for position in range(1, 1000)]


def test_a_resumed_request_counts_its_output_again() -> None:
    kept = state([5, 6, 7, 7], num_prompt=2, frequency_penalty=1.0)
    assert kept.counts is not None
    assert kept.counts.output[7] == 2 and not kept.counts.in_prompt[7] and kept.counts.in_prompt[5]


def test_counts_only_when_asked_for() -> None:
    assert state([1, 2]).counts is None


def test_unknown_tokens_are_our_bug_unless_a_step_failed() -> None:
    kept = state([1, 2])
    assert kept.can_run(3)
    with pytest.raises(AssertionError, match="token 2 is asked for, 2 are known"):
        kept.token(2)
    kept.broken = True
    assert kept.can_run(2) and not kept.can_run(3)
    kept.put(2, 9)
    assert kept.can_run(3) and kept.token(2) == 9


@given(st.lists(st.one_of(st.lists(st.integers(0, 10**9), max_size=200), st.tuples(st.integers(0), st.integers(0)))))
def test_a_table_is_a_list(changes: list[list[int] | tuple[int, int]]) -> None:
    """Lists are appended, pairs replace an entry."""
    table, model = BlockTable(), list[int]()
    for change in changes:
        if isinstance(change, list):
            table.extend(tuple(BlockId(block) for block in change))
            model.extend(change)
        elif model:
            index, block = change[0] % len(model), change[1] % 10**9
            table.replace(index, BlockId(block))
            model[index] = block
        assert len(table) == len(model) and table.view().tolist() == model


def test_a_long_table_is_never_copied_to_be_looked_at() -> None:
    """Views share the table's memory, and memory changes place a few times in thousands of appended blocks."""
    table, places = BlockTable(), set[int]()
    for block in range(20_000):
        table.extend((BlockId(block),))
        view = table.view()
        places.add(view.__array_interface__["data"][0])
        assert view.base is not None and np.shares_memory(view, table.view())
    assert len(places) < 20 and view[-1] == 19_999


def test_an_entry_that_is_not_there_cannot_be_replaced() -> None:
    table = BlockTable()
    table.extend((BlockId(3),))
    for index in (1, -1):
        with pytest.raises(AssertionError, match="table of 1"):
            table.replace(index, BlockId(4))


def test_redirects_change_one_entry() -> None:
    kept = state([1, 2])
    kept.extend_tables(((BlockId(3), BlockId(5)),))
    kept.redirect(Redirect(RequestId(1), 0, 0, BlockId(8)))
    kept.extend_tables(())
    assert kept.tables[0].view().tolist() == [8, 5]
