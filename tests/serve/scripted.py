"""A service that says what a test wrote down, and otherwise behaves like the core: verdicts first, stop tokens and
limits honoured, prefixes cached per domain, everything ended when it dies."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Callable
from dataclasses import dataclass, field

from samovar.base.errors import EngineDead, SamovarError
from samovar.base.keys import split_keys
from samovar.core.events import ErrorInfo, FinishReason, Output
from samovar.core.plan import TokenLogprobs
from samovar.core.ports import EngineInfo, PrefixMatch
from samovar.core.request import Request
from samovar.core.stats import CacheReport, EngineStats
from samovar.policy.hints import Hint, HintAnswer

BLOCK = 16
LONGEST_S = 86_400.0
"""For which hints are taken."""


@dataclass(frozen=True)
class Script:
    """What happens to one request. Tokens come `per_output` at a time, `delay_s` apart."""

    tokens: tuple[int, ...]
    per_output: int = 1
    delay_s: float = 0.0
    prefill_s: float = 0.0
    verdict_s: float = 0.0
    refusal: SamovarError | None = None
    error_after: int | None = None
    """Fail after this many tokens."""


def answered(hint: Hint) -> HintAnswer:
    if hint.seconds > LONGEST_S:
        return HintAnswer(hint.kind, "clipped", f"{LONGEST_S:.0f} s is the limit")
    return HintAnswer(hint.kind, "applied")


class Outputs(AsyncIterator[Output]):
    """What `submit` returns."""

    def __init__(self, outputs: AsyncIterator[Output], hints: tuple[HintAnswer, ...]) -> None:
        self._outputs = outputs
        self.hints = hints

    async def __anext__(self) -> Output:
        return await anext(self._outputs)


@dataclass
class ScriptedService:
    script: Callable[[Request], Script]
    info: EngineInfo
    dead: str | None = None
    requests: list[Request] = field(default_factory=list)
    finished: list[tuple[int, int]] = field(default_factory=list)
    open: dict[int, asyncio.Queue[Output]] = field(default_factory=dict)
    cache: set[bytes] = field(default_factory=set)
    snapshot: EngineStats = field(default_factory=EngineStats)
    report: CacheReport = field(default_factory=lambda: CacheReport("lru", BLOCK, (), (), 0))
    hinted: list[tuple[str, str, tuple[Hint, ...]]] = field(default_factory=list)
    """By themselves: tenant, session, actions."""
    outcomes: list[tuple[int, str, tuple[str, ...]]] = field(default_factory=list)
    _death: asyncio.Event = field(default_factory=asyncio.Event)

    async def submit(self, request: Request) -> AsyncIterator[Output]:
        if self.dead is not None:
            raise EngineDead(self.dead)
        script = self.script(request)
        self.requests.append(request)
        self.open[request.id] = asyncio.Queue()
        if script.verdict_s:
            await asyncio.sleep(script.verdict_s)
        if script.refusal is not None:
            del self.open[request.id]
            raise script.refusal
        return Outputs(self._outputs(request, script), tuple(answered(hint) for hint in request.hints))

    def finish(self, request_id: int, num_tokens: int) -> None:
        if request_id in self.open:
            self.finished.append((request_id, num_tokens))
            self.open.pop(request_id).put_nowait(Output(request_id, finish=FinishReason.ABORT))

    async def stats(self) -> EngineStats:
        return self.snapshot

    async def match(self, keys: bytes, num_tokens: int) -> PrefixMatch:
        if self.dead is not None:
            raise EngineDead(self.dead)
        found = self._found(split_keys(keys), num_tokens)
        return PrefixMatch(found, {"device": found})

    async def hint(self, tenant: str, session_id: str, actions: tuple[Hint, ...]) -> tuple[HintAnswer, ...]:
        if self.dead is not None:
            raise EngineDead(self.dead)
        self.hinted.append((tenant, session_id, actions))
        if not any((request.tenant, request.session_id) == (tenant, session_id) for request in self.requests):
            return tuple(HintAnswer(hint.kind, "ignored", f"no session {session_id!r} is known") for hint in actions)
        return tuple(answered(hint) for hint in actions)

    def outcome(self, request_id: int, reason: str, tools: tuple[str, ...]) -> None:
        self.outcomes.append((request_id, reason, tools))

    async def cache_report(self) -> CacheReport:
        if self.dead is not None:
            raise EngineDead(self.dead)
        return self.report

    async def wait_dead(self) -> str:
        await self._death.wait()
        assert self.dead is not None
        return self.dead

    def die(self, reason: str) -> None:
        self.dead = reason
        self._death.set()
        for request_id, queue in list(self.open.items()):
            error = ErrorInfo.of(EngineDead(reason))
            queue.put_nowait(Output(request_id, finish=FinishReason.ERROR, error=error))
        self.open.clear()

    async def _outputs(self, request: Request, script: Script) -> AsyncIterator[Output]:
        """Ends at once with whatever `finish` or `die` put into the request's queue."""
        queue = self.open[request.id]
        cached = self._look_up(request)
        pause = script.prefill_s
        try:
            for output in self._written(request, script, cached):
                if pause or not queue.empty():
                    try:
                        async with asyncio.timeout(pause):
                            yield await queue.get()
                            return
                    except TimeoutError:
                        pass
                pause = script.delay_s
                yield output
        finally:
            self.open.pop(request.id, None)

    def _look_up(self, request: Request) -> int:
        keys = split_keys(request.keys)
        found = self._found(keys, len(request.token_ids) // 4)
        self.cache.update(keys)
        return found

    def _found(self, keys: list[bytes], num_tokens: int) -> int:
        hit = next((at for at, key in enumerate(keys) if key not in self.cache), len(keys))
        return min(hit, (num_tokens - 1) // BLOCK) * BLOCK

    def _written(self, request: Request, script: Script, cached: int) -> list[Output]:
        params, outputs, pending = request.sampling, [], list[int]()
        for at, token in enumerate(script.tokens):
            if script.error_after == at:
                error = ErrorInfo("step_failed", "The step failed.")
                return [*outputs, Output(request.id, finish=FinishReason.ERROR, error=error)]
            pending.append(token)
            stops = token in params.stop_token_ids and at >= params.min_tokens
            full = at + 1 == params.max_tokens
            reason = FinishReason.STOP if stops else FinishReason.LENGTH if full else None
            if reason or len(pending) == script.per_output or at + 1 == len(script.tokens):
                outputs.append(
                    Output(
                        request.id,
                        tuple(pending),
                        tuple(_logprobs(each, params.logprobs) for each in pending) if params.logprobs >= 0 else (),
                        reason or (FinishReason.LENGTH if at + 1 == len(script.tokens) else None),
                        token if stops else None,
                        num_cached_tokens=cached,
                    )
                )
                pending = []
            if reason:
                break
        return outputs


def _logprobs(token: int, count: int) -> TokenLogprobs:
    """The chosen token is the second most likely; the least likely has no chance at all."""
    others = [(token + 1, -0.25), (token, -1.5), (token + 2, float("-inf"))]
    return TokenLogprobs(-1.5, tuple(others[:count]))
