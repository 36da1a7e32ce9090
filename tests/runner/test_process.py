"""The engine in its own process: requests, refusals, malformed frames, and every way it can end."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
import contextlib
import os
from pathlib import Path
import signal
import subprocess
import sys
import time

import msgspec
import pytest
import pytest_asyncio
from tests.runner.conftest import VOCAB, Tiny
import zmq

from samovar.base.errors import CheckpointError, ContextLengthExceeded, EngineDead, InvalidField
from samovar.base.ids import RequestId
from samovar.base.keys import extend_keys, join_keys, pack_tokens, root_key
from samovar.core.events import FinishReason, Output
from samovar.core.request import Request
from samovar.core.sampling import SamplingParams
from samovar.policy.hints import Hint
from samovar.runner.client import EngineClient
from samovar.runner.config import EngineProcessConfig
from samovar.runner.link import Link
from samovar.runner.messages import FromEngine, Progress

pytestmark = [pytest.mark.torch, pytest.mark.asyncio(loop_scope="module")]

PROMPT = [3, 14, 15, 92, 65, 35, 89, 79, 32, 38, 46]
BLOCK = 8


def config(tiny: Tiny, **values: object) -> EngineProcessConfig:
    defaults: dict[str, object] = {
        "model": str(tiny.folder),
        "cache_dir": str(tiny.folder.parent),
        "block_size": BLOCK,
        "num_gpu_blocks_override": 64,
        "num_threads": 1,
    }
    return EngineProcessConfig(**{**defaults, **values})  # type: ignore[arg-type]


def request(engine: EngineClient, number: int, prompt: list[int], **values: object) -> Request:
    tokens, root = pack_tokens(prompt), root_key(engine.info.namespace)
    sampling = SamplingParams(**{"max_tokens": 10, "temperature": 0.0, **values})  # type: ignore[arg-type]
    return Request(RequestId(number), tokens, sampling, root, join_keys(extend_keys(root, tokens, BLOCK)))


async def collect(stream: AsyncIterator[Output]) -> tuple[list[int], Output]:
    tokens: list[int] = []
    async for output in stream:
        tokens.extend(output.token_ids)
    return tokens, output


async def idle(engine: EngineClient) -> None:
    async with asyncio.timeout(10):
        while (await engine.stats()).num_running:
            await asyncio.sleep(0.01)


@pytest_asyncio.fixture(scope="module", loop_scope="module")
async def engine(tiny: Tiny) -> AsyncIterator[EngineClient]:
    lines: list[str] = []
    client = await EngineClient.start(config(tiny), lines.append)
    assert any("loading" in line for line in lines)
    yield client
    await client.check()
    await client.close()
    assert client.dead == "it was closed"


async def test_info_names_every_resolved_setting(engine: EngineClient) -> None:
    info = engine.info
    assert (info.vocab_size, info.block_tokens, info.num_blocks, info.max_model_len) == (VOCAB, BLOCK, 64, 256)
    assert 64 <= info.max_num_batched_tokens <= 8192 and info.max_num_batched_tokens % BLOCK == 0
    assert info.settings["max-num-batched-tokens"] == str(info.max_num_batched_tokens)
    assert info.settings["dtype"] == "float32" == info.dtype
    assert len(info.namespace) == 16


async def test_greedy_tokens_of_many_at_once(engine: EngineClient, tiny: Tiny) -> None:
    prompts = [[*PROMPT[: 3 + n], n] for n in range(8)]
    streams = await asyncio.gather(*(engine.submit(request(engine, n, p)) for n, p in enumerate(prompts)))
    results = await asyncio.gather(*(collect(stream) for stream in streams))
    for prompt, (tokens, last) in zip(prompts, results, strict=True):
        assert tokens == tiny.greedy(prompt, 10)
        assert last.finish is FinishReason.LENGTH and last.error is None
    stats = await engine.stats()
    assert stats.generation_tokens >= 80 and stats.num_running == 0


async def test_refusals_are_the_classes_they_were(engine: EngineClient) -> None:
    with pytest.raises(ContextLengthExceeded, match="256"):
        await engine.submit(request(engine, 100, [1] * 300))
    with pytest.raises(InvalidField, match="token id 101 is outside the vocabulary of 101") as caught:
        await engine.submit(request(engine, 101, [1, 101]))
    assert caught.value.param == "prompt"
    with pytest.raises(InvalidField, match="stop_token_ids: token id -1"):
        await engine.submit(request(engine, 102, [1], stop_token_ids=(-1,)))
    with pytest.raises(InvalidField, match="temperature"):
        await engine.submit(request(engine, 103, [1], temperature=float("nan")))


async def test_a_match_says_what_the_next_request_finds(engine: EngineClient) -> None:
    asked = request(engine, 150, [77, *PROMPT] * 3)
    assert (await engine.match(asked.keys, 36)).num_cached_tokens == 0
    await collect(await engine.submit(asked))
    again = msgspec.structs.replace(asked, id=RequestId(151))
    told, (_, last) = await engine.match(asked.keys, 36), await collect(await engine.submit(again))
    assert told.num_cached_tokens == told.tiers["device"] == last.num_cached_tokens == 32
    full, _, empty = await asyncio.gather(engine.match(asked.keys, 36), engine.stats(), engine.match(b"", 0))
    assert [full.num_cached_tokens, empty.num_cached_tokens] == [32, 0]


async def test_hints_of_a_request_are_answered_with_its_verdict(engine: EngineClient) -> None:
    asked = request(engine, 160, PROMPT)
    hinted = msgspec.structs.replace(asked, session_id="s", hints=(Hint("retain", 5.0), Hint("prefetch")))
    stream = await engine.submit(hinted)
    assert [(answer.kind, answer.status) for answer in stream.hints] == [("retain", "applied"), ("prefetch", "ignored")]  # type: ignore[attr-defined]
    await collect(stream)
    bare = await engine.submit(msgspec.structs.replace(asked, id=RequestId(161)))
    assert bare.hints == ()  # type: ignore[attr-defined]
    await collect(bare)
    (later,) = await engine.hint("", "s", (Hint("release"),))
    assert later.status == "applied"
    engine.outcome(RequestId(160), "stop", ())
    assert any(session.session_id == "s" for session in (await engine.cache_report()).sessions)


async def test_finish_ends_the_stream_and_frees_the_engine(engine: EngineClient) -> None:
    stream = await engine.submit(request(engine, 200, PROMPT, max_tokens=200))
    first = await anext(stream)
    engine.finish(RequestId(200), 1)
    engine.finish(RequestId(200), 1)
    _, last = await collect(stream)
    assert len(first.token_ids) == 1 and last.finish is FinishReason.ABORT
    await idle(engine)


@pytest.mark.parametrize("how", ["closed", "cancelled", "forgotten", "never read"])
async def test_a_consumer_that_goes_away_ends_its_request_once(engine: EngineClient, how: str) -> None:
    number = {"closed": 300, "cancelled": 301, "forgotten": 302, "never read": 303}[how]
    finished = (await engine.stats()).requests_finished.get("abort", 0)
    stream = await engine.submit(request(engine, number, PROMPT, max_tokens=200))
    if how != "never read":
        await anext(stream)
    if how == "closed":
        # The test still holds the stream here and below, so nothing but the close or the cancellation can end it.
        await stream.aclose()  # type: ignore[attr-defined]
    elif how == "cancelled":
        reading = asyncio.create_task(collect(stream))
        await asyncio.sleep(0)
        reading.cancel()
        with contextlib.suppress(asyncio.CancelledError):
            await reading
    else:
        del stream
    await asyncio.sleep(0)
    await idle(engine)
    assert (await engine.stats()).requests_finished["abort"] == finished + 1


async def test_a_submission_cancelled_before_its_verdict(engine: EngineClient) -> None:
    task = asyncio.create_task(engine.submit(request(engine, 400, PROMPT, max_tokens=200)))  # type: ignore[arg-type]
    await asyncio.sleep(0)
    task.cancel()
    with pytest.raises(asyncio.CancelledError):
        await task
    await idle(engine)


MALFORMED = {
    "no msgpack": b"\xc1\xff\x00",
    "cut off": msgspec.msgpack.encode(["FinishRequest", 5, 1])[:-1],
    "unknown tag": msgspec.msgpack.encode(["Nothing"]),
    "a float for an integer": msgspec.msgpack.encode(["FinishRequest", 5.0, 1]),
    "empty": b"",
    "zeros": b"\0" * 1_000_000,
    "nested": b"\x92\xa8Shutdown" + b"\x91" * 100_000 + b"\xc0",
}


async def test_a_message_that_cannot_be_read_is_answered_to_everyone(tiny: Tiny) -> None:
    """The first request is running, the second one's own submission is what is malformed: its top_k is a float."""
    engine = await EngineClient.start(config(tiny, max_num_batched_tokens=64))
    try:
        stream = await engine.submit(request(engine, 1, PROMPT, max_tokens=200))
        with pytest.raises(EngineDead, match="Expected `int`, got `float`"):
            await asyncio.wait_for(engine.submit(request(engine, 2, PROMPT, top_k=50.0)), 10)
        _, last = await asyncio.wait_for(collect(stream), 10)
        assert last.finish in (FinishReason.ERROR, FinishReason.LENGTH)
        assert "Expected `int`, got `float`" in await engine.wait_dead()
    finally:
        await engine.close()


