"""Messages of the Messages API to the inner form's: a turn's tool results become messages of their own.

Nothing that carries no meaning for the model (`cache_control`, signatures, unknown fields) gets through, so it cannot
change a prompt.
"""

from __future__ import annotations

from typing import Any

from samovar.base.errors import InvalidField
from samovar.base.shown import shown
from samovar.serve.anthropic.content import Block, blocks_of, only_text, result_text, text_of, unsupported
from samovar.serve.anthropic.inputs import arguments_of
from samovar.serve.calls import KnownCalls, assistant_message
from samovar.serve.fields import JOINER, name_in, string
from samovar.serve.json_input import child

ROLES = ("user", "assistant", "system")
_ERROR_WORDS = ("error", "<tool_use_error>")


def inner_messages(system: object, messages: object) -> list[dict[str, Any]]:
    """The inner form's messages; `system` first, when there is any. Raises InvalidField with the path of the first
    fault."""
    if not isinstance(messages, list):
        raise InvalidField(f"messages: must be an array of messages; got {shown(messages)}.", param="messages")
    if not messages:
        raise InvalidField("messages: must have at least one message; got an empty array.", param="messages")
    head = text_of(system, "system")
    inner: list[dict[str, Any]] = [{"role": "system", "content": head}] if head else []
    calls = KnownCalls()
    for at, message in enumerate(messages):
        path = child("messages", at)
        if not isinstance(message, dict):
            raise InvalidField(f"{path}: must be an object; got {shown(message)}.", param=path)
        role, content, where = message.get("role"), message.get("content"), child(path, "content")
        match role:
            case "user":
                inner += _user(content, where, calls)
            case "assistant":
                inner.append(_assistant(content, where, calls))
            case "system":
                inner.append({"role": "system", "content": text_of(content, where)})
            case _:
                wrong = child(path, "role")
                raise InvalidField(f"{wrong}: must be one of {', '.join(ROLES)}; got {shown(role)}.", param=wrong)
    return inner


def _user(content: object, path: str, calls: KnownCalls) -> list[dict[str, Any]]:
    """Results first, as the API wants them."""
    results: list[dict[str, Any]] = []
    texts: list[str] = []
    for where, block in blocks_of(content, path):
        match block.get("type"):
            case "text":
                texts.append(only_text(block, where))
            case "tool_result":
                results.append(_result(block, where, calls))
            case _:
                raise unsupported(block, where, "text and tool_result")
    messages = calls.in_order(results)
    if texts or not messages:
        messages.append({"role": "user", "content": JOINER.join(texts)})
    return messages


def _result(block: Block, path: str, calls: KnownCalls) -> dict[str, Any]:
    id = name_in(block, "tool_use_id", path)
    text = result_text(block.get("content"), child(path, "content"))
    if block.get("is_error") is True and not text.lower().startswith(_ERROR_WORDS):
        # No template has a place for the flag, so the model must read it.
        text = f"Error: {text}" if text else "Error"
    return calls.result(id, text)


def _assistant(content: object, path: str, calls: KnownCalls) -> dict[str, Any]:
    """One message, whatever the order of its blocks."""
    texts: list[str] = []
    thoughts: list[str] = []
    made: list[dict[str, Any]] = []
    for where, block in blocks_of(content, path):
        match block.get("type"):
            case "text":
                texts.append(only_text(block, where))
            case "thinking":
                thoughts.append(string(block, "thinking", where))
            case "redacted_thinking":
                # Only whoever encrypted it can read it.
                continue
            case "tool_use":
                made.append(_call(block, where, calls))
            case _:
                raise unsupported(block, where, "text, thinking, redacted_thinking and tool_use")
    return assistant_message(texts, thoughts, made)


def _call(block: Block, path: str, calls: KnownCalls) -> dict[str, Any]:
    id, name = name_in(block, "id", path), name_in(block, "name", path)
    given = block.get("input")
    if given is not None and not isinstance(given, dict):
        where = child(path, "input")
        raise InvalidField(f"{where}: must be an object; got {shown(given)}.", param=where)
    return calls.call(id, name, arguments_of(given or {}))
