"""Compaction: by its own endpoint, and by an item that asks for it."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from openai.types.responses import CompactedResponse
import pytest

from samovar.serve.responses.compact import INSTRUCTION, kept_messages
from samovar.serve.responses.items import SUMMARY_HEAD
from samovar.serve.responses.sealed import seal, unseal
from tests.serve.asgi import Server
from tests.serve.responses.conftest import TOOLS, prompt, refusal, respond, stream
from tests.serve.responses.test_stream import check

Says = Callable[..., Server]
CONVERSATION: list[dict[str, Any]] = [
    {"role": "developer", "content": "Rules."},
    {"role": "user", "content": [{"type": "input_text", "text": "List it."}]},
    {"type": "function_call", "call_id": "c", "name": "ls", "arguments": "{}"},
    {"type": "function_call_output", "call_id": "c", "output": "file " * 40},
    {"role": "assistant", "content": "Done."},
]


async def test_endpoint(says: Says) -> None:
    server = says("Hello", "<think>Hm.</think>We listed it.", "Next.")
    await respond(server, CONVERSATION, tools=TOOLS, instructions="Be brief.", store=False)
    whole = prompt(server).removesuffix("<|im_start|>assistant\n")
    body = {"model": "m", "input": CONVERSATION, "tools": TOOLS, "instructions": "Be brief.", "tool_choice": "required"}
    response = await server.post("/v1/responses/compact", {**body, "stream": True})
    assert response.status_code == 200
    answer = response.json()
    CompactedResponse.model_validate({**answer, "output": answer["output"][-1:]})
    # The request is the conversation's own, with an instruction behind it: all of it is a hit.
    assert prompt(server).startswith(whole) and INSTRUCTION in prompt(server)
    assert answer["usage"]["input_tokens_details"]["cached_tokens"] == len(_ids(whole)) // 16 * 16
    assert answer["object"] == "response.compaction"
    rules, listing, compaction = answer["output"]
    assert (rules["role"], listing["role"], listing["content"]) == ("developer", "user", CONVERSATION[1]["content"])
    assert rules["id"] and rules["type"] == "message" and rules["status"] == "completed"
    assert compaction["type"] == "compaction" and unseal("summary", compaction["encrypted_content"]) == "We listed it."
    assert server.store.num_bytes == 0

    await respond(server, [*answer["output"], {"role": "user", "content": "Go on."}], instructions="Be brief.")
    said = prompt(server)
    assert f"{SUMMARY_HEAD}We listed it." in said and "file file" not in said and "List it." in said
    assert said.index("List it.") < said.index("We listed it.") < said.index("Go on.")


def _ids(text: str) -> list[int]:
    return list(text.replace("<|im_start|>", "\0").replace("<|im_end|>", "\0").encode())


@pytest.mark.parametrize("store", [True, False])
async def test_trigger(says: Says, store: bool) -> None:
    """As Codex asks: a stream with one compaction in it."""
    server = says("<think>Hm.</think>We listed it.", "Next.")
    asked = [*CONVERSATION, {"type": "compaction_trigger"}]
    found = await stream(server, asked, tools=TOOLS, store=store)
    final = check_summary(found)
    assert unseal("summary", final["output"][0]["encrypted_content"]) == "We listed it."
    if not store:
        return
    await respond(server, "Go on.", previous_response_id=final["id"])
    said = prompt(server)
    assert "We listed it." in said and "file file" not in said and "List it." in said and "Rules." in said


def check_summary(found: list[dict[str, Any]]) -> dict[str, Any]:
    """The summary comes whole, so there are no deltas to compare it with."""
    kinds = [event["type"] for event in found]
    assert kinds == [
        "response.created",
        "response.in_progress",
        "response.output_item.added",
        "response.output_item.done",
        "response.completed",
    ]
    assert found[2]["item"]["id"] == found[3]["item"]["id"]
    final: dict[str, Any] = found[-1]["response"]
    assert final["output"] == [found[3]["item"]] and final["output"][0]["type"] == "compaction"
    return final


async def test_continued_conversation_is_compacted(says: Says) -> None:
    server = says("Hello", "We listed it.")
    first = await respond(server, CONVERSATION)
    body = {"previous_response_id": first["id"]}
    answer = (await server.post("/v1/responses/compact", body)).json()
    assert [item["type"] for item in answer["output"]] == ["message", "message", "compaction"]


async def test_no_summary(says: Says) -> None:
    server = says("<think>Only thoughts.</think>")
    response = await server.post("/v1/responses/compact", {"input": CONVERSATION})
    assert "no summary" in refusal(response, 500)["message"]
    found = await stream(server, [*CONVERSATION, {"type": "compaction_trigger"}])
    assert found[-1]["type"] == "response.failed" and "no summary" in found[-1]["response"]["error"]["message"]


async def test_a_foreign_compaction_is_refused(says: Says) -> None:
    items = [{"type": "compaction", "encrypted_content": "gAAAAABo"}, {"role": "user", "content": "Hi"}]
    error = refusal(await says("Hello").post("/v1/responses", {"input": items}))
    assert error["param"] == "input[0].encrypted_content"


def test_kept_messages() -> None:
    old = {"type": "compaction", "encrypted_content": seal("summary", "x")}
    items = [*CONVERSATION, old, {"role": "user", "content": "y" * 100}, {"role": "user", "content": "z" * 100}]
    assert kept_messages(items, 4096) == [CONVERSATION[0], CONVERSATION[1], items[-2], items[-1]]
    assert kept_messages(items, 150) == [CONVERSATION[0], items[-1]], "the newest that fit in a quarter"


async def test_check_of_streams_is_used(says: Says) -> None:
    """`check` holds for ordinary streams of the same server."""
    check(await stream(says("Hello"), CONVERSATION))
