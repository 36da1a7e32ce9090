"""An engine as every API sees it, with each finished call written down (`--record-trace`)."""

from __future__ import annotations

from collections.abc import AsyncIterator, Callable
from dataclasses import dataclass
import time

from samovar.base.ids import RequestId
from samovar.base.keys import TOKEN_BYTES
from samovar.core.events import FinishReason, Output
from samovar.core.ports import Answered, EngineInfo, PrefixMatch, Service
from samovar.core.request import Request
from samovar.core.stats import CacheReport, EngineStats
from samovar.policy.hints import Hint, HintAnswer
from samovar.workload.recording import RecordedCall, Recorder

_STOPS = {
    FinishReason.STOP: "end_turn",
    FinishReason.LENGTH: "max_tokens",
    FinishReason.ABORT: "aborted",
    FinishReason.ERROR: "error",
}


@dataclass(slots=True)
class _Open:
    request: Request
    start_s: float
    tokens: int = 0
    first_s: float | None = None


class _Watched(AsyncIterator[Output]):
    """Outputs on their way through, with what the engine answered to their request's hints."""

    def __init__(self, outputs: AsyncIterator[Output], hints: tuple[HintAnswer, ...]) -> None:
        self._outputs = outputs
        self.hints = hints

    async def __anext__(self) -> Output:
        return await anext(self._outputs)


class RecordedService:
    """Passes everything on unchanged. Calls the core refused are not recorded; those a client broke off are, with the
    tokens they had. Used on one event loop, as the service is."""

    def __init__(
        self, service: Service, recorder: Recorder, model: str, clock: Callable[[], float] = time.monotonic
    ) -> None:
        self._service = service
        self._recorder = recorder
        self._model = model
        self._clock = clock
        self._open: dict[RequestId, _Open] = {}

    @property
    def info(self) -> EngineInfo:
        return self._service.info

    @property
    def dead(self) -> str | None:
        return self._service.dead

    async def wait_dead(self) -> str:
        return await self._service.wait_dead()

    async def stats(self) -> EngineStats:
        return await self._service.stats()

    async def match(self, keys: bytes, num_tokens: int) -> PrefixMatch:
        return await self._service.match(keys, num_tokens)

    async def hint(self, tenant: str, session_id: str, actions: tuple[Hint, ...]) -> tuple[HintAnswer, ...]:
        return await self._service.hint(tenant, session_id, actions)

    def outcome(self, request_id: RequestId, reason: str, tools: tuple[str, ...]) -> None:
        self._service.outcome(request_id, reason, tools)

    async def cache_report(self) -> CacheReport:
        return await self._service.cache_report()

    async def submit(self, request: Request) -> AsyncIterator[Output]:
        start_s = self._clock()
        outputs = await self._service.submit(request)
        self._open[request.id] = _Open(request, start_s)
        hints = outputs.hints if isinstance(outputs, Answered) else ()
        return _Watched(self._watched(request.id, outputs), hints)

    def finish(self, request_id: RequestId, num_tokens: int) -> None:
        self._end(request_id, "stopped", num_tokens)
        self._service.finish(request_id, num_tokens)

    async def _watched(self, request_id: RequestId, outputs: AsyncIterator[Output]) -> AsyncIterator[Output]:
        try:
            async for output in outputs:
                call = self._open.get(request_id)
                if call is not None and output.token_ids:
                    call.tokens += len(output.token_ids)
                    if call.first_s is None:
                        call.first_s = self._clock()
                if output.finish is not None and call is not None:
                    self._end(request_id, _STOPS[output.finish], call.tokens)
                yield output
        finally:
            self._end(request_id, "aborted", None)
            close = getattr(outputs, "aclose", None)
            if close is not None:
                await close()

    def _end(self, request_id: RequestId, stop: str, num_tokens: int | None) -> None:
        """Records the call, once."""
        call = self._open.pop(request_id, None)
        if call is None:
            return
        request = call.request
        self._recorder.add(
            RecordedCall(
                tenant=request.tenant,
                session_id=request.session_id,
                parent_session_id=request.parent_session_id,
                keys=request.keys,
                input_tokens=len(request.token_ids) // TOKEN_BYTES,
                output_tokens=call.tokens if num_tokens is None else num_tokens,
                start_s=call.start_s,
                end_s=self._clock(),
                model=self._model,
                stop=stop,
                ttft_s=None if call.first_s is None else call.first_s - call.start_s,
            )
        )
