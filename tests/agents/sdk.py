"""What the tests of both SDKs have in common: a conversation of four turns with tools, and what the cache owes it."""

from __future__ import annotations

from tests.agents.script import Rule, call

BLOCK = 16
SYSTEM = "You pour tea. Ask the kettle before you pour. " * 20
QUESTION = "How warm are the kettle and the pot?"
SCHEMA = {
    "type": "object",
    "properties": {"vessel": {"type": "string"}, "unit": {"type": "string", "enum": ["C", "F"]}},
    "required": ["vessel"],
}
DESCRIPTION = "Measures a vessel's temperature."
OPENING = "I will ask the kettle."
FIRST_CALL = {"vessel": "kettle", "unit": "C"}
NEXT_CALLS = ({"vessel": "pot"}, {"unit": "F", "vessel": 'cup "no 2" {</tool_call>'})
ANSWER = "The kettle has 96 degrees, the pot 80."
RECIPE = {"name": "Masala", "minutes": 4}
RULES = [
    Rule(say='{"name": "Masala", "minutes": 4}', when="A recipe, please", where="tail"),
    Rule(say=[OPENING[:9], OPENING[9:], "\n", call("measure", **FIRST_CALL)], turn=0, when="How warm"),
    Rule(say="\n".join(call("measure", **arguments) for arguments in NEXT_CALLS), turn=1, when="How warm"),
    Rule(say=ANSWER, turn=2, when="How warm"),
]


def owed(prompt_tokens: int, last_prompt_tokens: int, last_output_tokens: int) -> int:
    """Cached tokens of a turn that continues another: all full blocks whose KV exists. The last generated token has
    none, and a hit never covers the last token of the prompt."""
    known = last_prompt_tokens + last_output_tokens - 1
    return min(known, prompt_tokens - 1) // BLOCK * BLOCK
