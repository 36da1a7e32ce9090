"""Compressed bodies: every coding gives back what went in, whatever the cuts; nothing expands beyond its bounds."""

from __future__ import annotations

import gzip
import json
import sys
import tracemalloc
import zlib

from hypothesis import given, settings
from hypothesis import strategies as st
import pytest

from samovar.base.errors import BodyTooLarge, RequestError, UnsupportedEncoding
from samovar.serve.encodings import PIECE_BYTES, Chain, chain_for
from tests.serve.asgi import Exchange
from tests.serve.conftest import MakeServer

if sys.version_info >= (3, 14):
    from compression import zstd
else:
    from backports import zstd

LIMIT = 1 << 20


def raw_deflate(data: bytes) -> bytes:
    made = zlib.compressobj(wbits=-15)
    return made.compress(data) + made.flush()


CODERS = {
    "zstd": zstd.compress,
    "gzip": gzip.compress,
    "x-gzip": gzip.compress,
    "deflate": zlib.compress,
}


def chain(names: str, limit: int = LIMIT) -> Chain:
    found = chain_for([names], limit)
    assert found is not None
    return found


def expand(names: str, data: bytes, cuts: tuple[int, ...] = ()) -> bytes:
    codings, out, at = chain(names), [], 0
    for end in (*sorted(min(cut, len(data)) for cut in cuts), len(data)):
        out += codings.push(data[at:end])
        at = end
    codings.finish()
    return b"".join(out)


@settings(deadline=None)
@given(
    data=st.binary(max_size=300) | st.binary(min_size=1, max_size=20).map(lambda some: some * 40_000),
    codings=st.lists(st.sampled_from(sorted(CODERS)), min_size=1, max_size=2),
    cuts=st.lists(st.integers(0, 200), max_size=4),
)
def test_what_went_in_comes_out(data: bytes, codings: list[str], cuts: list[int]) -> None:
    packed = data
    for name in codings:
        packed = CODERS[name](packed)
    assert expand(" , IDENTITY,".join(codings).upper(), packed, tuple(cuts)) == data


@pytest.mark.parametrize("name", CODERS)
def test_every_cut_of_the_end_is_too_early(name: str) -> None:
    data = CODERS[name](b"some text, some more text" * 10)
    for end in range(len(data)):
        with pytest.raises(RequestError, match="ends too early"):
            expand(name, data[:end])
    assert expand(name, data)


@pytest.mark.parametrize("name", ["zstd", "gzip"])
def test_frames_may_follow_each_other(name: str) -> None:
    frames = [CODERS[name](text) for text in (b"one", b"", b"three")]
    assert expand(name, b"".join(frames)) == b"onethree"
    for cut in range(len(b"".join(frames))):
        assert expand(name, b"".join(frames), (cut,)) == b"onethree"


