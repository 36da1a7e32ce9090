"""What a scripted model says: rules over the prompt. Agents make calls on the side (titles, summaries), so what to say
is found by looking at the prompt, never by counting requests."""

from __future__ import annotations

from collections.abc import Sequence
import json
from pathlib import Path
import re
from typing import Literal

import msgspec

from samovar.text.tokenizer import Tokenizer

VARIABLE = "SAMOVAR_TEST_SCRIPT"
"""Names the script's file to the engine's process: what that is told at its start has no place for it."""
TAIL_CHARACTERS = 2000
ASSISTANT = "<|im_start|>assistant"


class Rule(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """Applies when everything it asks for holds; the first rule that applies speaks."""

    say: str | list[str]
    """Pieces of a list are encoded apart from each other: ids that the whole text would not encode to."""
    when: str = ""
    """A regular expression that is found in the prompt's text (`.` matches line ends too)."""
    where: Literal["tail", "prompt"] = "prompt"
    turn: int | None = None
    """How many answers of the assistant the prompt holds."""


DEFAULT = Rule(say="All right.")


def call(name: str, **arguments: object) -> str:
    """A tool call as the format for templates without tools has it."""
    return f"<tool_call>\n{json.dumps({'name': name, 'arguments': arguments})}\n</tool_call>"


def read_script(path: Path) -> tuple[Rule, ...]:
    return msgspec.json.decode(path.read_bytes(), type=tuple[Rule, ...])


def write_script(path: Path, rules: Sequence[Rule]) -> Path:
    path.write_bytes(msgspec.json.encode(rules))
    return path


class Script:
    """`line(prompt)`: the ids to say after a prompt, EOS at the end."""

    def __init__(self, rules: Sequence[Rule], tokenizer: Tokenizer) -> None:
        self._rules = (*rules, DEFAULT)
        self._tokenizer = tokenizer
        self._assistant = tokenizer.encode(ASSISTANT)

    def line(self, prompt: Sequence[int]) -> tuple[int, ...]:
        text = self._tokenizer.decode(list(prompt), skip_special_tokens=False)
        turn = self._answers(prompt)
        rule = next(rule for rule in self._rules if self._applies(rule, text, turn))
        pieces = [rule.say] if isinstance(rule.say, str) else rule.say
        return (*(token for piece in pieces for token in self._tokenizer.encode(piece)), self._tokenizer.eos_ids[0])

    def _applies(self, rule: Rule, text: str, turn: int) -> bool:
        shown = text[-TAIL_CHARACTERS:] if rule.where == "tail" else text
        return rule.turn in (None, turn) and re.search(rule.when, shown, re.DOTALL) is not None

    def _answers(self, prompt: Sequence[int]) -> int:
        """Of the assistant, the one that is about to begin left out. Counted in ids: text that merely spells the
        marker is no turn."""
        size = len(self._assistant)
        ids = list(prompt)
        starts = (at for at, token in enumerate(ids) if token == self._assistant[0])
        found = sum(ids[at : at + size] == self._assistant for at in starts)
        return found - 1 if ids[-size - 1 : -1] == self._assistant or ids[-size:] == self._assistant else found
