"""Where the context ends."""

from __future__ import annotations

import re

import msgspec
import pytest

from samovar.core.ports import EngineInfo
from tests.serve.anthropic.conftest import ask
from tests.serve.conftest import MakeServer, ids
from tests.serve.scripted import Script

CONTEXT = 100


@pytest.fixture
def info(info: EngineInfo) -> EngineInfo:
    return msgspec.structs.replace(info, max_model_len=CONTEXT)


async def test_the_end_of_the_context(make_server: MakeServer) -> None:
    """With a prompt of 95, at most 5 tokens are generated, whatever is asked for; a prompt of 100 or more is refused,
    in the words that agents look for."""
    server = make_server(Script(ids("abcdefghij")))
    await ask(server, "")
    around = len(server.service.requests[0].token_ids) // 4
    answer = (await ask(server, "x" * (95 - around), max_tokens=32_000)).json()
    assert answer["usage"]["input_tokens"] + answer["usage"]["cache_read_input_tokens"] == 95
    assert answer["usage"]["output_tokens"] == 5
    assert answer["stop_reason"] == "model_context_window_exceeded"
    assert (await ask(server, "x" * (95 - around), max_tokens=3)).json()["stop_reason"] == "max_tokens"
    for length, room in ((101, 100), (100, 99)):
        response = await ask(server, "x" * (length - around))
        assert response.status_code == 400
        assert response.json()["error"] == {
            "type": "invalid_request_error",
            "message": f"prompt is too long: {length} tokens > {room} maximum",
        }
    # Not encoded to the end only to be refused.
    message = (await ask(server, "x" * 5000)).json()["error"]["message"]
    assert re.fullmatch(r"prompt is too long: at least \d{3,} tokens > 100 maximum", message)
