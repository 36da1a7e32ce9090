"""`GET /v1/cache`: what the cache holds and gave, and the caller's own conversations.

Sums over everybody are as open as `/metrics`; conversations are shown to their own tenant only.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence
from hashlib import sha256
import math
import re

from fastapi import APIRouter
from starlette.requests import Request
from starlette.responses import Response

from samovar.base.errors import InvalidField
from samovar.base.shown import shown
from samovar.core.stats import CacheReport, EngineStats, SessionReport, TierReport
from samovar.serve.cache_fields import (
    CacheState,
    Evictions,
    Hits,
    Loads,
    Misses,
    Requests,
    SessionState,
    TierState,
    Tokens,
    answer_schema,
)
from samovar.serve.cache_figures import Snapshot, hints_by_kind, hit_rates
from samovar.serve.documents import Responses, answers
from samovar.serve.json_output import JsonResponse
from samovar.serve.snapshots import Snapshots
from samovar.serve.state import ServerState

MAX_SESSIONS = 200
"""As many as the engine reports."""
DEFAULT_SESSIONS = 50
_NUMBER = re.compile(r"[0-9]{1,4}")
_PARAMETER = {
    "name": "sessions",
    "in": "query",
    "required": False,
    "description": "How many conversations to list, the latest first.",
    "schema": {"type": "integer", "minimum": 0, "maximum": MAX_SESSIONS, "default": DEFAULT_SESSIONS},
}


def cache_routes(state: ServerState, snapshots: Snapshots) -> APIRouter:
    router = APIRouter()

    @router.get(
        "/v1/cache", responses=_documented(), openapi_extra={"parameters": [_PARAMETER]}, response_class=Response
    )
    async def cache(request: Request) -> Response:
        tenant = state.auth.tenant(request.headers)
        limit = sessions_wanted(request.query_params.get("sessions"))
        everyone = not state.config.api_keys
        found = cache_state(await snapshots.recent(), state.config.public_model, None if everyone else tenant, limit)
        return JsonResponse(found, headers={"cache-control": "no-store"})

    return router


def sessions_wanted(text: str | None) -> int:
    """Raises InvalidField."""
    if text is None:
        return DEFAULT_SESSIONS
    if not _NUMBER.fullmatch(text) or int(text) > MAX_SESSIONS:
        raise InvalidField(
            f"sessions: must be a whole number from 0 to {MAX_SESSIONS}; got {shown(text)}.", param="sessions"
        )
    return int(text)


def cache_state(snapshot: Snapshot, model: str, tenant: str | None, limit: int) -> CacheState:
    """`tenant` None: everybody's conversations. `limit`: how many of them at most."""
    stats, report = snapshot.stats, snapshot.report
    own = [session for session in report.sessions if tenant is None or session.tenant == tenant]
    return CacheState(
        time_s=snapshot.at_s,
        model=model,
        policy=report.policy,
        block_size=report.block_tokens,
        requests=Requests(running=stats.num_running, waiting=stats.num_waiting, preemptions=stats.preemptions),
        tokens=Tokens(
            prompt=stats.prompt_tokens,
            cached=stats.prompt_tokens_cached,
            computed=stats.prompt_tokens_computed,
            recomputed=stats.recomputed_tokens,
            generated=stats.generation_tokens,
            shared=stats.shared_tokens,
        ),
        hits=_hits(stats),
        misses={
            reason: Misses(requests=stats.misses.get(reason, 0), tokens=stats.missed_tokens.get(reason, 0))
            for reason in sorted(stats.misses.keys() | stats.missed_tokens.keys())
        },
        loads=_loads(stats),
        evictions=Evictions(blocks=stats.evicted_blocks, regretted_tokens=stats.regretted_tokens),
        saved_s=_finite(stats.saved_s) or 0.0,
        prefill_tokens_per_s=_measured(stats.prefill_tokens_per_s),
        hints=hints_by_kind(stats.hints),
        tiers=tuple(_tier(tier, stats) for tier in report.tiers),
        num_sessions=report.num_sessions if tenant is None else len(own),
        sessions=_sessions(own[:limit], report),
    )


def _hits(stats: EngineStats) -> Hits:
    rate, ceiling = hit_rates(stats)
    return Hits(
        rate=rate, rate_ceiling=ceiling, ceiling_tokens=stats.ceiling_tokens, by_tier=dict(stats.cached_tokens_by_tier)
    )


