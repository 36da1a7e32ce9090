"""Replays agent sessions against a server by the wall clock: `samovar bench replay`.

The rules are `workload.replay`'s; this sends what it says is due and tells it what came back. Whatever happens, the
requests made so far are on disk, and the result says what is missing and why.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
import time

import httpx

from samovar.base.errors import ConfigError
from samovar.bench.replay_calls import Caller, Sent
from samovar.bench.replay_server import Server, answers
from samovar.workload.metrics_ceiling import InfiniteCache
from samovar.workload.metrics_record import Phase, RequestRecord
from samovar.workload.prompts import TokenRange
from samovar.workload.prompts_maker import PromptMaker
from samovar.workload.prompts_text import Words
from samovar.workload.replay import Launch, Replay, ReplayConfig
from samovar.workload.replay_script import Script

TICK_S = 0.25
"""Between two looks at the end of the run, and updates of the live figures."""
GONE_CHECKS = 3
MIN_REQUESTS_TO_JUDGE = 20
CONNECTION_KEPT_S = 4.0
"""Idle connections are closed sooner than servers close them (5 s), so that none is closed under a new request."""


@dataclass(frozen=True, slots=True)
class ReplayOptions:
    run: str
    """Name of the run; part of every prompt, so that equal names give equal prompts."""
    duration_s: float = 120.0
    grace_s: float = 30.0
    """Requests still running after `duration_s` get this long to finish."""
    timeout_s: float = 600.0
    """For one request."""
    max_failed: float = 0.1
    """A larger share of failed requests ends the run."""
    cache_bust: bool = True
    live_history: bool = False
    tokens: TokenRange = field(default_factory=TokenRange)
    api_key: str | None = field(default=None, repr=False)

    def __post_init__(self) -> None:
        at_least = (
            ("--duration", self.duration_s, 1.0),
            ("--grace", self.grace_s, 0.0),
            ("--timeout", self.timeout_s, 1),
        )
        for flag, value, limit in at_least:
            if not value >= limit:
                raise ConfigError(f"{flag} is {value:g} s; it must be at least {limit:g}")
        if not 0 <= self.max_failed <= 1:
            raise ConfigError(f"--max-failed is {self.max_failed:g}; it must be from 0 to 1")


@dataclass(slots=True)
class Live:
    """Figures of the part that runs now. Requests are those of `phase`, as in the table at the end."""

    concurrency: int
    phase: Phase = "warmup"
    elapsed_s: float = 0.0
    duration_s: float = 0.0
    lanes: int = 0
    in_flight: int = 0
    done: int = 0
    failed: int = 0
    prompt_tokens: int = 0
    cached_tokens: int = 0
    ceiling_tokens: int = 0
    output_tokens: int = 0


@dataclass(frozen=True, slots=True)
class PointRun:
    """One concurrency's part of the run, as it ended."""

    concurrency: int
    records: tuple[RequestRecord, ...]
    complete: bool
    stopped: str
    server_gone: bool
    skipped_s: float
    sessions_begun: int
    sessions_finished: int


OnRecord = Callable[[RequestRecord], None]
OnLive = Callable[[Live], None]


def make_client(options: ReplayOptions) -> httpx.AsyncClient:
    headers = {"authorization": f"Bearer {options.api_key}"} if options.api_key else {}
    return httpx.AsyncClient(
        headers=headers,
        timeout=httpx.Timeout(options.timeout_s, connect=10.0, pool=None),
        limits=httpx.Limits(max_connections=None, max_keepalive_connections=None, keepalive_expiry=CONNECTION_KEPT_S),
        trust_env=False,
    )


class ReplayRun:
    """A run over several concurrencies against one server, whose cache lives through all of them."""

    def __init__(
        self, client: httpx.AsyncClient, server: Server, scripts: Sequence[Script], options: ReplayOptions
    ) -> None:
        self._client = client
        self._server = server
        self._scripts = scripts
        self._options = options
        self._words = Words()
        self._cache = InfiniteCache(server.block_tokens)

    async def point(self, config: ReplayConfig, on_record: OnRecord, on_live: OnLive) -> PointRun:
        """`on_record` gets each request as it ends; those of the warm-up when it is over, since times count from then.
        Cancelled, it ends like a run that was stopped."""
        options = self._options
        tokens = options.tokens if self._server.form == "tokens" else self._words.range
        maker = PromptMaker(
            tokens,
            run=options.run,
            point=str(config.concurrency),
            cache_bust=options.cache_bust,
            live_history=options.live_history,
        )
        caller = Caller(
            self._client,
            self._server,
            maker,
            self._words,
            self._cache,
            run=options.run,
            concurrency=config.concurrency,
            live_history=options.live_history,
            timeout_s=options.timeout_s,
        )
        return await _Point(self, options, caller, Replay(self._scripts, config), on_record, on_live).run()

    async def is_gone(self) -> bool:
        """No answer to several questions in a row."""
        for _ in range(GONE_CHECKS):
            if await answers(self._client, self._server.url):
                return False
            await asyncio.sleep(TICK_S)
        return True


