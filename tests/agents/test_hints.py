"""Hints through a running server: what the engine makes of them comes back, with an answer and by themselves."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

from anthropic import Anthropic
import httpx
from openai import OpenAI
import pytest

from tests.agents import sdk
from tests.agents.server import Server, scripted_server

pytestmark = [pytest.mark.torch, pytest.mark.model]

MESSAGES: Any = [{"role": "user", "content": f"{sdk.SYSTEM} {sdk.QUESTION}"}]
ENVELOPE = {
    "protocol_version": 1,
    "message_id": "m",
    "actions": [
        {"action": "retain", "ttl_s": 60},
        {"action": "resume_in", "seconds": 200_000},
        {"action": "boil"},
        {"action": "release"},
    ],
}


@pytest.fixture(scope="module")
def server(agent_model: Any, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Server]:
    with scripted_server(agent_model, sdk.RULES, tmp_path_factory.mktemp("hints")) as running:
        yield running
    assert "Traceback" not in running.log.read_text()


def check(told: dict[str, Any]) -> None:
    """Whatever the policy is: one answer for each action, of the engine's own for what it knows."""
    assert told["message_id"] == "m"
    answers = told["answers"]
    assert [answer["action"] for answer in answers] == ["retain", "resume_in", "boil", "release"]
    assert answers[2] == {"action": "boil", "status": "ignored", "reason": "unknown action"}
    assert answers[3]["status"] == "applied"
    assert all(answer["status"] in ("applied", "clipped", "ignored") for answer in answers)
    assert not any("said nothing" in answer["reason"] for answer in answers)
    assert all(answer["reason"] or answer["status"] == "applied" for answer in answers)


@pytest.mark.parametrize("stream", [False, True])
def test_with_an_answer(server: Server, stream: bool) -> None:
    extra: Any = {"kv_hints": ENVELOPE, "session_id": f"answer {stream}"}
    with Anthropic(base_url=server.url, api_key="none", max_retries=0, timeout=60) as client:
        body: dict[str, Any] = {"model": "tiny", "max_tokens": 20, "messages": MESSAGES, "extra_body": extra}
        if stream:
            with client.messages.stream(**body) as events:
                message = events.get_final_message()
        else:
            message = client.messages.create(**body)
    assert message.model_extra is not None
    check(message.model_extra["kv_hints"])
    with OpenAI(base_url=f"{server.url}/v1", api_key="none", max_retries=0, timeout=60) as client_:
        response = client_.responses.create(model="tiny", input="Hi", max_output_tokens=20, extra_body=extra)
    assert response.model_extra is not None
    check(response.model_extra["kv_hints"])


def test_by_themselves(server: Server) -> None:
    with httpx.Client(base_url=server.url, timeout=60) as client:
        unknown = client.post("/v1/kv/hints", json={"session_id": "by itself", "kv_hints": ENVELOPE})
        assert unknown.status_code == 200
        assert {answer["status"] for answer in unknown.json()["kv_hints"]["answers"]} == {"ignored"}
        assert client.delete("/v1/sessions/by%20itself").status_code == 404
        body = {"messages": MESSAGES, "max_tokens": 20, "session_id": "by itself"}
        assert client.post("/v1/chat/completions", json=body).status_code == 200
        known = client.post("/v1/kv/hints", json={"session_id": "by itself", **ENVELOPE})
        check(known.json()["kv_hints"])
        ended = client.delete("/v1/sessions/by%20itself")
        assert ended.status_code == 200
        assert ended.json()["kv_hints"]["answers"] == [{"action": "release", "status": "applied", "reason": ""}]
