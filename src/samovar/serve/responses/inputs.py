"""A Responses body, and what it continues, to the inner conversation."""

from __future__ import annotations

from collections.abc import Callable, Collection, Sequence
from dataclasses import dataclass
from typing import Any

from samovar.base.errors import InvalidField, NotFound
from samovar.base.shown import shown
from samovar.serve.conversation import Conversation
from samovar.serve.fields import name_in
from samovar.serve.ignored_tools import IgnoredTools
from samovar.serve.json_input import child
from samovar.serve.output_shape import read_shape
from samovar.serve.responses.bodies import ResponsesBody
from samovar.serve.responses.choice import read_choice
from samovar.serve.responses.items import TRIGGER, inner_messages, kind_of
from samovar.serve.responses.tools import Toolbox, read_tools

PARAM = "input"
_HISTORY = "previous_response_id"

FindItems = Callable[[Collection[str]], dict[str, dict[str, Any]]]


@dataclass(frozen=True, slots=True)
class Asked:
    conversation: Conversation
    toolbox: Toolbox
    items: list[Any]
    """This request's own, as objects with references resolved."""
    compacts: bool
    """The answer is to be a summary in place of the conversation."""


def read(body: ResponsesBody, history: Sequence[Any], find: FindItems, ignored: IgnoredTools) -> Asked:
    """`history`: items before this request's; `find`: items by their ids, those that there are. Raises RequestErrors
    with the path of the first fault."""
    items = _resolved(_own_items(body.input), find)
    compacts = bool(items) and _is_trigger(items[-1])
    if compacts:
        items.pop()
    for at, item in enumerate(items):
        if _is_trigger(item):
            path = child(PARAM, at)
            raise InvalidField(f"{path}: a {TRIGGER} must be the last item.", param=path)
    if not items and not history:
        raise InvalidField(f"{PARAM}: must have at least one item; got none.", param=PARAM)
    located = [(_HISTORY, item) for item in history]
    located += [(child(PARAM, at) if isinstance(body.input, list) else PARAM, item) for at, item in enumerate(items)]
    defined = [(child("tools", at), tool) for at, tool in enumerate(body.tools or ())]
    toolbox = read_tools([*defined, *_added_tools(located)], ignored)
    chosen = read_choice(body.tool_choice, toolbox)
    messages = [{"role": "system", "content": body.instructions}] if body.instructions else []
    messages += inner_messages(located, toolbox)
    if not messages:
        raise InvalidField(
            f"{PARAM}: has nothing for the model to read; a message, a call or a result is needed.", param=PARAM
        )
    conversation = Conversation(
        messages,
        chosen.callable,
        tool_choice=chosen.choice,
        parallel_calls=body.parallel_tool_calls is not False,
        shape=read_shape((body.text or {}).get("format"), "text.format"),
        template_variables={**_thinking(body.reasoning), **(body.chat_template_kwargs or {})},
        param=PARAM,
        shown_tools=toolbox.tools,
    )
    return Asked(conversation, toolbox, items, compacts)


def message(role: str, text: str) -> dict[str, Any]:
    return {"type": "message", "role": role, "content": [{"type": "input_text", "text": text}]}


def _own_items(given: object) -> list[tuple[str, object]]:
    if given is None:
        return []
    if isinstance(given, str):
        return [(PARAM, message("user", given))]
    if not isinstance(given, list):
        raise InvalidField(f"{PARAM}: must be a string or an array of items; got {shown(given)}.", param=PARAM)
    return [(child(PARAM, at), item) for at, item in enumerate(given)]


def _resolved(given: Sequence[tuple[str, object]], find: FindItems) -> list[dict[str, Any]]:
    """`given` with what references name in their place. Each item may be named once: a few bytes would stand for
    texts of any length otherwise."""
    items: list[dict[str, Any]] = []
    named: dict[str, tuple[int, str]] = {}
    for at, (path, item) in enumerate(given):
        kind = kind_of(item, path)
        assert isinstance(item, dict)
        items.append(item)
        if kind == "item_reference":
            id, where = name_in(item, "id", path), child(path, "id")
            if id in named:
                raise InvalidField(f"{where}: {shown(id)} is referred to by {named[id][1]} already.", param=where)
            named[id] = at, where
    found = find(named) if named else {}
    for id, (at, where) in named.items():
        if id not in found:
            raise NotFound(f"{where}: there is no item {shown(id)} here.", param=where)
        items[at] = found[id]
    return items


def _is_trigger(item: dict[str, Any]) -> bool:
    return item.get("type") == TRIGGER


def _added_tools(items: Sequence[tuple[str, Any]]) -> list[tuple[str, object]]:
    """Definitions that came in the middle of a conversation."""
    added: list[tuple[str, object]] = []
    for path, item in items:
        if isinstance(item, dict) and item.get("type") == "additional_tools":
            where, tools = child(path, "tools"), item.get("tools")
            if not isinstance(tools, list):
                raise InvalidField(f"{where}: must be an array of tools; got {shown(tools)}.", param=where)
            added += [(child(where, at), tool) for at, tool in enumerate(tools)]
    return added


def _thinking(reasoning: dict[str, Any] | None) -> dict[str, Any]:
    """What templates of models that can think look at. Not asked for: as the model is by itself."""
    effort = (reasoning or {}).get("effort")
    if effort is None:
        return {}
    if not isinstance(effort, str):
        raise InvalidField(
            f"reasoning.effort: must be a string such as 'low'; got {shown(effort)}.", param="reasoning.effort"
        )
    return {"enable_thinking": False, "thinking": False} if effort == "none" else {"reasoning_effort": effort}
