"""Prompts: text, token ids or messages to packed token ids and block keys. Pure computation, run in a worker thread
when the input is long."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from functools import partial
from typing import Any

from samovar.base.errors import InvalidField, RequestError
from samovar.base.keys import TOKEN_BYTES, domain_salt, extend_keys, join_keys, pack_tokens, root_key, unpack_tokens
from samovar.base.shown import shown
from samovar.core.ports import EngineInfo
from samovar.serve.bodies import CompletionBody
from samovar.serve.context import check_fits
from samovar.serve.conversation import Conversation
from samovar.serve.json_input import child
from samovar.serve.misses import Difference
from samovar.text.answer import Answer
from samovar.text.template import ChatTemplate
from samovar.text.tokenizer import Tokenizer
from samovar.text.turns.differences import LastPrompts, Outline
from samovar.text.turns.reader import AnswerPlace, Turn, TurnReader
from samovar.text.turns.volatile import VolatileLines


@dataclass(frozen=True, slots=True)
class Domain:
    """Where in the cache a caller's prompts live. What is remembered of texts is kept apart by it too."""

    root: bytes
    block_tokens: int

    @staticmethod
    def of(info: EngineInfo, tenant: str, cache_salt: str) -> Domain:
        return Domain(root_key(info.namespace, domain_salt(tenant, cache_salt)), info.block_tokens)

    def pack(self, token_ids: list[int]) -> tuple[bytes, bytes]:
        """Packed ids, and the keys of the full blocks in one string."""
        packed = pack_tokens(token_ids)
        return packed, join_keys(extend_keys(self.root, packed, self.block_tokens))


@dataclass(frozen=True, slots=True)
class Prompt:
    """One prompt as the engine takes it."""

    packed: bytes
    """Token ids, little-endian int32."""
    keys: bytes
    """Of its full blocks, in one string."""
    text: str | None = None
    """Set when it came as text."""
    root: bytes = b""
    """Of the domain it was made for."""
    outline: Outline | None = None
    """What a conversation's prompt was made of."""
    answer: AnswerPlace | None = None
    """Where the answer to a conversation begins; None when it cannot be remembered."""

    @staticmethod
    def of(token_ids: list[int], domain: Domain, text: str | None = None) -> Prompt:
        packed, keys = domain.pack(token_ids)
        return Prompt(packed, keys, text, domain.root)

    @property
    def num_tokens(self) -> int:
        return len(self.packed) // TOKEN_BYTES

    def token_ids(self) -> list[int]:
        return unpack_tokens(self.packed)


class PromptReader:
    """Holds the checkpoint's tokenizer and template; may be used from several threads."""

    def __init__(
        self,
        tokenizer: Tokenizer,
        template: ChatTemplate | None,
        vocab_size: int,
        max_model_len: int,
        volatile: VolatileLines | None = None,
    ) -> None:
        """`volatile`: lines of system messages that do not reach the prompt; None for the default rules."""
        self.tokenizer = tokenizer
        self._turns = None if template is None else TurnReader(tokenizer, template, volatile=volatile)
        self._last_prompts = LastPrompts()
        self._vocab_size = vocab_size
        self._max_model_len = max_model_len

    def conversation(
        self, conversation: Conversation, domain: Domain, *, bounded: bool = True, remember: bool = True
    ) -> Prompt:
        """`remember`: False for who only looks, and does not go on to ask: the prompt is the same, and nothing that is
        remembered of others makes room for it. Raises InvalidField, ContextLengthExceeded (if `bounded`, and only for
        what is far too long), or whatever the template refuses the messages with (a RequestError)."""
        param = conversation.param
        if self._turns is None:
            raise InvalidField(f"{param}: this model has no chat template; use /v1/completions.", param=param)
        turn = Turn(
            conversation.messages,
            [tool.for_template() for tool in conversation.offered_tools],
            conversation.template_variables,
            conversation.add_generation_prompt,
            conversation.continue_final_message,
            conversation.add_special_tokens,
        )
        too_long = partial(check_fits, max_model_len=self._max_model_len, param=param, at_least=True)
        limit = too_long if bounded else None
        try:
            read = self._turns.read(turn, domain.root, domain.block_tokens, limit, remember=remember)
        except RequestError as error:
            raise _about(param, error) from None
        if not read.packed:
            raise InvalidField(f"{param}: must have at least one token; got empty text.", param=param)
        return Prompt(read.packed, read.keys, None, domain.root, read.outline, read.answer)

    def remember(self, prompt: Prompt, token_ids: Sequence[int], answer: Answer) -> None:
        """Told of every complete answer to a conversation's prompt."""
        if self._turns is not None and prompt.answer is not None:
            self._turns.remember(prompt.answer, token_ids, answer)

    def difference(self, prompt: Prompt, tenant: str, session_id: str) -> Difference | None:
        """Where a conversation's prompt leaves the last one of its session; it is the last one from now on. None when
        it does not, or is the first."""
        if prompt.outline is None or not session_id:
            return None
        left = self._last_prompts.follow((prompt.root, tenant, session_id), prompt.packed, prompt.outline)
        return None if left is None else Difference(left.token, left.message, left.part)

    def completion(self, body: CompletionBody, domain: Domain) -> list[Prompt]:
        """One per prompt given: a string, token ids, or an array of either. Raises InvalidField, and
        ContextLengthExceeded for text that is far too long."""
        special = body.add_special_tokens is not False
        value = body.prompt
        if isinstance(value, str):
            return [self._completion_text(value, special, "prompt", domain)]
        if not isinstance(value, list):
            raise InvalidField(f"prompt: must be a string or an array; got {shown(value)}.", param="prompt")
        if not value:
            raise InvalidField("prompt: must not be an empty array.", param="prompt")
        if all(isinstance(item, str) for item in value):
            return [self._completion_text(text, special, child("prompt", at), domain) for at, text in enumerate(value)]
        if all(isinstance(item, list) for item in value):
            return [Prompt.of(self.token_ids(ids, child("prompt", at)), domain) for at, ids in enumerate(value)]
        return [Prompt.of(self.token_ids(value, "prompt"), domain)]

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

    def _completion_text(self, text: str, special: bool, path: str, domain: Domain) -> Prompt:
        self._check_length(text, path)
        return Prompt.of(self._encode(text, special, path), domain, text)

    def _check_length(self, text: str, path: str) -> None:
        """Encoding text without end would take seconds and gigabytes, only to find that it does not fit."""
        check_fits(self.tokenizer.at_least(text), self._max_model_len, path, at_least=True)

    def _encode(self, text: str, special: bool, path: str) -> list[int]:
        ids = self.tokenizer.encode(text, add_special_tokens=special)
        if not ids:
            raise InvalidField(f"{path}: must have at least one token; got empty text.", param=path)
        return ids


def _about(param: str, error: RequestError) -> RequestError:
    """What is wrong with the messages, in the words of an API that calls them `param`."""
    if error.param != "messages" or param == "messages":
        return error
    return type(error)(f"{param}{error.message.removeprefix('messages')}", param=param)
