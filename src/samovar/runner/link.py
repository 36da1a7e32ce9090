"""The engine's end of the socket to its client: msgspec frames over a ZeroMQ pair."""

from __future__ import annotations

import msgspec
import zmq

from samovar.runner.messages import FromEngine, ToEngine

_MOST_AT_ONCE = 1024


class Link:
    """Used by one thread. Queues are unbounded on both sides: what waits is bounded by the requests admitted, and a
    send that blocks would stop the engine."""

    def __init__(self, address: str) -> None:
        self._context = zmq.Context()
        self.socket = self._context.socket(zmq.PAIR)
        self.socket.set_hwm(0)
        self.socket.connect(address)
        self._encoder = msgspec.msgpack.Encoder()
        self._decoder = msgspec.msgpack.Decoder(ToEngine)

    def send(self, message: FromEngine) -> None:
        self.socket.send(self._encoder.encode(message), zmq.NOBLOCK)

    def waiting(self) -> list[ToEngine]:
        """The messages that have arrived, in order, without waiting for more. At most 1,024 at a time, so that a flood
        cannot keep steps from being planned.

        A frame that cannot be read raises. Both ends are ours, and the socket lies where nobody else comes: it is a bug
        of ours, and whoever waits for its answer would wait for ever if the frame were dropped.
        """
        messages: list[ToEngine] = []
        for _ in range(_MOST_AT_ONCE):
            try:
                frame = self.socket.recv(zmq.NOBLOCK)
            except zmq.Again:
                break
            messages.append(self._decoder.decode(frame))
        return messages

    def close(self, linger_s: float = 1.0) -> None:
        """Waits at most `linger_s` for what was sent to leave."""
        self.socket.close(linger=int(linger_s * 1000))
        self._context.term()
