"""Conversations to prompts: rendered, spliced, encoded and hashed, at the cost of what is new since the last turn.

The prompt of a conversation is what its template makes of it, encoded as a whole, what clients say as nothing but text
(`controls`), with two exceptions, both by the place in the conversation: an answer that the client sends back as it got
it stands there as the model wrote it, and keeps the ids that the model generated.
"""

from __future__ import annotations

from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass, field
import secrets
from typing import Any

from samovar.base.keys import pack_tokens
from samovar.text.answer import Answer
from samovar.text.messages import Message
from samovar.text.template import ChatTemplate
from samovar.text.tokenizer import Tokenizer
from samovar.text.turns.bounded import Bounded, text_bytes
from samovar.text.turns.controls import MARKERS, Controls
from samovar.text.turns.differences import Outline
from samovar.text.turns.encoder import Encoded, Place, TooLong, TurnEncoder, with_suffix
from samovar.text.turns.framing import framing_of
from samovar.text.turns.history import Histories, History, answer_key, returned_key
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
class _Wrote:
    """An answer as the model wrote it."""

    text: str
    call_ids: tuple[str | None, ...]
    """Of its calls, where it wrote ids."""


@dataclass(frozen=True, slots=True)
class _Asked:
    """A turn, worked out."""

    history: History
    offer: Offer
    rendering: Rendering
    options: Options
    settings: bytes
    """Digest of everything but the messages that the text depends on."""
    remember: bool

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
        markers: Collection[str] = MARKERS,
    ) -> None:
        """`nonce`: letters and digits that no client can know; None: drawn here. `markers`: control tokens of an answer
        that a client gets as what they mean."""
        self._tokenizer = tokenizer
        nonce = nonce or f"q{secrets.token_hex(12)}"
        added = tokenizer.added_tokens
        ends = [added[id].content for id in tokenizer.eos_ids if id in added]
        self._renderings = {on: Rendering(template, ends, nonce, with_tools=on) for on in (False, True)}
        framing = framing_of(tokenizer, self._renderings[False], self._renderings[True], markers)
        self._controls = Controls(tokenizer, framing, markers)
        self._histories = Histories(volatile or VolatileLines(), self._controls.message)
        self._encoder = TurnEncoder(tokenizer, PartMemory(memory_bytes), self._controls)
        self._answers: Bounded[_Wrote] = Bounded(ANSWERS_BYTES)
        self._keys: Bounded[bytes] = Bounded(KEYS_BYTES)
        self._places: Bounded[Place] = Bounded(PLACES_BYTES)
        self._heads: Bounded[Head] = Bounded(HEADS_BYTES)
        self._offers = Offers(self._controls.value)

    def read(
        self,
        turn: Turn,
        root: bytes,
        block_tokens: int,
        too_long: TooLong | None = None,
        *,
        remember: bool = True,
    ) -> TurnPrompt:
        """`root`: of the cache domain that the turn belongs to; nothing is shared between domains. `remember`: False
        for who only looks: the prompt is the same, and what is remembered stays as it is. Raises RequestErrors of the
        template and of `too_long`."""
        asked = self._ask(turn, root, remember)
        prefix, suffix = self._tokenizer.special_affixes if turn.add_special_tokens else ((), ())
        chain = Chain(root, block_tokens, pack_tokens(prefix))
        grown = self._grown(asked, chain, too_long)
        if grown is None:
            text = self._write(asked)
            encoded = self._encoder.encode(text, chain, too_long, remember=remember)
        else:
            text, encoded = grown
        if suffix:
            encoded = with_suffix(encoded, pack_tokens(suffix), chain)
        self._remember_place(asked, encoded, chain)
        outline = Outline(asked.offer.digest, b"".join(asked.history.digests[1:]), _num_systems(asked.history.flat))
        return TurnPrompt(encoded.packed, encoded.keys, outline, self._answer_place(asked, encoded, text))

    def remember(self, place: AnswerPlace, token_ids: Sequence[int], answer: Answer) -> None:
        """Told of a complete answer: its ids, the one that ended it among them, and what the client gets."""
        ids = self._shown_ids(token_ids, answer)
        if ids is None:
            return
        generated = self._encoder.learn(place.place, ids, self._tokenizer.eos_ids)
        if generated is not None and place.opening is not None:
            wrote = _Wrote(place.opening + generated, tuple(call.id for call in answer.calls))
            num_bytes = text_bytes(wrote.text) + sum(text_bytes(id or "") for id in wrote.call_ids)
            self._answers.put(answer_key(place.history, answer), wrote, num_bytes)

    def check(self) -> None:
        """Recomputes what the memories keep of their sizes."""
        self._encoder.memory.check()
        self._histories.check()
        for bounded in (self._answers, self._keys, self._places, self._heads):
            bounded.check()

    def _shown_ids(self, token_ids: Sequence[int], answer: Answer) -> Sequence[int] | None:
        """Those that the client's answer is made of: a stop string, and what came with it, is no part of that. None
        when it cannot be told which they are."""
        if not answer.calls and not answer.reasoning:
            shown = self._tokenizer.decode(token_ids, at_start=False)
            whole = shown.strip() == answer.text.strip()
            return token_ids if whole else self._encoder.shorten(token_ids, answer.text)
        if token_ids and token_ids[-1] in self._tokenizer.eos_ids:
            return token_ids
        # Cut off, by its length or by a stop string: it must end with what the client got last.
        last = [answer.text if answer.text.strip() else answer.reasoning]
        if answer.calls:
            last = [answer.text, answer.calls[-1].arguments]
        shown = self._tokenizer.decode(token_ids, at_start=False).rstrip()
        return token_ids if any(text.strip() and shown.endswith(text.strip()) for text in last) else None

    def _ask(self, turn: Turn, root: bytes, remember: bool) -> _Asked:
        offer = self._offers.of(turn.tools, remember=remember)
        variables = self._controls.value(turn.variables)
        return _Asked(
            self._histories.of(turn.messages, root, remember=remember),
            offer,
            self._renderings[bool(offer.tools)],
            Options(variables, turn.add_generation_prompt, turn.continue_final_message),
            settings_digest(offer, turn.variables),
            remember,
        )

    def _write(self, asked: _Asked) -> str:
        answers = self._answers_from(asked, 0)
        return asked.rendering.write(asked.history.marked, asked.offer.tools, asked.options, answers)

    def _answers_from(self, asked: _Asked, begin: int) -> dict[int, str]:
        """What the model wrote, by the message in which it comes back, from message `begin` on."""
        answers = {}
        flat = asked.history.flat
        end = len(flat) - 1 if asked.options.continue_final_message else len(flat)
        for at in range(begin, end):
            if flat[at]["role"] == "assistant" and asked.rendering.puts_back(flat, at):
                wrote = self._wrote(asked, at)
                if wrote is not None and asked.rendering.refers_alike(flat[at], wrote.call_ids):
                    answers[at] = wrote.text
        return answers

    def _wrote(self, asked: _Asked, at: int) -> _Wrote | None:
        """What the model wrote as the answer that comes back as message `at`."""
        before, until = asked.history.digests[at : at + 2]
        key = self._keys.get(until, touch=asked.remember)
        if key is None:
            key = returned_key(before, asked.history.flat[at])
            if asked.remember:
                self._keys.put(until, key, len(key))
        return self._answers.get(key, touch=asked.remember)

    def _grown(self, asked: _Asked, chain: Chain, too_long: TooLong | None) -> tuple[str, Encoded] | None:
        """The text that the conversation adds to the longest earlier one that it goes on with an answer, and all of it
        encoded; None where the template does not allow that, or there is none."""
        if not asked.can_grow:
            return None
        history = asked.history
        for begin in range(len(history.flat) - 1, 0, -1):
            if history.flat[begin]["role"] != "assistant":
                continue
            place = self._places.get((chain, history.digests[begin], asked.settings), touch=asked.remember)
            if place is None:
                continue
            text = asked.rendering.write_behind(
                self._head(asked, chain),
                history.marked,
                begin,
                asked.offer.tools,
                asked.options,
                self._answers_from(asked, begin),
            )
            if text is None:
                return None
            encoded = self._encoder.encode_behind(place, text, too_long, remember=asked.remember)
            return None if encoded is None else (text, encoded)
        return None

    def _remember_place(self, asked: _Asked, encoded: Encoded, chain: Chain) -> None:
        """Where the conversation, without an opened answer, ends in the prompt."""
        if not asked.can_grow or not asked.remember:
            return
        opened = self._head(asked, chain).opened if asked.options.add_generation_prompt else ""
        place = self._encoder.place_in(encoded, len(opened))
        if place is not None:
            key = (chain, asked.history.digests[-1], asked.settings)
            self._places.put(key, place, text_bytes(place.text))

    def _head(self, asked: _Asked, chain: Chain) -> Head:
        key = (chain, asked.history.digests[1], asked.settings)
        head = self._heads.get(key, touch=asked.remember)
        if head is None:
            head = asked.rendering.head(asked.history.marked, asked.offer.tools, asked.options.variables)
            if asked.remember:
                self._heads.put(key, head, text_bytes(head.text) + text_bytes(head.opened))
        return head

    def _answer_place(self, asked: _Asked, encoded: Encoded, text: str) -> AnswerPlace | None:
        if encoded.end is None:
            return None
        splicing = asked.rendering.splicing
        opening = splicing.opening(text) if splicing and asked.options.add_generation_prompt else None
        return AnswerPlace(encoded.end, asked.history.digests[-1], opening)


def _num_systems(flat: Sequence[Message]) -> int:
    return next((at for at, message in enumerate(flat) if message["role"] != "system"), len(flat))
