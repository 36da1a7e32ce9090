"""Lines that clients put into system messages and change from request to request: they do not reach the prompt, whose
every later token they would make new."""

from __future__ import annotations

from collections.abc import Sequence
import re

from samovar.base.errors import ConfigError
from samovar.text.messages import Message

DEFAULT_RULES = ("x-anthropic-billing-header:",)
"""Claude Code's first system block: `x-anthropic-billing-header: cc_version=...; cch=...;`."""


class VolatileLines:
    """Regular expressions; a line of a system message that one matches at its beginning is left out."""

    def __init__(self, rules: Sequence[str] = DEFAULT_RULES) -> None:
        """Raises ConfigError for what is no regular expression."""
        for rule in rules:
            try:
                re.compile(rule)
            except re.error as error:
                raise ConfigError(f"--volatile-lines {rule!r}: not a regular expression: {error}") from None
        joined = "|".join(f"(?:{rule})" for rule in rules)
        self._line = re.compile(rf"^(?:{joined})[^\n]*\n?", re.MULTILINE) if rules else None

    def strip(self, messages: Sequence[Message]) -> list[Message]:
        """`messages`, whose contents are text, without such lines; system messages of nothing else are left out."""
        if self._line is None:
            return list(messages)
        return [kept for message in messages if (kept := self._kept(message)) is not None]

    def _kept(self, message: Message) -> Message | None:
        if message.get("role") != "system" or self._line is None:
            return message
        content = self._line.sub("", message["content"])
        if content == message["content"]:
            return message
        return {**message, "content": content} if content.strip() else None
