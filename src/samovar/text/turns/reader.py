"""Conversations to prompts: rendered, spliced, encoded and hashed, at the cost of what is new since the last turn.

The prompt of a conversation is what its template makes of it, encoded as a whole, with two exceptions, both by the
place in the conversation: an answer that the client sends back as it got it stands there as the model wrote it, and
keeps the ids that the model generated.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
import secrets
from typing import Any

from samovar.base.keys import pack_tokens
from samovar.text.answer import Answer
from samovar.text.messages import Message
from samovar.text.template import ChatTemplate
from samovar.text.tokenizer import Tokenizer
from samovar.text.turns.bounded import Bounded, text_bytes
from samovar.text.turns.differences import Outline
from samovar.text.turns.encoder import Encoded, Place, TooLong, TurnEncoder, with_suffix
from samovar.text.turns.history import Histories, answer_key, returned_key
from samovar.text.turns.memory import MAX_BYTES, Chain, PartMemory
from samovar.text.turns.rendering import Head, Options, Rendering
from samovar.text.turns.settings import Offer, Offers, settings_digest
from samovar.text.turns.volatile import VolatileLines

ANSWERS_BYTES = 32 << 20
KEYS_BYTES = 8 << 20
PLACES_BYTES = 8 << 20
HEADS_BYTES = 16 << 20


@dataclass(frozen=True, slots=True)
class Turn:
    """What a request asks with."""

    messages: Sequence[Message]
    """In OpenAI's shape; not changed."""
    tools: Sequence[Mapping[str, Any]] = ()
    variables: Mapping[str, Any] = field(default_factory=dict)
    add_generation_prompt: bool = True
    continue_final_message: bool = False
    add_special_tokens: bool = False


@dataclass(frozen=True, slots=True)
class AnswerPlace:
    """Where the answer to a prompt begins."""

    place: Place
    history: bytes
    """Digest of the conversation."""
    opening: str | None
    """What the template opened the answer with; None where it could not be put back."""


@dataclass(frozen=True, slots=True)
class TurnPrompt:
    packed: bytes
    keys: bytes
    outline: Outline
    answer: AnswerPlace | None


@dataclass(frozen=True, slots=True)
class _Asked:
    """A turn, worked out."""

    flat: Sequence[Message]
    digests: Sequence[bytes]
    """Of the conversation before each message, and of all of it."""
    offer: Offer
    rendering: Rendering
    options: Options
    settings: bytes
    """Digest of everything but the messages that the text depends on."""

    @property
    def can_grow(self) -> bool:
        return self.rendering.appends and not self.options.continue_final_message


