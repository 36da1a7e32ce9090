"""Lists of a body that are wrong from end to end are refused for their first fault, at the cost of reading them."""

from __future__ import annotations

import time
import tracemalloc
from typing import Any

import pytest

from samovar.base.errors import InvalidField
from samovar.serve.anthropic.bodies import MessagesBody
from samovar.serve.bodies import Body, ChatBody, CompletionBody, TokenizeBody
from samovar.serve.responses.bodies import ResponsesBody
from samovar.serve.validation import validate

LONG = 200_000
MAX_S = 1.0
MAX_BYTES = 8 << 20


@pytest.mark.parametrize(
    ("body", "name"),
    [
        (ChatBody, "tools"),
        (ChatBody, "modalities"),
        (ChatBody, "guided_choice"),
        (ChatBody, "stop_token_ids"),
        (TokenizeBody, "tools"),
        (CompletionBody, "guided_choice"),
        (ResponsesBody, "include"),
        (ResponsesBody, "tools"),
        (MessagesBody, "tools"),
    ],
)
@pytest.mark.parametrize("element", [[], "x"])
def test_long_lists(body: type[Body], name: str, element: Any) -> None:
    _refused(body, name, [element] * LONG)


def test_long_objects() -> None:
    _refused(ChatBody, "logit_bias", {str(at): "x" for at in range(LONG)})


def _refused(body: type[Body], name: str, value: Any) -> None:
    given = {"messages": [], "prompt": "a", "max_tokens": 1, name: value}
    tracemalloc.start()
    try:
        begun = time.process_time()
        with pytest.raises(InvalidField) as caught:
            validate(body, given)
        assert time.process_time() - begun < MAX_S
        assert tracemalloc.get_traced_memory()[1] < MAX_BYTES
    finally:
        tracemalloc.stop()
    assert caught.value.param is not None and caught.value.param.startswith(name)