@pytest.mark.parametrize("kind", MALFORMED)
async def test_no_malformed_frame_is_passed_over(kind: str, tmp_path: Path) -> None:
    address = f"ipc://{tmp_path}/s"
    with zmq.Context() as context, context.socket(zmq.PAIR) as peer:
        peer.bind(address)
        link = Link(address)
        peer.send(MALFORMED[kind])
        try:
            assert link.socket.poll(5000)
            with pytest.raises((msgspec.DecodeError, UnicodeDecodeError, RecursionError)):
                link.waiting()
        finally:
            link.close()


class Answers:
    """Stands for the client's wire: gives these frames, then nothing more."""

    def __init__(self, *frames: bytes) -> None:
        self.socket, self.decoder = self, msgspec.msgpack.Decoder(FromEngine)
        self._frames = list(frames)

    async def recv(self) -> bytes:
        if self._frames:
            return self._frames.pop(0)
        raise asyncio.CancelledError


def reader(wire: Answers, killed: list[bool]) -> EngineClient:
    class Child:
        def kill(self) -> None:
            killed.append(True)

    client = EngineClient.__new__(EngineClient)
    client._wire, client._child = wire, Child()  # type: ignore[assignment]
    client._fatal = asyncio.get_running_loop().create_future()
    return client


@pytest.mark.parametrize("kind", MALFORMED)
async def test_an_answer_that_cannot_be_read_gives_the_engine_up(kind: str, caplog: pytest.LogCaptureFixture) -> None:
    killed: list[bool] = []
    client = reader(Answers(MALFORMED[kind]), killed)
    await client._read()
    assert killed == [True] and "could not be read" in client._fatal.result().message
    assert "Traceback" in caplog.text


