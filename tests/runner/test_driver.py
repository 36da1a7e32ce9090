"""The driver's loop in a thread: commands are answered while a step runs, and an error of ours ends it."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
import re
import subprocess
import sys
import threading
import time

import msgspec
import pytest

pytest.importorskip("torch")
from tests.runner.conftest import VOCAB, Tiny
import torch
import zmq

from samovar.base.ids import RequestId
from samovar.base.keys import extend_keys, join_keys, pack_tokens, root_key
from samovar.core.cache_report import Dormant, Recovered
from samovar.core.config import EngineConfig
from samovar.core.engine import Engine
from samovar.core.events import FinishReason, Output, Verdict
from samovar.core.ports import PrefixMatch
from samovar.core.request import Request
from samovar.core.sampling import SamplingParams
from samovar.models.batch import ForwardBatch, KVCache
from samovar.models.checkpoint import open_folder
from samovar.models.llama import LlamaModel
from samovar.models.load import load_model, new_cache
from samovar.policy.hints import Hint
from samovar.policy.lru import LRU
from samovar.runner.config import EngineProcessConfig
from samovar.runner.driver import Driver
from samovar.runner.link import Link
from samovar.runner.local import LocalRunner
from samovar.runner.messages import (
    CacheReported,
    Check,
    Checked,
    Fatal,
    FinishRequest,
    FromEngine,
    GetCacheReport,
    GetStats,
    Hinted,
    KVHint,
    Launch,
    Matched,
    MatchPrefix,
    Outputs,
    Shutdown,
    Stats,
    SubmitRequest,
    ToEngine,
    TurnOutcome,
    Verdicts,
)
from samovar.runner.wake import Wake

pytestmark = pytest.mark.torch

PROMPT = [3, 14, 15, 92, 65]


class Gated:
    """The model, whose forwards wait for a gate."""

    def __init__(self, model: LlamaModel) -> None:
        self.spec = model.spec
        self._model = model
        self.gate, self.began = threading.Event(), threading.Event()

    def forward(self, batch: ForwardBatch, cache: KVCache) -> torch.Tensor:
        self.began.set()
        assert self.gate.wait(10)
        return self._model.forward(batch, cache)


class Bench:
    """A driver in a thread, and the client's end of its socket."""

    def __init__(self, tiny: Tiny, folder: Path, depth: int) -> None:
        address = f"ipc://{folder}/s"
        self._context = zmq.Context()
        self._socket = self._context.socket(zmq.PAIR)
        self._socket.bind(address)
        self._socket.rcvtimeo = 10_000
        model = load_model(open_folder(tiny.folder), "float32")
        self.model = Gated(model)
        self.wake = Wake()
        cache = new_cache(model.spec, 64, 4, "float32")
        self.runner = LocalRunner(self.model, cache, on_done=self.wake.notify)  # type: ignore[arg-type]
        self.engine = Engine(EngineConfig(64, 4, max_model_len=100, depth=depth), LRU())
        self.link = Link(address)
        self.driver = Driver(self.engine, self.runner, self.link, self.wake, VOCAB)
        self.error: BaseException | None = None
        self.thread = threading.Thread(target=self._run, daemon=True)
        self.thread.start()

    def _run(self) -> None:
        try:
            self.driver.run()
        except BaseException as error:
            self.error = error

    def send(self, message: ToEngine) -> None:
        self._socket.send(msgspec.msgpack.encode(message))

    def receive(self) -> FromEngine:
        return msgspec.msgpack.decode(self._socket.recv(), type=FromEngine)

    def submit(self, number: int) -> None:
        sampling = SamplingParams(max_tokens=5, temperature=0)
        self.send(SubmitRequest(Request(RequestId(number), pack_tokens(PROMPT), sampling, root_key(b"x"))))

    def close(self) -> None:
        self.model.gate.set()
        self.driver.stop()
        self.thread.join(10)
        self.runner.close()
        self.link.close()
        self._context.destroy(linger=0)


@pytest.fixture(params=[1, 2])
def bench(tiny: Tiny, tmp_path: Path, request: pytest.FixtureRequest) -> Iterator[Bench]:
    bench = Bench(tiny, tmp_path, request.param)
    yield bench
    bench.close()


