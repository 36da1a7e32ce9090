"""Items as the API shows them: every one with an id, messages with parts."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from samovar.base.errors import InvalidField, NotFound
from samovar.base.shown import shown

MAX_LISTED = 100
DEFAULT_LISTED = 20


def listed(items: Sequence[Any], nonce: str) -> list[dict[str, Any]]:
    """`items` of a request as they are kept. They mean the same to the model."""
    return [_listed(item, f"{nonce}i{at:02x}") for at, item in enumerate(items)]


def _listed(item: dict[str, Any], own: str) -> dict[str, Any]:
    kind = item.get("type") or "message"
    shape: dict[str, Any] = {"type": kind}
    if not isinstance(item.get("id"), str):
        shape["id"] = f"{'msg' if kind == 'message' else 'item'}_{own}"
    if kind == "message" or kind.endswith(("_call", "_output")):
        shape["status"] = item.get("status") or "completed"
    if kind == "message" and isinstance(item.get("content"), str):
        written = item.get("role") == "assistant"
        part = {"type": "output_text" if written else "input_text", "text": item["content"]}
        shape["content"] = [{**part, "annotations": []} if written else part]
    return {**item, **shape}


def page(items: Sequence[dict[str, Any]], limit: str | None, order: str | None, after: str | None) -> dict[str, Any]:
    """One page of a list, newest first unless asked otherwise. The arguments are those of the query, as text."""
    if order not in (None, "asc", "desc"):
        raise InvalidField(f"order: must be 'asc' or 'desc'; got {shown(order)}.", param="order")
    ordered = list(items) if order == "asc" else list(reversed(items))
    first = 0
    if after is not None:
        first = next((at + 1 for at, item in enumerate(ordered) if item["id"] == after), -1)
        if first < 0:
            raise NotFound(f"after: there is no item {shown(after)} in this list.", param="after")
    count = _limit(limit)
    data = ordered[first : first + count]
    return {
        "object": "list",
        "data": data,
        "first_id": data[0]["id"] if data else None,
        "last_id": data[-1]["id"] if data else None,
        "has_more": first + count < len(ordered),
    }


def _limit(given: str | None) -> int:
    if given is None:
        return DEFAULT_LISTED
    if not (given.isascii() and given.isdigit() and len(given) < 5 and 1 <= int(given) <= MAX_LISTED):
        raise InvalidField(f"limit: must be from 1 to {MAX_LISTED}; got {shown(given)}.", param="limit")
    return int(given)
