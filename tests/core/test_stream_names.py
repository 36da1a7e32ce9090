"""Which names of streams mean the same after a restart."""

from __future__ import annotations

from samovar.core.stream_names import lasting_name
from samovar.core.streams import Streams

KEYS = [[bytes([n]) * 16, bytes([n + 1]) * 16] for n in (1, 3, 5)]


def test_only_the_first_stream_of_a_named_session_has_a_lasting_name() -> None:
    streams = Streams()
    first = streams.join("tenant", "session", "", KEYS[0]).stream.name
    fork = streams.join("tenant", "session", "", KEYS[1]).stream.name
    unnamed = streams.join("tenant", "", "", KEYS[2]).stream.name
    assert [lasting_name(name) for name in (first, fork, unnamed)] == [first, "", ""]
    again = Streams()
    assert again.join("tenant", "session", "", KEYS[2]).stream.name == first
