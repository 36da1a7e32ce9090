"""Compaction: the model writes a summary, and a window of the user's messages and that summary replaces the
conversation.

The instruction to summarise comes last, behind the unchanged conversation, so that all of it is a cache hit.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from typing import Any

from samovar.serve.conversation import Conversation, OutputShape, ToolChoice
from samovar.serve.responses.content import parts_of
from samovar.serve.responses.items import COMPACTIONS

MAX_SUMMARY_TOKENS = 8192
MAX_KEPT_SHARE = 0.25
"""Of the context, for messages that stay; a character counts as a quarter of a token."""
INSTRUCTION = (
    "The conversation has to be shortened: everything above will be replaced by what you write now, and the work goes "
    "on from there. Write a summary for yourself that leaves nothing out that is needed to go on: what the user wants "
    "and every constraint they named; what was done, with the exact names of files, functions, commands and values; "
    "what was learned, errors and their causes included; decisions and their reasons; the state of the work right "
    "now; and the next steps. Write only the summary, as plain text, and call no tool."
)


def summarising(conversation: Conversation) -> Conversation:
    """The same prompt with the instruction behind it. Tools stay in view, since they stand at the prompt's head."""
    instruction = {"role": "user", "content": INSTRUCTION}
    return replace(
        conversation,
        messages=[*conversation.messages, instruction],
        tool_choice=ToolChoice("none"),
        shape=OutputShape(),
    )


def kept_messages(items: Sequence[Any], max_model_len: int) -> list[dict[str, Any]]:
    """What stays beside the summary, in its order: messages of the user, the system and the developer; of the user's
    only the newest, when all would be too much. Older compactions are part of the summary."""
    room = int(max_model_len * MAX_KEPT_SHARE) * 4
    kept: list[dict[str, Any]] = []
    for item in reversed(items):
        if item.get("type") in COMPACTIONS or item.get("role") not in ("user", "system", "developer"):
            continue
        size = sum(len(part) for part in parts_of(item.get("content"), ""))
        if item["role"] == "user":
            room -= size
            if room < 0:
                continue
        kept.append(item)
    kept.reverse()
    return kept