@pytest.mark.parametrize("name", [*CODERS, "raw"])
def test_output_that_waits_inside_comes_out(name: str) -> None:
    """All input is taken when a piece is full, and a few bytes are still to come."""
    coder = CODERS.get(name, raw_deflate)
    for more in range(0, 600, 7):
        packed = coder(b"tea" * ((PIECE_BYTES + more) // 3))
        assert len(expand("deflate" if name == "raw" else name, packed)) == (PIECE_BYTES + more) // 3 * 3


def test_deflate_without_its_header() -> None:
    for data in (b"", b"a", b"text " * 1000):
        assert expand("deflate", raw_deflate(data)) == data
    with pytest.raises(RequestError, match="more after its end"):
        expand("deflate", zlib.compress(b"a") + b"more")


@settings(deadline=None)
@given(name=st.sampled_from(sorted(CODERS)), data=st.binary(max_size=100), at=st.integers(0, 60), bit=st.integers(0, 7))
def test_damage_is_told_or_harmless(name: str, data: bytes, at: int, bit: int) -> None:
    """Anything may come in: it ends in bytes or in a RequestError."""
    packed = bytearray(CODERS[name](b"a body with some text in it"))
    packed[at % len(packed)] ^= 1 << bit
    for attempt in (bytes(packed), data, bytes(packed) + data):
        try:
            expand(name, attempt)
        except RequestError as error:
            assert f"not valid {name} data" in error.message


@pytest.mark.parametrize("name", CODERS)
def test_a_bomb_comes_in_pieces(name: str) -> None:
    packed = CODERS[name](bytes(200 * LIMIT))
    tracemalloc.start()
    pieces = chain(name).push(packed)
    sizes = [len(next(pieces)) for _ in range(50)]
    peak_bytes = tracemalloc.get_traced_memory()[1]
    tracemalloc.stop()
    assert max(sizes) <= PIECE_BYTES and sum(sizes) > PIECE_BYTES
    assert peak_bytes < 4 * PIECE_BYTES + len(packed)


def test_a_bomb_between_two_codings() -> None:
    """The inner one is endless and says nothing: empty blocks, of which no byte ever comes out."""
    silent = b"\x78\x01" + b"\x00\x00\x00\xff\xff" * (64 * LIMIT // 5)
    with pytest.raises(BodyTooLarge, match=str(LIMIT)):
        list(chain("deflate, zstd").push(zstd.compress(silent)))


def test_a_window_beyond_what_is_usual_is_refused() -> None:
    options = {zstd.CompressionParameter.window_log: 25, zstd.CompressionParameter.compression_level: 19}
    made = zstd.ZstdCompressor(options=options)
    packed = made.compress(bytes(1 << 16)) + made.flush()
    with pytest.raises(RequestError, match="not valid zstd data"):
        expand("zstd", packed)


@pytest.mark.parametrize("values", [[], [""], ["identity"], ["identity", ", Identity"]])
def test_no_coding_at_all(values: list[str]) -> None:
    assert chain_for(values, LIMIT) is None


@pytest.mark.parametrize(
    "values", [["br"], ["gzip", "compress"], ["gzip, gzip, gzip"], ["zstd", "gzip", "deflate"], ["\0"]]
)
def test_codings_that_are_not_known(values: list[str]) -> None:
    with pytest.raises(UnsupportedEncoding, match="Content-Encoding"):
        chain_for(values, LIMIT)


async def send(
    server: object, data: bytes, encoding: str, *, cut: int | None = None, path: str = "/v1/completions"
) -> Exchange:
    parts = [data] if cut is None else [data[:cut], data[cut:]]
    headers: dict[str, str | bytes] = {"content-encoding": encoding, "content-length": str(len(data))}
    exchange = Exchange(server.app, path, parts, headers=headers)  # type: ignore[attr-defined]
    await exchange.done()
    return exchange


@pytest.mark.parametrize("name", CODERS)
async def test_a_compressed_body_is_the_body(make_server: MakeServer, name: str) -> None:
    server = make_server()
    body = json.dumps({"prompt": "tea " * 900}).encode()
    packed = CODERS[name](body)
    for cut in (None, 1, len(packed) // 2):
        assert (await send(server, packed, name, cut=cut)).status == 200
    assert (await send(server, body, "identity")).status == 200
    assert (await send(server, gzip.compress(packed, mtime=0), f"{name}, gzip")).status == 200
    assert len({request.token_ids for request in server.service.requests}) == 1
    assert len(server.service.requests) == 5
    for path in ("/tokenize", "/v1/cache/match"):
        assert (await send(server, packed, name, path=path)).status == 200


@pytest.mark.parametrize(
    ("data", "encoding", "status", "code"),
    [
        (zstd.compress(b" " * 2001), "zstd", 413, "body_too_large"),
        (zstd.compress(bytes(200 << 20)), "zstd", 413, "body_too_large"),
        (gzip.compress(zstd.compress(bytes(20 << 20)), mtime=0), "zstd, gzip", 413, "body_too_large"),
        (zstd.compress(b'{"prompt": "a"}')[:-1], "zstd", 400, "invalid_request"),
        (gzip.compress(b'{"prompt": "a"}', mtime=0)[:-4], "gzip", 400, "invalid_request"),
        (b'{"prompt": "a"}', "zstd", 400, "invalid_request"),
        (b'{"prompt": "a"}', "gzip", 400, "invalid_request"),
        (b"", "gzip", 400, "invalid_request"),
        (zstd.compress(b'{"prompt": '), "zstd", 400, "invalid_request"),
        (b'{"prompt": "a"}', "br", 415, "unsupported_encoding"),
    ],
)
async def test_faults(make_server: MakeServer, data: bytes, encoding: str, status: int, code: str) -> None:
    server = make_server(max_body_bytes=2000, max_upload_bytes=1 << 20)
    exchange = await send(server, data[:20000], encoding)
    assert (exchange.status, json.loads(exchange.body)["error"]["code"]) == (status, code)
    assert not server.service.requests
    assert (await server.complete("a" * 1900)).status_code == 200


async def test_expanded_bytes_are_what_counts_for_all_together(make_server: MakeServer) -> None:
    server = make_server(max_body_bytes=400_000, max_upload_bytes=500_000)
    packed = zstd.compress(b" " * 300_000)
    first = Exchange(server.app, "/v1/completions", [packed], headers={"content-encoding": "zstd"}, complete=False)
    second = await send(server, packed, "zstd")
    assert second.status == 429 and json.loads(second.body)["error"]["code"] == "saturated"
    first.disconnect()
    await first.done()
    assert (await send(server, zstd.compress(b" " * 300_000 + b'{"prompt": "a"}'), "zstd")).status == 200
