"""One run of the real engine under a replayed load: a server of its own, its steps and its core's calls in logs."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Sequence
from dataclasses import dataclass
import math
from pathlib import Path
import sys
import time

from benchmarks.peer_servers import Running, Server
import httpx
import msgspec

from samovar.base.errors import ConfigError
from samovar.bench.replay import ReplayOptions, ReplayRun, make_client
from samovar.bench.replay_server import ServerOptions, find_out
from samovar.core.calls import Apply, Call, LogHeader, Submit
from samovar.core.config import EngineConfig
from samovar.core.events import Output
from samovar.runner.call_log import read_call_log
from samovar.runner.step_log import StepLine, read_step_log
from samovar.workload.metrics_record import RequestRecord
from samovar.workload.replay import ReplayConfig
from samovar.workload.replay_script import Script

LONGEST_S = 1800.0
"""A run that takes this long is given up."""
RUN = "sim-engine"


@dataclass(frozen=True, slots=True)
class Served:
    """A request as the engine's core saw it, on the machine's monotonic clock, which all processes share."""

    session_id: str
    prompt_tokens: int
    submitted_s: float
    first_s: float
    last_s: float


@dataclass(frozen=True, slots=True)
class RealRun:
    records: tuple[RequestRecord, ...]
    began_s: float
    """Zero of the records' times, on the machine's monotonic clock."""
    engine: EngineConfig
    steps: tuple[StepLine, ...]
    """Of the replay alone."""
    served: tuple[Served, ...]
    """In the order of `records`."""

    @property
    def busy_share(self) -> float:
        """Of the time from the first request's arrival to the last one's end, what the engine computed in."""
        began, ended = min(one.submitted_s for one in self.served), max(one.last_s for one in self.served)
        return sum(line.seconds for line in self.steps) / (ended - began)


def server(port: int, flags: Sequence[str], folder: Path) -> Server:
    command = (
        sys.executable, "-m", "samovar.cli.main", "serve", "--host", "127.0.0.1", "--port", str(port),
        "--no-cache-log", "--record-path", str(folder / "calls"), "--step-log", str(folder / "steps.jsonl"), *flags,
    )  # fmt: skip
    return Server("samovar", f"http://127.0.0.1:{port}", "vllm", command=command)


async def run_real(
    scripts: Sequence[Script], rules: ReplayConfig, port: int, flags: Sequence[str], folder: Path
) -> RealRun:
    """A fresh server with nothing in its cache. Raises ConfigError when a request fails."""
    folder.mkdir(parents=True)
    options = ReplayOptions(run=RUN, duration_s=LONGEST_S)
    async with make_client(options) as client:
        began = await _started(port, flags, folder, client)
        try:
            found = await find_out(client, began.server.url, ServerOptions(form="tokens"), options.tokens)
            run = ReplayRun(client, found, scripts, options)
            clock = _Zero()
            point = await run.point(rules, clock.ended, lambda live: None)
        finally:
            began.stop()
    failed = [record.error for record in point.records if record.status != "ok"]
    if failed or not point.complete:
        raise ConfigError(f"{len(failed)} of {len(point.records)} requests failed: {point.stopped or failed[0]}")
    return _read(folder, point.records, clock.began_s)


class _Zero:
    """The clock's time at the records' zero: each is handed out the moment after its request ended."""

    def __init__(self) -> None:
        self.began_s = math.inf

    def ended(self, record: RequestRecord) -> None:
        self.began_s = min(self.began_s, time.monotonic() - record.end_s)


async def _started(port: int, flags: Sequence[str], folder: Path, client: httpx.AsyncClient) -> Running:
    return await Running.start(server(port, flags, folder), client, folder / "log.txt")


def _read(folder: Path, records: Sequence[RequestRecord], began_s: float) -> RealRun:
    header, *calls = read_call_log(folder / "calls")
    assert isinstance(header, LogHeader)
    by_session: dict[str, list[Served]] = defaultdict(list)
    for one in _served([call for call in calls if isinstance(call, Call)]):
        by_session[one.session_id].append(one)
    served: dict[int, Served] = {}
    turns: dict[str, list[int]] = defaultdict(list)
    for at, record in enumerate(records):
        turns[_session_id(record)].append(at)
    for session_id, places in turns.items():
        # A stream's turns follow each other.
        places.sort(key=lambda at: records[at].start_s)
        for at, one in zip(places, by_session[session_id], strict=True):
            assert one.prompt_tokens == records[at].prompt_tokens, f"{session_id}: turns are not in order"
            served[at] = one
    ordered = tuple(served[at] for at in range(len(records)))
    first_s = min(one.submitted_s for one in ordered)
    steps = tuple(line for line in read_step_log(folder / "steps.jsonl") if line.end_s > first_s)
    return RealRun(tuple(records), began_s, header.config, steps, ordered)


def _session_id(record: RequestRecord) -> str:
    return f"{RUN}-c{record.concurrency}-l{record.lane}-v{record.visit}-s{record.stream}"


def _served(calls: Sequence[Call]) -> list[Served]:
    """Requests of sessions, in the order in which they came."""
    submitted: dict[int, Submit] = {}
    times: dict[int, list[float]] = defaultdict(list)
    decoder = msgspec.msgpack.Decoder(list[Output])
    for call in calls:
        match call.call:
            case Submit(request, _):
                submitted[request.id] = call.call
            case Apply(_, _, now):
                for output in decoder.decode(call.answer):
                    if output.token_ids:
                        times[output.request_id].append(now)
    return [
        Served(submit.request.session_id, len(submit.request.token_ids) // 4, submit.now, times[id][0], times[id][-1])
        for id, submit in submitted.items()
        if submit.request.session_id.startswith(RUN)
    ]