class _Point:
    def __init__(
        self,
        run: ReplayRun,
        options: ReplayOptions,
        caller: Caller,
        replay: Replay,
        on_record: OnRecord,
        on_live: OnLive,
    ) -> None:
        self._run = run
        self._options = options
        self._caller = caller
        self._replay = replay
        self._on_record = on_record
        self._on_live = on_live
        self._tasks: dict[asyncio.Task[None], Sent] = {}
        self._records: list[RequestRecord] = []
        self._held: list[tuple[Sent, bool]] = []
        """Ended, and whether cut off, before the zero of all times was known."""
        self._stopped = ""
        self._gone = False
        self._ended_in: dict[Phase, int] = {"warmup": 0, "profile": 0}
        self._failed_in: dict[Phase, int] = {"warmup": 0, "profile": 0}
        self._live = Live(replay.config.concurrency, duration_s=self._options.duration_s)

    async def run(self) -> PointRun:
        try:
            await self._drive()
        except asyncio.CancelledError:
            self._stopped = "interrupted"
        for task in self._tasks:
            task.cancel()
        if self._tasks:
            await asyncio.wait(self._tasks)
        for sent in self._tasks.values():
            self._keep(sent, cut=True)
        replay = self._replay
        self._flush(time.monotonic() if replay.profile_began_s is None else replay.profile_began_s)
        return PointRun(
            concurrency=replay.config.concurrency,
            records=tuple(self._records),
            complete=not self._stopped,
            stopped=self._stopped,
            server_gone=self._gone,
            skipped_s=replay.skipped_s,
            sessions_begun=replay.begun_visits,
            sessions_finished=replay.finished_visits,
        )

    async def _drive(self) -> None:
        """Until the time is over and what was under way has ended, or its grace is over too."""
        while not self._stopped:
            now = time.monotonic()
            over_s = self._over_s(now)
            if over_s < 0:
                for launch in self._replay.due(now):
                    self._start(launch)
            if self._replay.finished or (over_s >= 0 and not self._tasks) or over_s >= self._options.grace_s:
                return
            await self._wait(now)
            self._show()

    def _over_s(self, now: float) -> float:
        """Seconds since the end of the measured part; negative before."""
        began = self._replay.profile_began_s
        return -self._options.duration_s if began is None else now - began - self._options.duration_s

    def _start(self, launch: Launch) -> None:
        sent = self._caller.prepare(launch)
        self._tasks[asyncio.create_task(self._caller.call(sent))] = sent

    async def _wait(self, now: float) -> None:
        """For the next end of a request, the next that is due, or a tick."""
        due = self._replay.next_due
        timeout = min(TICK_S, max(0.0, due - now)) if due is not None else TICK_S
        if not self._tasks:
            await asyncio.sleep(timeout)
            return
        done, _ = await asyncio.wait(self._tasks, timeout=timeout, return_when=asyncio.FIRST_COMPLETED)
        for task in done:
            sent = self._tasks.pop(task)
            task.result()
            await self._ended(sent)

    async def _ended(self, sent: Sent) -> None:
        self._replay.completed(sent.launch.id, time.monotonic(), end_tree=sent.answer.overflow)
        self._keep(sent)
        if sent.answer.unreachable and await self._run.is_gone():
            self._gone = True
            self._stopped = f"the server does not answer any more ({sent.answer.error})"
        else:
            self._stopped = self._too_many_failed(sent.answer.error)

    def _too_many_failed(self, last: str) -> str:
        """Why the run must end, or "". The warm-up counts: a server that fails there is not measured any better."""
        failed, ended = sum(self._failed_in.values()), sum(self._ended_in.values())
        if failed <= self._options.max_failed * max(ended, MIN_REQUESTS_TO_JUDGE):
            return ""
        warm = f" ({self._failed_in['warmup']} of {self._ended_in['warmup']} in the warm-up)"
        return (
            f"{failed} of {ended} requests failed{warm if self._ended_in['warmup'] else ''}, more than the share of "
            f"{self._options.max_failed:g} allowed; the last: {last}"
        )

    def _keep(self, sent: Sent, *, cut: bool = False) -> None:
        live, answer = self._live, sent.answer
        self._ended_in[sent.launch.phase] += 1
        self._failed_in[sent.launch.phase] += bool(answer.error) and not cut
        if not answer.error and not cut and sent.launch.phase == "profile":
            live.prompt_tokens += answer.prompt_tokens or len(sent.units)
            live.cached_tokens += answer.cached_tokens or 0
            live.ceiling_tokens += sent.ceiling_tokens
            live.output_tokens += answer.output_tokens or answer.pieces
        self._held.append((sent, cut))
        if self._replay.profile_began_s is not None:
            self._flush(self._replay.profile_began_s)

    def _flush(self, began_s: float) -> None:
        for sent, cut in self._held:
            record = self._caller.record(sent, began_s, cut=cut)
            self._records.append(record)
            self._on_record(record)
        self._held.clear()

    def _show(self) -> None:
        live, replay = self._live, self._replay
        live.phase = replay.phase
        live.done, live.failed = self._ended_in[replay.phase], self._failed_in[replay.phase]
        live.lanes = replay.live_lanes
        live.in_flight = len(self._tasks)
        if replay.profile_began_s is not None:
            live.elapsed_s = time.monotonic() - replay.profile_began_s
        self._on_live(live)