def test_answers_come_while_a_step_runs(bench: Bench, tiny: Tiny) -> None:
    """The first step is held up; verdicts, statistics and checks are answered, and then the tokens come."""
    bench.submit(1)
    first = bench.receive()
    assert isinstance(first, Verdicts) and first.verdicts[0].error is None
    assert bench.model.began.wait(10)
    bench.submit(2)
    second = bench.receive()
    assert isinstance(second, Verdicts) and second.verdicts[0].request_id == 2
    bench.send(GetStats())
    stats = bench.receive()
    assert isinstance(stats, Stats) and stats.stats.num_running + stats.stats.num_waiting == 2
    bench.send(Check())
    assert bench.receive() == Checked(None)
    root, tokens = root_key(b"x"), pack_tokens(PROMPT)
    bench.send(MatchPrefix(join_keys(extend_keys(root, tokens, 4)), len(PROMPT)))
    assert bench.receive() == Matched(PrefixMatch(4, {"device": 4})), "its first block is being computed"
    bench.send(MatchPrefix(join_keys(extend_keys(root_key(b"y"), tokens, 4)), len(PROMPT)))
    assert bench.receive() == Matched(PrefixMatch(0, {"device": 0}))
    bench.send(FinishRequest(RequestId(2), 0))
    bench.model.gate.set()
    made: list[int] = []
    while True:
        message = bench.receive()
        assert isinstance(message, Outputs)
        assert {output.request_id for output in message.outputs} == {1}
        made.extend(message.outputs[0].token_ids)
        if message.outputs[0].finish is not None:
            assert message.outputs[0].finish is FinishReason.LENGTH
            break
    assert made == tiny.greedy(PROMPT, 5)


@pytest.mark.parametrize("how", ["message", "call"])
def test_stops_when_told(bench: Bench, how: str) -> None:
    if how == "message":
        bench.send(Shutdown())
    else:
        bench.driver.stop()
    bench.thread.join(5)
    assert not bench.thread.is_alive() and bench.error is None


def test_an_error_of_ours_ends_the_loop(bench: Bench, monkeypatch: pytest.MonkeyPatch) -> None:
    def broken(self: Engine, request: Request, now: float) -> None:
        raise KeyError("a bug")

    monkeypatch.setattr(Engine, "submit", broken)
    bench.submit(1)
    bench.thread.join(5)
    assert isinstance(bench.error, KeyError)


class Deadlines:
    """A core that waits for nothing but a deadline: it notes every look, and is content with the first at or after it,
    or never."""

    def __init__(self, wake_at: float | None, content: bool) -> None:
        self.wake_at, self.has_work, self.looks = wake_at, True, list[float]()
        self._content = content

    def plan(self, now: float) -> None:
        self.looks.append(now)
        if self._content and self.wake_at is not None and now >= self.wake_at:
            self.wake_at = None


@pytest.mark.parametrize(("after_s", "content"), [(0.15, True), (0.15, False), (-1.0, False), (None, False)])
def test_a_deadline_is_slept_for_and_nothing_is_polled(after_s: float | None, content: bool, tmp_path: Path) -> None:
    class Nothing:
        def transfers(self) -> tuple[()]:
            return ()

    wake_at = None if after_s is None else time.monotonic() + after_s
    core, wake, link = Deadlines(wake_at, content), Wake(), Link(f"ipc://{tmp_path}/s")
    driver = Driver(core, Nothing(), link, wake, VOCAB)  # type: ignore[arg-type]
    thread = threading.Thread(target=driver.run, daemon=True)
    thread.start()
    time.sleep(0.4)
    driver.stop()
    thread.join(5)
    link.close()
    assert not thread.is_alive()
    late = [look - wake_at for look in core.looks if wake_at is not None and look >= wake_at]
    assert len(core.looks) <= 4
    if after_s is not None and after_s > 0:
        assert late and late[0] < 0.1


def test_hints_outcomes_and_reports_reach_the_core(bench: Bench, monkeypatch: pytest.MonkeyPatch) -> None:
    told: list[tuple[object, ...]] = []
    monkeypatch.setattr(Engine, "outcome", lambda self, *arguments: told.append(arguments))
    bench.model.gate.set()
    bench.send(TurnOutcome(RequestId(7), "tool_calls", ("read", "write")))
    bench.send(KVHint("", "nobody", (Hint("retain", 5.0), Hint("release"))))
    hinted = bench.receive()
    assert isinstance(hinted, Hinted)
    assert [(answer.kind, answer.status) for answer in hinted.answers] == [
        ("retain", "ignored"),
        ("release", "ignored"),
    ]
    assert [arguments[:3] for arguments in told] == [(7, "tool_calls", ("read", "write"))]
    bench.send(GetCacheReport())
    reported = bench.receive()
    assert isinstance(reported, CacheReported) and reported.report.policy == "lru"
    assert [tier.tier for tier in reported.report.tiers] == ["device"]