def _loads(stats: EngineStats) -> Loads:
    return Loads(
        loaded_blocks=stats.loaded_blocks,
        prefetched_blocks=stats.prefetched_blocks,
        wasted_blocks=stats.wasted_load_blocks,
        declined_blocks=stats.declined_load_blocks,
        failed_blocks=stats.failed_load_blocks,
        failed_by_reason=dict(stats.failed_load_reasons),
    )


def _tier(tier: TierReport, stats: EngineStats) -> TierState:
    return TierState(
        tier=tier.tier,
        capacity_blocks=tier.num_blocks,
        used_blocks=tier.num_used_blocks,
        block_bytes=tier.block_bytes,
        capacity_bytes=tier.capacity_bytes,
        physical_bytes=tier.physical_bytes,
        hit_tokens=stats.cached_tokens_by_tier.get(tier.tier, 0),
        loaded_blocks=tier.loaded_blocks,
        stored_blocks=tier.stored_blocks,
        promoted_blocks=tier.promoted_blocks,
        recovered_blocks=tier.recovered_blocks,
        evicted_blocks=tier.evicted_blocks,
        forgotten_blocks=tier.forgotten_blocks,
        failed_blocks=dict(tier.failed),
        not_yet_durable_blocks=tier.not_yet_durable_blocks,
        bytes_per_s=_measured(tier.bytes_per_s),
        suspended=tier.suspended,
        suspensions=tier.suspensions,
    )


def _sessions(rows: Sequence[SessionReport], report: CacheReport) -> tuple[SessionState, ...]:
    names = _stream_names(rows)
    order = [tier.tier for tier in report.tiers]
    return tuple(
        _session(row, name, parent, order) for row, name, parent in zip(rows, names, _parents(rows, names), strict=True)
    )


def _session(row: SessionReport, name: str, parent: str | None, order: Sequence[str]) -> SessionState:
    fastest = fastest_tiers(row, order)
    return SessionState(
        stream=name,
        parent_stream=parent,
        session_id=row.session_id,
        parent_session_id=row.parent_session_id,
        num_tokens=row.num_tokens,
        tiers=dict(row.tiers),
        fastest=fastest,
        lost_tokens=row.num_tokens - sum(fastest.values()),
        running=row.running,
        idle_s=max(0.0, row.idle_s),
        return_in_s=_seconds_left(row.return_in_s),
        kept_for_s=_seconds_left(row.kept_for_s),
        why=row.why,
    )


def fastest_tiers(row: SessionReport, order: Sequence[str]) -> dict[str, int]:
    """Tokens by the fastest tier that has them. A tier has a head of the conversation, so a slower one adds what its
    head is longer by. `order`: fastest first."""
    found: dict[str, int] = {}
    covered = 0
    for tier in (*order, *sorted(row.tiers.keys() - set(order))):
        head = min(row.tiers.get(tier, 0), row.num_tokens)
        if head > covered:
            found[tier] = head - covered
            covered = head
    return found


def _stream_names(rows: Sequence[SessionReport]) -> list[str]:
    """Digests: an engine's name of a stream may contain the tenant. Never two alike."""
    names: list[str] = []
    seen = Counter[str]()
    for row in rows:
        given = f"{row.tenant}\0{row.session_id}\0{row.stream}"
        name = sha256(b"samovar stream\0" + given.encode("utf-8", "surrogatepass")).hexdigest()[:16]
        seen[name] += 1
        names.append(name if seen[name] == 1 else f"{name}-{seen[name]}")
    return names


def _parents(rows: Sequence[SessionReport], names: Sequence[str]) -> list[str | None]:
    """The row of each row's parent session, by name. Parents are a client's word: one that would close a cycle is left
    out."""
    mains: dict[tuple[str, str], int] = {}
    for at, row in enumerate(rows):
        if row.session_id and row.parent_session_id != row.session_id:
            mains.setdefault((row.tenant, row.session_id), at)
    above: list[int | None] = [None] * len(rows)
    for at, row in enumerate(rows):
        parent = mains.get((row.tenant, row.parent_session_id)) if row.parent_session_id else None
        step = parent
        while step is not None and step != at:
            step = above[step]
        if parent is not None and step is None:
            above[at] = parent
    return [None if at is None else names[at] for at in above]


def _finite(value: float | None) -> float | None:
    return value if value is not None and math.isfinite(value) else None


def _measured(rate: float) -> float | None:
    return _finite(rate) if rate > 0 else None


def _seconds_left(value: float | None) -> float | None:
    """None for what is not expected, or never comes."""
    found = _finite(value)
    return None if found is None else max(0.0, found)


def _documented() -> Responses:
    found = answers(400, 401, 429, 503)
    found[200] = {"description": "The state.", "content": {"application/json": {"schema": answer_schema()}}}
    return found
