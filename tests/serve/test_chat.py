"""Chat answers, whole and streamed."""

from __future__ import annotations

import asyncio
import json

import pytest

from samovar.base.keys import domain_salt, extend_keys, join_keys, pack_tokens, root_key, unpack_tokens
from samovar.core.request import Request
from tests.serve.asgi import events
from tests.serve.conftest import ANSWER, END, EXTRA, MakeServer, ids
from tests.serve.scripted import Script

PROMPT = "<|im_start|>user\nHi<|im_end|>\n<|im_start|>assistant\n"


async def test_whole_answer(make_server: MakeServer) -> None:
    server = make_server()
    response = await server.chat(model="anything")
    assert response.status_code == 200
    answer = response.json()
    assert answer["object"] == "chat.completion" and answer["model"] == "anything"
    assert answer["choices"] == [
        {
            "index": 0,
            "message": {"role": "assistant", "content": ANSWER, "refusal": None},
            "logprobs": None,
            "finish_reason": "stop",
            "stop_reason": None,
        }
    ]
    prompt = len(PROMPT) - 2 * len("<|im_start|>") - len("<|im_end|>") + 3
    assert answer["usage"] == {
        "prompt_tokens": prompt,
        "completion_tokens": len(ids(ANSWER)) + 1,
        "total_tokens": prompt + len(ids(ANSWER)) + 1,
        "prompt_tokens_details": {"cached_tokens": 0},
    }


async def test_engine_request(make_server: MakeServer, tokenizer) -> None:
    """Prompt ids, root and block keys are those of `base.keys`, and defaults are resolved."""
    server = make_server()
    await server.chat("Hi " * 20, cache_salt="mine", priority=-3, seed=7)
    request = server.service.requests[0]
    tokens = tokenizer.encode(PROMPT.replace("Hi", "Hi " * 20))
    assert unpack_tokens(request.token_ids) == tokens
    root = root_key(b"test", domain_salt("", "mine"))
    assert request.root == root and request.keys == join_keys(extend_keys(root, pack_tokens(tokens), 16))
    assert request.priority == -3 and request.tenant == ""
    params = request.sampling
    assert (params.max_tokens, params.seed, params.temperature, params.stop_token_ids) == (
        4096 - len(tokens), 7, 1.0, (END,),
    )  # fmt: skip


async def test_stream(make_server: MakeServer) -> None:
    server = make_server(Script(ids(ANSWER, end=True), per_output=3))
    response = await server.chat(stream=True, stream_options={"include_usage": True})
    assert response.headers["content-type"].startswith("text/event-stream")
    assert response.headers["x-accel-buffering"] == "no"
    found = events(response.text)
    assert found[-1] == "[DONE]"
    usage = found[-2]
    assert usage["choices"] == [] and usage["usage"]["completion_tokens"] == len(ids(ANSWER)) + 1
    assert usage["usage"]["prompt_tokens_details"] == {"cached_tokens": 0}
    chunks = [chunk["choices"][0] for chunk in found[:-2]]
    assert chunks[0]["delta"] == {"role": "assistant", "content": ""}
    assert "".join(chunk["delta"].get("content", "") for chunk in chunks) == ANSWER
    assert [chunk["finish_reason"] for chunk in chunks] == [None] * (len(chunks) - 1) + ["stop"]
    assert len({chunk["id"] for chunk in found[:-1]}) == 1
    assert all("usage" not in chunk for chunk in found[:-2])


async def test_continuous_usage(make_server: MakeServer) -> None:
    server = make_server(Script(ids("abc", end=True), delay_s=0.01))
    options = {"include_usage": True, "continuous_usage_stats": True}
    found = events((await server.chat(stream=True, stream_options=options)).text)
    counts = [chunk["usage"]["completion_tokens"] for chunk in found[:-1]]
    assert counts == [1, 1, 2, 3, 4, 4]


async def test_waiting_outputs_are_one_chunk(make_server: MakeServer) -> None:
    """A reader that was away gets everything at once."""
    server = make_server(Script(ids("a" * 50, end=True)))
    found = events((await server.chat(stream=True)).text)
    assert len(found) <= 5


async def test_whole_characters_only(make_server: MakeServer) -> None:
    server = make_server(Script(ids("a😀b", end=True), delay_s=0.002))
    found = events((await server.chat(stream=True)).text)
    pieces = [c["choices"][0]["delta"].get("content") for c in found[1:-1]]
    assert [piece for piece in pieces if piece] == ["a", "😀", "b"]


