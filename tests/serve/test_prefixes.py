"""Turn after turn, a prompt begins with the one before and what was generated: over HTTP, with exact numbers."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest

from samovar.base.keys import extend_keys, unpack_tokens
from samovar.core.ports import EngineInfo
from samovar.core.request import Request
from samovar.serve.config import ServeConfig
from samovar.text.gguf_tokenizer import load_gguf
from samovar.text.template import ChatTemplate
from samovar.text.tokenizer import Tokenizer
from tests.serve.asgi import Server
from tests.serve.scripted import BLOCK, Script, ScriptedService
from tests.text.turns.conversations import ALTERNATING, CHATML, THINKING, tool
from tests.text.vocabularies import byte_level

PAD = "\x01"
"""One token, whatever stands beside it."""
BILLING = "x-anthropic-billing-header: cc_version=2.1; cch={};"


@pytest.fixture(scope="module")
def merging() -> Tokenizer:
    """One that can spell a text in several ways."""
    return load_gguf(byte_level())


class Turns:
    """A server, and a cache that keeps what its engine would keep: prompts, and all but the last generated token."""

    def __init__(self, tokenizer: Tokenizer, info: EngineInfo, source: str, **config: Any) -> None:
        self.tokenizer = tokenizer
        self.outputs: list[list[int]] = []
        template = ChatTemplate({"default": source}, tokenizer.special_tokens)
        self.service = ScriptedService(self._say, info)
        self.server = Server(self.service, tokenizer, template, ServeConfig(**{"model": "tea", **config}))

    def _say(self, request: Request) -> Script:
        ids = self.outputs.pop(0) if self.outputs else []
        return Script((*ids, self.tokenizer.eos_ids[0]))

    async def ask(self, messages: list[dict[str, Any]], says: list[int] | None = None, **fields: Any) -> dict[str, Any]:
        self.outputs = [says or []]
        answer = await self.server.post("/v1/chat/completions", {"messages": messages, "max_tokens": 500, **fields})
        assert answer.status_code == 200, answer.text
        request = self.service.requests[-1]
        known = [*unpack_tokens(request.token_ids), *(says or [])]
        packed = b"".join(token.to_bytes(4, "little") for token in known)
        self.service.cache.update(extend_keys(request.root, packed, BLOCK))
        return answer.json()

    def last_ids(self) -> list[int]:
        return unpack_tokens(self.service.requests[-1].token_ids)

    def text(self) -> str:
        return self.tokenizer.decode(self.last_ids(), skip_special_tokens=False)

    async def padded(self, make: Callable[[str], list[dict[str, Any]]], tokens: int) -> list[dict[str, Any]]:
        """Messages whose prompt has exactly so many tokens; nothing of them is asked."""
        body = {"messages": make("")}
        shorter = (await self.server.post("/tokenize", body)).json()["count"]
        assert shorter <= tokens
        return make(PAD * (tokens - shorter))


def cached(answer: dict[str, Any]) -> int:
    found: int = answer["usage"]["prompt_tokens_details"]["cached_tokens"]
    return found


def says(role: str, content: Any) -> dict[str, Any]:
    return {"role": role, "content": content}


MakeTurns = Callable[..., Turns]


@pytest.fixture
def make_turns(merging: Tokenizer, info: EngineInfo) -> MakeTurns:
    import msgspec

    wide = msgspec.structs.replace(info, vocab_size=merging.vocab_size, num_blocks=4096)
    return lambda source=CHATML, **config: Turns(merging, wide, source, **config)


@pytest.mark.parametrize("source", [CHATML, THINKING, ALTERNATING], ids=["chatml", "thinking", "alternating"])
@pytest.mark.parametrize("length", [1000, 1008])
async def test_a_billing_line_reaches_no_prompt(make_turns: MakeTurns, source: str, length: int) -> None:
    turns = make_turns(source)

    def body(cch: str, pad: str = "") -> list[dict[str, Any]]:
        parts = [{"type": "text", "text": BILLING.format(cch)}, {"type": "text", "text": "You are a tea maker."}]
        return [says("system", parts), says("user", "How warm?" + pad)]

    first = await turns.padded(lambda pad: body("aaaaa", pad), length)
    answer = await turns.ask(first)
    assert answer["usage"]["prompt_tokens"] == length and cached(answer) == 0
    before = turns.last_ids()
    second = [says("system", [{"type": "text", "text": BILLING.format("bbbbb")}, first[0]["content"][1]]), first[1]]
    answer = await turns.ask(second)
    assert turns.last_ids() == before and cached(answer) == 992
    assert "billing" not in turns.text() and "You are a tea maker." in turns.text()
    as_string = [says("system", BILLING.format("ccccc") + "\nYou are a tea maker."), first[1]]
    await turns.ask(as_string)
    assert turns.last_ids() == before


async def test_volatile_lines_are_the_system_s_only(make_turns: MakeTurns) -> None:
    turns = make_turns()
    line = BILLING.format("aaaaa")
    messages = [says("user", line), says("assistant", line), says("tool", line), says("user", f"What is\n{line}\nfor?")]
    await turns.ask(messages)
    assert turns.text().count(line) == 4


async def test_other_rules_and_none(make_turns: MakeTurns) -> None:
    system = f"{BILLING.format('aaaaa')}\nToday is Monday.\nIs Today is near?"
    for rules, left in (
        (("Today is",), f"{BILLING.format('aaaaa')}\nIs Today is near?"),
        ((), system),
        (("x-anthropic", r"Today is \w+day"), "Is Today is near?"),
    ):
        turns = make_turns(volatile_lines=rules)
        await turns.ask([says("system", system), says("user", "Hi")])
        assert turns.text().startswith(f"<|im_start|>system\n{left}<|im_end|>\n<|im_start|>user\nHi<|im_end|>")


@pytest.mark.parametrize("source", [CHATML, THINKING, ALTERNATING], ids=["chatml", "thinking", "alternating"])
async def test_system_messages_in_mid_conversation_stay_there(make_turns: MakeTurns, source: str) -> None:
    """Whether the template takes them there or not."""
    turns = make_turns(source)
    said = [says("system", "Be brief."), says("user", "u1")]
    await turns.ask(said)
    said += [says("assistant", "a1"), says("system", "9 left"), says("user", "u2")]
    await turns.ask(said)
    unopened = (await turns.server.post("/tokenize", {"messages": said, "add_generation_prompt": False})).json()[
        "tokens"
    ]
    trailing = [*said, says("assistant", "a2"), says("system", "8 left")]
    await turns.ask(trailing)
    with_trailing = (
        await turns.server.post("/tokenize", {"messages": trailing, "add_generation_prompt": False})
    ).json()["tokens"]
    said = [*trailing, says("user", "u3")]
    await turns.ask(said)
    ids = turns.last_ids()
    assert ids[: len(unopened)] == unopened
    if source != ALTERNATING:  # there, what two say in a row is one message, which the second one lengthens
        assert ids[: len(with_trailing)] == with_trailing
    places = [turns.text().index(text) for text in ("Be brief.", "u1", "a1", "9 left", "u2", "a2", "8 left", "u3")]
    assert places == sorted(places)


async def test_tools_and_their_schemas_in_any_order(make_turns: MakeTurns) -> None:
    turns = make_turns(THINKING)
    schema = {"type": "object", "properties": {"a": {"type": "string"}, "b": {"type": "string"}}, "required": ["a"]}
    shuffled = {"required": ["a"], "properties": dict(reversed(schema["properties"].items())), "type": "object"}  # type: ignore[attr-defined]
    seen = []
    for parameters, order in ((schema, 1), (shuffled, -1)):
        one = {"type": "function", "function": {"name": "f", "description": "Does.", "parameters": parameters}}
        await turns.ask([says("user", "Hi")], tools=[one, tool("g")][::order])
        seen.append(turns.last_ids())
    assert seen[0] == seen[1]


@pytest.mark.parametrize("source", [CHATML, THINKING], ids=["chatml", "thinking"])
async def test_past_arguments_keep_their_order(make_turns: MakeTurns, source: str) -> None:
    turns = make_turns(source)
    call = {"id": "c", "type": "function", "function": {"name": "w", "arguments": '{"path":"a","content":"b"}'}}
    called = {**says("assistant", None), "tool_calls": [call]}
    result = {**says("tool", "done"), "tool_call_id": "c"}
    await turns.ask([says("user", "Write."), called, result])
    text = turns.text()
    assert text.index("path") < text.index("content")
    seen = []
    for empty in (None, "", []):
        await turns.ask([says("user", "Write."), {**called, "content": empty}, result])
        seen.append(turns.last_ids())
    del called["content"]
    await turns.ask([says("user", "Write."), called, result])
    assert seen == [turns.last_ids()] * 3


async def test_generated_ids_are_found_again(make_turns: MakeTurns) -> None:
    """Prompt 32, generated 17, next prompt 64."""
    turns = make_turns()
    messages = await turns.padded(lambda pad: [says("user", pad)], 32)
    encode = turns.tokenizer.encode
    odd = [token for letter in "Hello, world" for token in encode(letter)]
    spoken = [*odd, *[encode(PAD)[0]] * (16 - len(odd))]
    assert encode(turns.tokenizer.decode(spoken)) != spoken and len(spoken) == 16  # and the EOS
    answer = await turns.ask(messages, spoken)
    assert answer["usage"]["completion_tokens"] == 17
    history = [*messages, answer["choices"][0]["message"]]
    again = await turns.padded(lambda pad: [*history, says("user", pad)], 64)
    answer = await turns.ask(again)
    assert answer["usage"]["prompt_tokens"] == 64 and cached(answer) == 48
    assert turns.last_ids()[32:48] == spoken


async def test_reasoning_kept_and_dropped(make_turns: MakeTurns) -> None:
    """Prompt 64, 40 tokens of reasoning and 10 of answer."""
    turns = make_turns(THINKING)
    messages = await turns.padded(lambda pad: [says("user", pad)], 64)
    encode = turns.tokenizer.encode
    begin, end, pad = encode("<think>\n"), encode("\n</think>\n\n"), encode(PAD)
    spoken = [*begin, *pad * (40 - len(begin) - len(end)), *end, *encode("W")[:1] * 10]
    answer = await turns.ask(messages, spoken)
    message = answer["choices"][0]["message"]
    assert message["content"] == "W" * 10 and message["reasoning_content"].strip("\n") == PAD * (
        len(spoken) - 10 - len(begin) - len(end)
    )
    kept = await turns.ask([*messages, message, says("user", "And?")])
    assert cached(kept) == 112
    dropped = {"role": "assistant", "content": message["content"]}
    assert cached(await turns.ask([*messages, dropped, says("user", "And?" * 20)])) == 64


async def test_a_prompt_beyond_the_context_is_never_cut(make_turns: MakeTurns) -> None:
    turns = make_turns()
    body = {"messages": [says("user", PAD * 5000)]}
    tokens = (await turns.server.post("/tokenize", body)).json()["count"]
    answer = await turns.server.post("/v1/chat/completions", body)
    assert answer.status_code == 400 and "4096" in answer.text
    assert str(tokens) in answer.text or "at least" in answer.text


async def test_where_a_session_left_its_last_prompt(make_turns: MakeTurns) -> None:
    turns = make_turns(THINKING)
    said = [says("system", "Be brief."), says("user", "u1"), says("assistant", "a1"), says("user", "u2")]

    async def difference(messages: list[dict[str, Any]], **fields: Any) -> Any:
        answer = await turns.ask(messages, session_id="s", cache_report=True, **fields)
        return answer["cache_report"]["difference"]

    assert await difference(said[:2]) is None
    assert await difference(said) is None
    changed = await difference([*said[:1], says("user", "u!"), *said[2:]])
    prefix = turns.tokenizer.encode("<|im_start|>system\nBe brief.<|im_end|>\n<|im_start|>user\nu")
    assert changed == {"token": len(prefix), "message": 1, "what": "messages"}
    assert (await difference([says("system", "Be quick."), *said[1:]]))["what"] == "system"
    assert (await difference([says("system", "Be quick."), *said[1:]], tools=[tool()]))["what"] == "tools"
    answer = await turns.ask(said, session_id="other", cache_report=True)
    assert answer["cache_report"]["difference"] is None
