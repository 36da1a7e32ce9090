"""The end of a run: what still runs is cut off, what is in flight ends, and everything is checked and written down."""

from __future__ import annotations

from collections.abc import Iterable, Sequence

from samovar.sim.checks import check_ceiling, check_ranks, check_timing, check_tokens
from samovar.sim.live import Live
from samovar.sim.outcome import TurnTiming
from samovar.sim.rank import Rank
from samovar.workload.metrics_record import RequestRecord


def cut_off(ranks: Sequence[Rank], lives: Iterable[Live], now: float) -> None:
    """As clients that go away."""
    for live in lives:
        if live.rank >= 0:
            ranks[live.rank].finish(live, now)


def drain(ranks: Sequence[Rank], now: float) -> None:
    """Until nothing is in flight and every transfer has ended. No step begins; time goes on for transfers alone."""
    for rank in ranks:
        rank.catch_up()
    while True:
        for rank in ranks:
            while rank.in_flight:
                rank.apply_first(now)
        working = [rank for rank in ranks if rank.engine.has_work]
        if not working:
            return
        planned = [rank.plan(0, None, now) for rank in working]
        if any(plan is not None for plan in planned):
            continue
        ends = [end for rank in ranks if rank.mover is not None and (end := rank.mover.next_end()) is not None]
        assert ends, f"ranks {[rank.number for rank in working]} wait for transfers, and none is under way"
        now = max(now, min(ends))
        for rank in ranks:
            rank.transferred(now)


def write_down(
    ranks: Sequence[Rank],
    lives: Sequence[Live],
    began_s: float,
    ended_s: float,
    others_s: Sequence[float],
    output_token_s: float,
    concurrency: int,
) -> tuple[tuple[RequestRecord, ...], tuple[TurnTiming, ...]]:
    """Records and timings of all requests, checked. `others_s`: each rank's when the run ended."""
    stats = [rank.engine.stats() for rank in ranks]
    records: list[RequestRecord] = []
    timings: list[TurnTiming] = []
    for live in lives:
        timing = live.timing(ended_s, others_s[live.rank] if live.rank >= 0 else 0.0)
        record = live.record(began_s, ended_s, output_token_s, concurrency)
        check_timing(live, timing, record.end_s - record.start_s)
        if live.rank >= 0:
            check_tokens(live, stats[live.rank])
        records.append(record)
        timings.append(timing)
    check_ceiling(lives)
    check_ranks(ranks, stats)
    return tuple(records), tuple(timings)