@pytest.mark.parametrize("per_output", [1, 2, 3, 50])
@pytest.mark.parametrize("stream", [False, True])
async def test_stop_string(make_server: MakeServer, per_output: int, stream: bool) -> None:
    """Not shown, found across tokens; the engine is told at once how many tokens to keep."""
    server = make_server(Script(ids("one, two; three and much more"), per_output=per_output, delay_s=0.001))
    options = {"stream_options": {"include_usage": True}} if stream else {}
    response = await server.chat(stop=["; th", "zzz"], stream=stream, **options)
    kept = len("one, two; th")
    if stream:
        found = events(response.text)
        text = "".join(c["choices"][0]["delta"].get("content", "") for c in found[:-2])
        last, usage = found[-3]["choices"][0], found[-2]["usage"]
    else:
        last = response.json()["choices"][0]
        text, usage = last["message"]["content"], response.json()["usage"]
    assert text == "one, two"
    assert (last["finish_reason"], last["stop_reason"]) == ("stop", "; th")
    assert usage["completion_tokens"] == kept
    if per_output < 50:
        assert server.service.finished == [(server.service.requests[0].id, kept)]
    assert not server.service.open


async def test_one_choice_stops_while_another_goes_on(make_server: MakeServer) -> None:
    """Tokens that came after the stop string are given back at once, not when the whole answer is complete."""

    def script(request: Request) -> Script:
        return Script(ids("ab!cdefghij" if request.sampling.seed == 5 else "x" * 30), per_output=5, delay_s=0.05)

    server = make_server(script)
    waiting = asyncio.create_task(server.chat(n=2, seed=5, stop="!"))
    await asyncio.sleep(0.1)
    assert server.service.finished == [(1, 3)] and not waiting.done()
    texts = [choice["message"]["content"] for choice in (await waiting).json()["choices"]]
    assert texts == ["ab", "x" * 30] and server.service.finished == [(1, 3)]


async def test_stop_string_shown(make_server: MakeServer) -> None:
    server = make_server(Script(ids("one, two; three")))
    response = await server.chat(stop="two", include_stop_str_in_output=True)
    assert response.json()["choices"][0]["message"]["content"] == "one, two"


async def test_stop_string_after_min_tokens(make_server: MakeServer) -> None:
    server = make_server(Script(ids("stop and stop here")))
    response = await server.chat(stop="stop", min_tokens=5)
    assert response.json()["choices"][0]["message"]["content"] == "stop and "


async def test_stop_token(make_server: MakeServer) -> None:
    """One of the client's own is the stop reason; the EOS is not. Neither is shown."""
    server = make_server(Script(ids("ab!cd", end=True)))
    choice = (await server.chat(stop_token_ids=[ord("!")])).json()["choices"][0]
    assert choice["message"]["content"] == "ab" and choice["stop_reason"] == ord("!")
    shown = await server.chat(stop_token_ids=[ord("!")], include_stop_str_in_output=True)
    assert shown.json()["choices"][0]["message"]["content"] == "ab!"


async def test_special_tokens_and_ignore_eos(make_server: MakeServer) -> None:
    server = make_server(Script((*ids("a"), EXTRA, END, *ids("b"))))
    response = await server.chat(ignore_eos=True)
    assert response.json()["choices"][0]["message"]["content"] == "ab"
    assert response.json()["choices"][0]["finish_reason"] == "length"
    response = await server.chat(ignore_eos=True, skip_special_tokens=False)
    assert response.json()["choices"][0]["message"]["content"] == "a<|extra|><|im_end|>b"


async def test_logprobs(make_server: MakeServer) -> None:
    server = make_server(Script(ids("ö", end=True)))
    content = (await server.chat(logprobs=True, top_logprobs=3)).json()["choices"][0]["logprobs"]["content"]
    assert [entry["bytes"] for entry in content] == [[0xC3], [0xB6]]
    assert content[0]["token"] == "\ufffd" and content[0]["logprob"] == -1.5
    assert [entry["logprob"] for entry in content[0]["top_logprobs"]] == [-0.25, -1.5, -9999.0]
    bare = (await server.chat(logprobs=True)).json()["choices"][0]["logprobs"]["content"]
    assert bare[0]["top_logprobs"] == []
    found = events((await server.chat(logprobs=True, stream=True)).text)
    streamed = [e for c in found[:-1] for e in (c["choices"][0]["logprobs"] or {}).get("content", [])]
    assert streamed == bare


async def test_choices_have_their_own_seeds(make_server: MakeServer) -> None:
    server = make_server(lambda request: Script(ids(str(request.sampling.seed % 10), end=True)))
    for stream in (False, True):
        response = await server.chat(n=3, seed=2**63 - 2, stream=stream)
        if stream:
            texts = ["", "", ""]
            for chunk in events(response.text)[:-1]:
                choice = chunk["choices"][0]
                texts[choice["index"]] += choice["delta"].get("content", "")
        else:
            texts = [choice["message"]["content"] for choice in response.json()["choices"]]
        assert texts == [str((2**63 - 2) % 10), str((2**63 - 1) % 10), "0"]
    usage = (await server.chat(n=3)).json()["usage"]
    assert usage["completion_tokens"] == 6 and usage["prompt_tokens"] == 21


