"""A connector in a core's log: its answers are inputs of the core, so they are written down and given again."""

from __future__ import annotations

from collections import deque
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from typing import Any, TypeVar

import msgspec
from msgspec.msgpack import Decoder

from samovar.base.errors import ReplayMismatch
from samovar.base.ids import BlockKey, TransferId
from samovar.base.keys import digest
from samovar.core.calls import Call, TierCall, TierMethod
from samovar.core.plan import Move, TransferDone
from samovar.core.ports import Connector, Reserved, TierMatch
from samovar.core.stats import TierReport

_ENCODER = msgspec.msgpack.Encoder()
_NOTHING: Decoder[None] = Decoder(None)
_MATCH = Decoder(TierMatch)
_RESERVED = Decoder(Reserved)
_STORED: Decoder[tuple[tuple[int, ...], Reserved]] = Decoder(tuple[tuple[int, ...], Reserved])
_MOVES: Decoder[tuple[Move, ...]] = Decoder(tuple[Move, ...])
_SECONDS: Decoder[float | None] = Decoder(float | None)
_REPORT: Decoder[tuple[TierReport, ...]] = Decoder(tuple[TierReport, ...])

T = TypeVar("T")


class RecordingConnector:
    """Passes on to a connector and logs what it said. `wake_at`, `blocks_of` and `check` stay out of the log: the core
    asks for them only outside of the calls that are in it."""

    def __init__(self, inner: Connector, sink: Callable[[Call], None]) -> None:
        self._inner = inner
        self._sink = sink
        self._muted = False

    @contextmanager
    def muted(self) -> Iterator[None]:
        """While a call into the core is under way that the log leaves out, since nothing depends on it."""
        self._muted = True
        try:
            yield
        finally:
            self._muted = False

    def _log(self, method: TierMethod, arguments: tuple[Any, ...], answer: T) -> T:
        if not self._muted:
            self._sink(Call(_question(method, arguments), _ENCODER.encode(answer)))
        return answer

    def lookup(self, keys: Sequence[BlockKey], now: float) -> TierMatch:
        return self._log("lookup", (tuple(keys), now), self._inner.lookup(keys, now))

    def load(self, transfer_id: TransferId, keys: Sequence[BlockKey], now: float) -> Reserved:
        return self._log("load", (transfer_id, tuple(keys), now), self._inner.load(transfer_id, keys, now))

    def store(
        self, transfer_id: TransferId, keys: Sequence[BlockKey], parent: BlockKey, stream: str, now: float
    ) -> tuple[tuple[int, ...], Reserved]:
        answer = self._inner.store(transfer_id, keys, parent, stream, now)
        return self._log("store", (transfer_id, tuple(keys), parent, stream, now), answer)

    def moves(self, now: float) -> Sequence[Move]:
        return self._log("moves", (now,), tuple(self._inner.moves(now)))

    def transferred(self, done: TransferDone, now: float) -> None:
        self._inner.transferred(done, now)
        self._log("transferred", (done, now), None)

    def restore_s(self, key: BlockKey) -> float | None:
        return self._log("restore_s", (key,), self._inner.restore_s(key))

    def wanted(self, keys: Sequence[BlockKey], now: float) -> None:
        self._inner.wanted(keys, now)
        self._log("wanted", (tuple(keys), now), None)

    def turn_ended(self, stream: str, keys: Sequence[BlockKey], *, keep: bool, now: float) -> None:
        self._inner.turn_ended(stream, keys, keep=keep, now=now)
        self._log("turn_ended", (stream, tuple(keys), keep, now), None)

    def distrust(self, keys: Sequence[BlockKey], now: float) -> None:
        self._inner.distrust(keys, now)
        self._log("distrust", (tuple(keys), now), None)

    def report(self) -> tuple[TierReport, ...]:
        return self._log("report", (), self._inner.report())

    @property
    def wake_at(self) -> float | None:
        return self._inner.wake_at

    def blocks_of(self, keys: Sequence[BlockKey]) -> dict[str, int]:
        return self._inner.blocks_of(keys)

    def check(self) -> None:
        self._inner.check()


class LoggedConnector:
    """Gives the answers of a log, and checks that the questions are the same. `calls` are those of the next call into
    the core."""

    wake_at: float | None = None

    def __init__(self) -> None:
        self.calls: deque[Call] = deque()

    def _answer(self, method: TierMethod, arguments: tuple[Any, ...], decoder: Decoder[T]) -> T:
        question = _question(method, arguments)
        call = self.calls.popleft() if self.calls else None
        if call is None:
            raise ReplayMismatch(f"the core asked the tiers for {method}, the log has no such call")
        if call.call != question:
            logged = call.call.method if isinstance(call.call, TierCall) else type(call.call).__name__
            detail = "with other arguments" if logged == method else "instead"
            raise ReplayMismatch(f"the core asked the tiers for {method}, the log has {logged} {detail}")
        return decoder.decode(call.answer)

    def lookup(self, keys: Sequence[BlockKey], now: float) -> TierMatch:
        return self._answer("lookup", (tuple(keys), now), _MATCH)

    def load(self, transfer_id: TransferId, keys: Sequence[BlockKey], now: float) -> Reserved:
        return self._answer("load", (transfer_id, tuple(keys), now), _RESERVED)

    def store(
        self, transfer_id: TransferId, keys: Sequence[BlockKey], parent: BlockKey, stream: str, now: float
    ) -> tuple[tuple[int, ...], Reserved]:
        return self._answer("store", (transfer_id, tuple(keys), parent, stream, now), _STORED)

    def moves(self, now: float) -> Sequence[Move]:
        return self._answer("moves", (now,), _MOVES)

    def transferred(self, done: TransferDone, now: float) -> None:
        self._answer("transferred", (done, now), _NOTHING)

    def restore_s(self, key: BlockKey) -> float | None:
        return self._answer("restore_s", (key,), _SECONDS)

    def wanted(self, keys: Sequence[BlockKey], now: float) -> None:
        self._answer("wanted", (tuple(keys), now), _NOTHING)

    def turn_ended(self, stream: str, keys: Sequence[BlockKey], *, keep: bool, now: float) -> None:
        self._answer("turn_ended", (stream, tuple(keys), keep, now), _NOTHING)

    def distrust(self, keys: Sequence[BlockKey], now: float) -> None:
        self._answer("distrust", (tuple(keys), now), _NOTHING)

    def report(self) -> tuple[TierReport, ...]:
        return self._answer("report", (), _REPORT)

    def blocks_of(self, keys: Sequence[BlockKey]) -> dict[str, int]:
        raise AssertionError("a replay reports nothing")

    def check(self) -> None:
        pass


def _question(method: TierMethod, arguments: tuple[Any, ...]) -> TierCall:
    return TierCall(method, digest((_ENCODER.encode(arguments),)))