async def test_an_answer_that_cannot_be_handled_is_told_with_its_place(caplog: pytest.LogCaptureFixture) -> None:
    def boom(text: str) -> None:
        raise KeyError(text)

    seen = list[str]()
    client = reader(Answers(*(msgspec.msgpack.encode(Progress(text)) for text in ("bad", "good"))), [])
    client._on_progress = lambda text: boom(text) if text == "bad" else seen.append(text)
    with pytest.raises(asyncio.CancelledError):
        await client._read()
    assert seen == ["good"] and "in boom" in caplog.text and "Progress from the engine" in caplog.text


async def test_ctrl_c_at_the_terminal_is_not_for_the_engine(engine: EngineClient, tiny: Tiny) -> None:
    os.kill(engine.pid, signal.SIGINT)
    tokens, _ = await collect(await engine.submit(request(engine, 600, PROMPT)))
    assert tokens == tiny.greedy(PROMPT, 10)
    assert os.getpgid(engine.pid) != os.getpgid(0)


async def test_an_idle_engine_uses_no_cpu(engine: EngineClient) -> None:
    def cpu_s() -> float:
        fields = Path(f"/proc/{engine.pid}/stat").read_text().rsplit(")", 1)[1].split()
        return (int(fields[11]) + int(fields[12])) / os.sysconf("SC_CLK_TCK")

    await idle(engine)
    before = cpu_s()
    await asyncio.sleep(0.5)
    assert cpu_s() - before <= 0.03


async def test_the_socket_is_private(engine: EngineClient) -> None:
    assert engine._wire.folder.stat().st_mode & 0o777 == 0o700


