"""Prompts: text, token ids or messages to packed token ids and block keys. Pure computation, run in a worker thread
when the input is long."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

from samovar.base.errors import InvalidField
from samovar.base.keys import domain_salt, extend_keys, join_keys, pack_tokens, root_key
from samovar.base.shown import shown
from samovar.core.ports import EngineInfo
from samovar.serve.bodies import ChatBody, CompletionBody, TokenizeBody
from samovar.serve.context import check_fits
from samovar.serve.json_input import child
from samovar.serve.messages import normalise
from samovar.serve.tools import ToolsReader
from samovar.text.template import ChatTemplate
from samovar.text.tokenizer import Tokenizer


@dataclass(frozen=True, slots=True)
class Prompt:
    """One prompt. `text` is set when it came as text."""

    token_ids: list[int]
    text: str | None = None


@dataclass(frozen=True, slots=True)
class Domain:
    """Where in the cache a caller's prompts live."""

    root: bytes
    block_tokens: int

    @staticmethod
    def of(info: EngineInfo, tenant: str, cache_salt: str) -> Domain:
        return Domain(root_key(info.namespace, domain_salt(tenant, cache_salt)), info.block_tokens)

    def pack(self, token_ids: list[int]) -> tuple[bytes, bytes]:
        """Packed ids, and the keys of the full blocks in one string."""
        packed = pack_tokens(token_ids)
        return packed, join_keys(extend_keys(self.root, packed, self.block_tokens))


class PromptReader:
    """Holds the checkpoint's tokenizer and template; may be used from several threads."""

    def __init__(
        self, tokenizer: Tokenizer, template: ChatTemplate | None, vocab_size: int, max_model_len: int
    ) -> None:
        self.tokenizer = tokenizer
        self._template = template
        self._tools = None if template is None else ToolsReader(template)
        self._vocab_size = vocab_size
        self._max_model_len = max_model_len

    def chat(self, body: ChatBody | TokenizeBody) -> Prompt:
        """Raises InvalidField, ContextLengthExceeded (of a generation, and only for what is far too long), or whatever
        the template refuses the messages with (a RequestError)."""
        if self._template is None or self._tools is None:
            raise InvalidField("messages: this model has no chat template; use /v1/completions.", param="messages")
        messages = normalise(body.messages)
        closing = bool(body.continue_final_message)
        if closing and body.add_generation_prompt:
            raise InvalidField(
                "continue_final_message: cannot be true together with add_generation_prompt.",
                param="continue_final_message",
            )
        opening = not closing if body.add_generation_prompt is None else body.add_generation_prompt
        text = self._template.render(
            messages,
            tools=self._tools.read(body.tools),
            add_generation_prompt=opening,
            continue_final_message=closing,
            extra=_extra(body),
        )
        if isinstance(body, ChatBody):
            self._check_length(text, "messages")
        return Prompt(self._encode(text, bool(body.add_special_tokens), "messages"), text)

    def completion(self, body: CompletionBody) -> list[Prompt]:
        """One per prompt given: a string, token ids, or an array of either. Raises InvalidField, and
        ContextLengthExceeded for text that is far too long."""
        special = body.add_special_tokens is not False
        value = body.prompt
        if isinstance(value, str):
            return [self._completion_text(value, special, "prompt")]
        if not isinstance(value, list):
            raise InvalidField(f"prompt: must be a string or an array; got {shown(value)}.", param="prompt")
        if not value:
            raise InvalidField("prompt: must not be an empty array.", param="prompt")
        if all(isinstance(item, str) for item in value):
            return [self._completion_text(text, special, child("prompt", at)) for at, text in enumerate(value)]
        if all(isinstance(item, list) for item in value):
            return [Prompt(self.token_ids(ids, child("prompt", at))) for at, ids in enumerate(value)]
        return [Prompt(self.token_ids(value, "prompt"))]

    def text(self, text: str, *, add_special_tokens: bool) -> Prompt:
        return Prompt(self.tokenizer.encode(text, add_special_tokens=add_special_tokens), text)

    def token_ids(self, ids: list[Any], path: str) -> list[int]:
        """Checks that every element is an id of the vocabulary."""
        if not ids:
            raise InvalidField(f"{path}: must have at least one token id; got an empty array.", param=path)
        for at, token in enumerate(ids):
            if type(token) is not int:
                where = child(path, at)
                raise InvalidField(f"{where}: must be a token id (an integer); got {shown(token)}.", param=where)
            if not 0 <= token < self._vocab_size:
                where = child(path, at)
                raise InvalidField(
                    f"{where}: must be a token id from 0 to {self._vocab_size - 1}; got {shown(token)}.", param=where
                )
        return ids

    def _completion_text(self, text: str, special: bool, path: str) -> Prompt:
        self._check_length(text, path)
        return Prompt(self._encode(text, special, path), text)

    def _check_length(self, text: str, path: str) -> None:
        """Encoding text without end would take seconds and gigabytes, only to find that it does not fit."""
        check_fits(self.tokenizer.at_least(text), self._max_model_len, path, at_least=True)

    def _encode(self, text: str, special: bool, path: str) -> list[int]:
        ids = self.tokenizer.encode(text, add_special_tokens=special)
        if not ids:
            raise InvalidField(f"{path}: must have at least one token; got empty text.", param=path)
        return ids


def _extra(body: ChatBody | TokenizeBody) -> dict[str, Any]:
    extra = dict(body.chat_template_kwargs or {})
    if isinstance(body, ChatBody) and body.reasoning_effort is not None:
        extra.setdefault("reasoning_effort", body.reasoning_effort)
    return extra