async def test_token_ids(make_server: MakeServer, tokenizer) -> None:
    server = make_server(Script(ids("abc", end=True), delay_s=0.002))
    found = events((await server.chat(stream=True, return_token_ids=True)).text)[:-1]
    assert found[0]["prompt_token_ids"] == tokenizer.encode(PROMPT)
    assert all("prompt_token_ids" not in chunk for chunk in found[1:])
    both = events((await server.chat(stream=True, return_token_ids=True, n=2)).text)[:-1]
    assert sum("prompt_token_ids" in chunk for chunk in both) == 1
    assert [t for chunk in found for t in chunk["choices"][0].get("token_ids", [])] == list(ids("abc", end=True))
    whole = (await server.chat(return_token_ids=True)).json()
    assert whole["choices"][0]["token_ids"] == list(ids("abc", end=True))
    assert whole["prompt_token_ids"] == tokenizer.encode(PROMPT)


async def test_cached_tokens(make_server: MakeServer) -> None:
    """0 when cold, the blocks of the second sight afterwards; a sibling's blocks do not make a cold prompt warm."""
    server = make_server()
    text = "x" * 100
    cold, warm = await server.chat(text, n=2), await server.chat(text)
    assert cold.json()["usage"]["prompt_tokens_details"] == {"cached_tokens": 0}
    tokens = warm.json()["usage"]["prompt_tokens"]
    assert warm.json()["usage"]["prompt_tokens_details"] == {"cached_tokens": (tokens - 1) // 16 * 16}


async def test_template_fields(make_server: MakeServer, tokenizer) -> None:
    server = make_server()

    def prompt() -> str:
        tokens = unpack_tokens(server.service.requests[-1].token_ids)
        return tokenizer.decode(tokens, skip_special_tokens=False)

    await server.chat(add_generation_prompt=False)
    assert prompt() == "<|im_start|>user\nHi<|im_end|>\n"
    await server.chat(chat_template_kwargs={"shout": "HO"}, tools=[{"type": "function", "function": {"name": "f"}}])
    assert '{"name": "f"}' in prompt() and "HO" in prompt()
    await server.post(
        "/v1/chat/completions",
        {
            "messages": [{"role": "user", "content": "Hi"}, {"role": "assistant", "content": "Sure:"}],
            "continue_final_message": True,
        },
    )
    assert prompt().endswith("<|im_start|>assistant\nSure:")


@pytest.mark.parametrize("content", [None, "", [], [{"type": "text", "text": ""}]])
async def test_no_content(make_server: MakeServer, tokenizer, content: object) -> None:
    """null, "" and [] give the same ids, with and without tool calls beside them."""
    server = make_server()
    call = {"id": "1", "type": "function", "function": {"name": "f", "arguments": '{"b": 1, "a": 2}'}}
    messages = [{"role": "user", "content": "Hi"}, {"role": "assistant", "content": content, "tool_calls": [call]}]
    response = await server.post("/v1/chat/completions", {"messages": messages})
    assert response.status_code == 200, response.text
    tokens = unpack_tokens(server.service.requests[0].token_ids)
    assert "assistant\n<|im_end|>" in tokenizer.decode(tokens, skip_special_tokens=False)


async def test_roles_that_templates_do_not_know(make_server: MakeServer, tokenizer) -> None:
    server = make_server()
    messages = [{"role": "developer", "content": "Be brief."}, {"role": "user", "content": "Hi"}]
    await server.post("/v1/chat/completions", {"messages": messages})
    tokens = unpack_tokens(server.service.requests[0].token_ids)
    assert tokenizer.decode(tokens, skip_special_tokens=False).startswith("<|im_start|>system\nBe brief.")


async def test_unknown_fields_and_unusual_text(make_server: MakeServer) -> None:
    server = make_server()
    assert (await server.chat("a\0b\u2028\ufffe", store=False, foo={"bar": [1]}, user=None, n=None)).status_code == 200
    body = json.dumps({"messages": [{"role": "user", "content": "a"}, {"role": "user", "content": "b"}]})
    response = await server.client.post("/v1/chat/completions", content=body, headers={"content-type": "text/plain"})
    assert response.status_code == 200


async def test_error_in_the_middle(make_server: MakeServer) -> None:
    """Before headers it is a status; after them an event, and the stream still ends properly."""
    server = make_server(Script(ids("abcdef"), error_after=3))
    whole = await server.chat()
    assert whole.status_code == 500 and whole.json()["error"]["code"] == "step_failed"
    found = events((await server.chat(stream=True)).text)
    assert found[-2]["error"]["code"] == "step_failed" and found[-1] == "[DONE]"
    two = events((await server.chat(stream=True, n=2)).text)
    assert two[-2]["error"]["code"] == "step_failed" and not server.service.open
