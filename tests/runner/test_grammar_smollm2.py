"""SmolLM2 in the real engine process: what it writes under a grammar parses, whatever it would have written."""

from __future__ import annotations

import asyncio
import json
from pathlib import Path

import jsonschema_rs
import pytest

pytest.importorskip("torch")
from tests.runner.test_process import collect

from samovar.base.ids import RequestId
from samovar.base.keys import extend_keys, join_keys, pack_tokens, root_key
from samovar.core.events import FinishReason
from samovar.core.request import Request
from samovar.core.sampling import SamplingParams
from samovar.runner.client import EngineClient
from samovar.runner.config import EngineProcessConfig
from samovar.text.answer import gather
from samovar.text.checkpoint import load_text
from samovar.text.formats.syntax import HERMES
from samovar.text.formats.table import FORMATS
from samovar.text.grammar.body import Body, Reasoning, grammar_of
from samovar.text.grammar.calls import ToolRule, required_calls
from samovar.text.grammar.schema import json_schema
from samovar.text.grammar.structured import lark

pytestmark = [pytest.mark.torch, pytest.mark.model, pytest.mark.slow]

PERSON = {
    "type": "object",
    "properties": {
        "name": {"type": "string", "maxLength": 40},
        "age": {"type": "integer", "minimum": 0, "maximum": 120},
        "email": {"type": "string", "format": "email", "maxLength": 40},
        "tags": {"type": "array", "items": {"enum": ["a", "b", "c"]}, "minItems": 1, "maxItems": 3},
    },
    "required": ["name", "age", "email", "tags"],
    "additionalProperties": False,
}
CITY = {"type": "object", "properties": {"city": {"type": "string", "maxLength": 30}}, "required": ["city"]}
WEATHER = {**CITY, "additionalProperties": False}
TOOLS = [ToolRule("get_weather", WEATHER, "tools[0]", strict=True), ToolRule("stop", None, "tools[1]")]
DATE = 'start: YEAR "-" /[01][0-9]/ "-" /[0-3][0-9]/\nYEAR: /(19|20)[0-9]{2}/'


def chat(user: str) -> str:
    return f"<|im_start|>user\n{user}<|im_end|>\n<|im_start|>assistant\n"


async def test_what_smollm2_writes_is_what_was_asked_for(smollm2_gguf: Path) -> None:
    """Greedy and random requests of four kinds together with free ones, on whatever computes by default here."""
    tokenizer = load_text(smollm2_gguf).tokenizer
    special = {tokenizer.token_text(token): token for token in tokenizer.special_ids}
    calls = required_calls(HERMES, TOOLS, special, parallel=True)
    kinds: list[tuple[str, Body | None, Reasoning | None]] = [
        ("Describe a person named Ada as JSON.", json_schema(PERSON, strict=True, param="schema"), None),
        ("What is the weather in Paris?", calls, Reasoning("<think>", "</think>", opened=False)),
        ("When was the first landing on the moon?", lark(DATE, "grammar"), None),
        ("What is the weather in Paris?", None, None),
    ]
    engine = await EngineClient.start(
        EngineProcessConfig(
            model=str(smollm2_gguf), cache_dir=str(smollm2_gguf.parent), kv_cache_memory_bytes=128 << 20
        )
    )
    try:
        streams = []
        for number in range(3 * len(kinds)):
            user, body, reasoning = kinds[number % len(kinds)]
            tokens, root = pack_tokens(tokenizer.encode(chat(user))), root_key(engine.info.namespace)
            sampling = SamplingParams(
                400,
                stop_token_ids=tokenizer.eos_ids,
                temperature=(0.0, 0.8, 1.5)[number // len(kinds)],
                seed=number,
                grammar="" if body is None else grammar_of(body, special, reasoning).text,
            )
            keys = join_keys(extend_keys(root, tokens, engine.info.block_tokens))
            streams.append(await engine.submit(Request(RequestId(number), tokens, sampling, root, keys)))
        answers = await asyncio.gather(*(collect(stream) for stream in streams))
        await engine.check()
    finally:
        await engine.close()
    for number, (made, last) in enumerate(answers):
        assert last.error is None, last.error
        text = tokenizer.decode(made)
        kind = number % len(kinds)
        if kind == 3:
            assert "{" not in text[:1]
            continue
        if last.finish is FinishReason.LENGTH:
            # A list of calls, or a thought, may go on for ever; everything else here is short.
            assert kind == 1, text
            continue
        if kind == 0:
            assert jsonschema_rs.is_valid(PERSON, json.loads(text)), text
        elif kind == 1:
            parser = FORMATS["hermes"].make({})
            answer = gather([*parser.push(text.rpartition("</think>")[2]), *parser.finish()])
            assert answer.calls and not answer.text.strip()
            for call in answer.calls:
                schema = {"get_weather": WEATHER, "stop": {"const": {}}}[call.name]
                assert jsonschema_rs.is_valid(schema, json.loads(call.arguments)), call
        else:
            assert len(text) == 10 and text[4] == text[7] == "-" and int(text[:4]) >= 1900
    assert sum(last.finish is FinishReason.STOP for number, (_, last) in enumerate(answers) if number % 4 == 1) >= 1