class TurnReader:
    """Owns what is remembered of texts. Safe to use from several threads."""

    def __init__(
        self,
        tokenizer: Tokenizer,
        template: ChatTemplate,
        *,
        volatile: VolatileLines | None = None,
        memory_bytes: int = MAX_BYTES,
        nonce: str | None = None,
    ) -> None:
        """`nonce`: letters and digits that no client can know; None: drawn here."""
        self._tokenizer = tokenizer
        self._histories = Histories(volatile or VolatileLines())
        nonce = nonce or f"q{secrets.token_hex(12)}"
        added = tokenizer.added_tokens
        ends = [added[id].content for id in tokenizer.eos_ids if id in added]
        self._renderings = {on: Rendering(template, ends, nonce, with_tools=on) for on in (False, True)}
        self._encoder = TurnEncoder(tokenizer, PartMemory(memory_bytes))
        self._answers: Bounded[str] = Bounded(ANSWERS_BYTES)
        self._keys: Bounded[bytes] = Bounded(KEYS_BYTES)
        self._places: Bounded[Place] = Bounded(PLACES_BYTES)
        self._heads: Bounded[Head] = Bounded(HEADS_BYTES)
        self._offers = Offers()

    def read(self, turn: Turn, root: bytes, block_tokens: int, too_long: TooLong | None = None) -> TurnPrompt:
        """`root`: of the cache domain that the turn belongs to; nothing is shared between domains. Raises RequestErrors
        of the template and of `too_long`."""
        asked = self._ask(turn, root)
        prefix, suffix = self._tokenizer.special_affixes if turn.add_special_tokens else ((), ())
        chain = Chain(root, block_tokens, pack_tokens(prefix))
        grown = self._grown(asked, chain, too_long)
        if grown is None:
            text = self._write(asked)
            encoded = self._encoder.encode(text, chain, too_long)
        else:
            text, encoded = grown
        if suffix:
            encoded = with_suffix(encoded, pack_tokens(suffix), chain)
        self._remember_place(asked, encoded, chain)
        outline = Outline(asked.offer.digest, b"".join(asked.digests[1:]), _num_systems(asked.flat))
        return TurnPrompt(encoded.packed, encoded.keys, outline, self._answer_place(asked, encoded, text))

    def remember(self, place: AnswerPlace, token_ids: Sequence[int], answer: Answer) -> None:
        """Told of a complete answer: its ids, the one that ended it among them, and what the client gets."""
        ids: Sequence[int] | None = token_ids
        if not answer.calls and not answer.reasoning:
            shown = self._tokenizer.decode(token_ids, at_start=False)
            if shown.strip() != answer.text.strip():
                ids = self._encoder.shorten(token_ids, answer.text)  # a stop string is not part of the answer
        if ids is None:
            return
        generated = self._encoder.learn(place.place, ids, self._tokenizer.eos_ids)
        if generated is not None and place.opening is not None:
            text = place.opening + generated
            self._answers.put(answer_key(place.history, answer), text, text_bytes(text))

    def check(self) -> None:
        """Recomputes what the memories keep of their sizes."""
        self._encoder.memory.check()
        self._histories.check()
        for bounded in (self._answers, self._keys, self._places, self._heads):
            bounded.check()

    def _ask(self, turn: Turn, root: bytes) -> _Asked:
        history = self._histories.of(turn.messages, root)
        offer = self._offers.of(turn.tools)
        options = Options(turn.variables, turn.add_generation_prompt, turn.continue_final_message)
        return _Asked(
            history.flat,
            history.digests,
            offer,
            self._renderings[bool(offer.tools)],
            options,
            settings_digest(offer, turn.variables),
        )

    def _write(self, asked: _Asked) -> str:
        return asked.rendering.write(asked.flat, asked.offer.tools, asked.options, self._answers_from(asked, 0))

    def _answers_from(self, asked: _Asked, begin: int) -> dict[int, str]:
        """What the model wrote, by the message in which it comes back, from message `begin` on."""
        answers = {}
        end = len(asked.flat) - 1 if asked.options.continue_final_message else len(asked.flat)
        for at in range(begin, end):
            if asked.flat[at]["role"] == "assistant" and asked.rendering.puts_back(asked.flat, at):
                text = self._wrote(asked.digests[at], asked.flat[at], asked.digests[at + 1])
                if text is not None:
                    answers[at] = text
        return answers

    def _wrote(self, before: bytes, message: Message, until: bytes) -> str | None:
        """What the model wrote as the answer that comes back as `message`; `until`: digest with that message."""
        key = self._keys.get(until)
        if key is None:
            key = returned_key(before, message)
            self._keys.put(until, key, len(key))
        return self._answers.get(key)

    def _grown(self, asked: _Asked, chain: Chain, too_long: TooLong | None) -> tuple[str, Encoded] | None:
        """The text that the conversation adds to the longest earlier one that it goes on with an answer, and all of it
        encoded; None where the template does not allow that, or there is none."""
        if not asked.can_grow:
            return None
        for begin in range(len(asked.flat) - 1, 0, -1):
            if asked.flat[begin]["role"] != "assistant":
                continue
            place = self._places.get((chain, asked.digests[begin], asked.settings))
            if place is not None:
                text = asked.rendering.write_behind(
                    self._head(asked, chain),
                    asked.flat,
                    begin,
                    asked.offer.tools,
                    asked.options,
                    self._answers_from(asked, begin),
                )
                encoded = None if text is None else self._encoder.encode_behind(place, text, too_long)
                return None if text is None or encoded is None else (text, encoded)
        return None

    def _remember_place(self, asked: _Asked, encoded: Encoded, chain: Chain) -> None:
        """Where the conversation, without an opened answer, ends in the prompt."""
        if not asked.can_grow:
            return
        opened = self._head(asked, chain).opened if asked.options.add_generation_prompt else ""
        place = self._encoder.place_in(encoded, len(opened))
        if place is not None:
            key = (chain, asked.digests[-1], asked.settings)
            self._places.put(key, place, text_bytes(place.text))

    def _head(self, asked: _Asked, chain: Chain) -> Head:
        key = (chain, asked.digests[1], asked.settings)
        head = self._heads.get(key)
        if head is None:
            head = asked.rendering.head(asked.flat, asked.offer.tools, asked.options.variables)
            self._heads.put(key, head, text_bytes(head.text) + text_bytes(head.opened))
        return head

    def _answer_place(self, asked: _Asked, encoded: Encoded, text: str) -> AnswerPlace | None:
        if encoded.end is None:
            return None
        splicing = asked.rendering.splicing
        opening = splicing.opening(text) if splicing and asked.options.add_generation_prompt else None
        return AnswerPlace(encoded.end, asked.digests[-1], opening)


def _num_systems(flat: Sequence[Message]) -> int:
    return next((at for at, message in enumerate(flat) if message["role"] != "system"), len(flat))
