"""An agent's session of twelve turns on SmolLM2, with tools: every turn finds all full blocks whose KV exists."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import httpx
import pytest

from tests.agents.sdk import SCHEMA, owed
from tests.agents.server import Server, model_server

pytestmark = [pytest.mark.torch, pytest.mark.model, pytest.mark.slow]

TURNS = 12
TOOLS = [
    {"type": "function", "function": {"name": "measure", "description": "Measures a vessel.", "parameters": SCHEMA}},
    {"type": "function", "function": {"name": "pour", "description": "Pours.", "parameters": {"type": "object"}}},
]


def ask(server: Server, messages: list[dict[str, Any]], **fields: Any) -> dict[str, Any]:
    body = {"messages": messages, "tools": TOOLS, "max_tokens": 60, **fields}
    answer = httpx.post(f"{server.url}/v1/chat/completions", json=body, timeout=300)
    assert answer.status_code == 200, answer.text
    return answer.json()


@pytest.mark.parametrize("temperature", [0, 1.3])
def test_twelve_turns(smollm2_gguf: Path, tmp_path: Path, temperature: float) -> None:
    """Calls are forced in two of three turns, so that there are some; what they say is the model's. Hot answers are odd
    ones, with odd spellings."""
    messages: list[dict[str, Any]] = [
        {"role": "system", "content": "You pour tea. Measure before you pour."},
        {"role": "user", "content": "How warm are the kettle, the pot and the cup?"},
    ]
    prompt = output = num_calls = 0
    with model_server(smollm2_gguf, tmp_path) as server:
        for turn in range(TURNS):
            choice = "none" if turn % 3 == 2 else "required"
            answer = ask(server, messages, tool_choice=choice, temperature=temperature, seed=turn)
            usage, message = answer["usage"], answer["choices"][0]["message"]
            if turn:
                found = usage["prompt_tokens_details"]["cached_tokens"]
                assert found == owed(usage["prompt_tokens"], prompt, output), f"turn {turn}: {usage}"
            prompt, output = usage["prompt_tokens"], usage["completion_tokens"]
            messages.append(message)
            calls = message.get("tool_calls") or []
            num_calls += len(calls)
            assert bool(calls) == (choice == "required")
            messages += [
                {"role": "tool", "tool_call_id": call["id"], "content": f"{90 - turn} degrees\r\n\x1b[0m"}
                for call in calls
            ]
            if not calls:
                messages.append({"role": "user", "content": "And now?"})
    assert num_calls >= 8