async def test_killed_in_the_middle_of_everything(tiny: Tiny) -> None:
    engine = await EngineClient.start(config(tiny, num_gpu_blocks_override=1000, max_num_batched_tokens=64))
    folder = engine._wire.folder
    try:
        streams = [await engine.submit(request(engine, n, [*PROMPT, n], max_tokens=200)) for n in range(3)]
        await anext(streams[0])
        collecting = [asyncio.create_task(collect(stream)) for stream in streams]
        os.kill(engine.pid, signal.SIGKILL)
        died = time.monotonic()
        for _, last in await asyncio.wait_for(asyncio.gather(*collecting), 5):
            assert last.finish is FinishReason.ERROR and last.error is not None
            assert last.error.code == "engine_dead" and "SIGKILL" in last.error.message
        assert time.monotonic() - died < 1.0
        assert "SIGKILL" in (engine.dead or "") and await engine.wait_dead() == engine.dead
        with pytest.raises(EngineDead, match="SIGKILL"):
            await engine.submit(request(engine, 9, PROMPT))
        with pytest.raises(EngineDead):
            await engine.stats()
        with pytest.raises(EngineDead, match="SIGKILL"):
            await engine.match(b"", 0)
        engine.finish(RequestId(0), 1)
    finally:
        await engine.close()
    assert not folder.exists()


async def test_sigterm_stops_in_order(tiny: Tiny) -> None:
    engine = await EngineClient.start(config(tiny, max_num_batched_tokens=64, depth=1))
    try:
        stream = await engine.submit(request(engine, 1, PROMPT, max_tokens=200))
        os.kill(engine.pid, signal.SIGTERM)
        _, last = await asyncio.wait_for(collect(stream), 5)
        assert last.finish in (FinishReason.ERROR, FinishReason.LENGTH)
        assert "exit code 0" in await engine.wait_dead()
    finally:
        await engine.close()


async def test_a_start_that_fails_raises_what_the_engine_raised(tiny: Tiny, tmp_path: Path) -> None:
    with pytest.raises(CheckpointError, match=r"config\.json"):
        await EngineClient.start(config(tiny, model=str(tmp_path)))


@pytest.mark.parametrize("debug", [False, True])
async def test_a_start_that_fails_is_told_once(
    tiny: Tiny, tmp_path: Path, capfd: pytest.CaptureFixture[str], debug: bool
) -> None:
    """By whoever started it: the engine's own log has only what the message lacks, and only on request."""
    with pytest.raises(CheckpointError):
        await EngineClient.start(config(tiny, model=str(tmp_path), debug=debug))
    logged = capfd.readouterr().err
    assert ("Traceback" in logged and "config.json" in logged) if debug else logged == ""


async def test_the_engine_ends_with_its_parent(tiny: Tiny) -> None:
    """A parent killed with SIGKILL closes nothing and says nothing; its engine is gone soon after, with its socket."""
    script = f"""
import asyncio, sys
from samovar.runner.client import EngineClient
from samovar.runner.config import EngineProcessConfig

async def main():
    engine = await EngineClient.start(EngineProcessConfig(
        model={str(tiny.folder)!r}, cache_dir={str(tiny.folder)!r}, num_gpu_blocks_override=64, num_threads=1,
        max_num_batched_tokens=64))
    print(engine.pid, engine._wire.folder, flush=True)
    await asyncio.sleep(60)

asyncio.run(main())
"""
    with subprocess.Popen([sys.executable, "-c", script], stdout=subprocess.PIPE, text=True) as parent:
        assert parent.stdout is not None
        number, folder = (await asyncio.to_thread(parent.stdout.readline)).split()
        pid = int(number)
        os.kill(pid, 0)
        parent.kill()
    async with asyncio.timeout(5):
        while _alive(pid):
            await asyncio.sleep(0.05)
    assert not Path(folder).exists()


def _alive(pid: int) -> bool:
    """A zombie whose new parent has not looked yet counts as gone."""
    try:
        return Path(f"/proc/{pid}/stat").read_text().rsplit(")", 1)[1].split()[0] != "Z"
    except OSError:
        return False


async def test_the_client_needs_no_torch() -> None:
    code = "import samovar.runner.client, sys; sys.exit('torch' in sys.modules)"
    assert subprocess.run([sys.executable, "-c", code], check=False).returncode == 0