class Flushing:
    """A core that has nothing to plan; it notes what is finished."""

    wake_at = None
    has_work = False

    def __init__(self) -> None:
        self.finished: list[int] = []

    def submit(self, request: Request, now: float) -> Verdict:
        return Verdict(request.id)

    def finish(self, request_id: int, num_tokens: int, now: float) -> None:
        self.finished.append(request_id)

    def plan(self, now: float) -> None:
        return None


@pytest.mark.parametrize(("looks", "least_s", "most_s"), [(0, 0.0, 0.2), (3, 0.1, 0.45), (10**9, 0.5, 0.8)])
def test_a_flush_ends_with_what_it_waits_for_or_in_time(
    looks: int, least_s: float, most_s: float, tmp_path: Path
) -> None:
    """Something is pending for so many looks; every 50 ms a report comes that wakes the loop."""
    core, wake, link = Flushing(), Wake(), Link(f"ipc://{tmp_path}/s")
    seen = 0

    def pending() -> bool:
        nonlocal seen
        seen += 1
        threading.Timer(0.05, wake.notify).start()
        return seen <= looks

    class Nothing:
        def transfers(self) -> tuple[()]:
            return ()

    driver = Driver(core, Nothing(), link, wake, VOCAB)  # type: ignore[arg-type]
    for number in (1, 2, 3):
        driver._submit(Request(RequestId(number), pack_tokens(PROMPT), SamplingParams(max_tokens=5), root_key(b"x")))
    driver._send([Output(RequestId(2), finish=FinishReason.STOP)])
    began = time.monotonic()
    driver.flush(0.5, pending)
    assert least_s <= time.monotonic() - began < most_s
    assert core.finished == [1, 3], "what runs is given up"
    link.close(0.0)


def test_conversations_found_at_the_start_are_listed_until_a_turn_of_theirs_is_accepted(tmp_path: Path) -> None:
    """Not until the core is asked: it may have forgotten it again by then."""

    class Core(Flushing):
        def cache_report(self, now: float, dormant: Dormant) -> int:
            return len(dormant)

    class Nothing:
        pass

    wake, link = Wake(), Link(f"ipc://{tmp_path}/s")
    found = [Recovered(f"t\0{name}", b"k" * 16, 0.0) for name in "abc"]
    driver = Driver(Core(), Nothing(), link, wake, VOCAB, recovered=found)  # type: ignore[arg-type]
    turn = Request(RequestId(1), pack_tokens(PROMPT), SamplingParams(max_tokens=5), root_key(b"x"), session_id="b")
    no_turns = ({}, {"tenant": "t", "use_prefix_cache": False}, {"tenant": "t", "token_ids": pack_tokens([VOCAB])})
    for fields in no_turns:
        driver._submit(msgspec.structs.replace(turn, **fields))
        assert driver._report() == 3, fields
    driver._submit(msgspec.structs.replace(turn, tenant="t"))
    assert driver._report() == 2
    link.close(0.0)


def test_a_frame_that_cannot_be_read_ends_the_loop(bench: Bench) -> None:
    bench._socket.send(b"\xc1\xff")
    bench.thread.join(5)
    assert isinstance(bench.error, msgspec.DecodeError)


def test_the_process_says_what_ended_it(tmp_path: Path) -> None:
    """An exception nobody foresaw: a Fatal message with its text, exit code 1, and where it came from on stderr."""
    code = """
import samovar.runner.process as process

def boom(*args):
    raise RuntimeError("nobody foresaw this")

process.boot = boom
raise SystemExit(process.main())
"""
    address = f"ipc://{tmp_path}/s"
    context = zmq.Context()
    socket = context.socket(zmq.PAIR)
    socket.bind(address)
    socket.rcvtimeo = 10_000
    launch = msgspec.json.encode(Launch(address, EngineProcessConfig(model="m", cache_dir="c")))
    pipe = subprocess.PIPE
    # Leaving the block closes stdin; until then it says that the parent lives.
    with subprocess.Popen([sys.executable, "-c", code], stdin=pipe, stderr=pipe) as process:
        assert process.stdin is not None and process.stderr is not None
        process.stdin.write(launch + b"\n")
        process.stdin.flush()
        message = msgspec.msgpack.decode(socket.recv(), type=FromEngine)
        said = process.stderr.read().decode()
    context.destroy(linger=0)
    assert isinstance(message, Fatal) and message.error.message == "RuntimeError: nobody foresaw this"
    assert process.returncode == 1
    lines = said.splitlines()
    assert [re.sub(r"^\d{4}-\d\d-\d\d [\d:,]{12} ", "", line) for line in lines[:2]] == [
        "ERROR samovar.engine: RuntimeError: nobody foresaw this",
        "Traceback (most recent call last):",
    ]
    assert any("in boom" in line for line in lines) and lines[-1] == "RuntimeError: nobody foresaw this"
