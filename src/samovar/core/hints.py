"""What a client's hints do: they are evidence for the policy, orders to the tiers at most, and never a lock."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace

from samovar.core.board import Board
from samovar.core.prefetch import schedule_prefetch
from samovar.core.streams import Stream
from samovar.policy.hints import Hint, HintAnswer

LONGEST_S = 86_400.0
MOST_CHILDREN = 1000
MOST_PRIORITY = 1_000_000
MAX_PREFETCHES = 10_000
"""Due prefetches that are remembered; the rest of a flood is ignored."""


def apply_hints(board: Board, stream: Stream, actions: Sequence[Hint], now: float) -> list[HintAnswer]:
    """One answer per action, in order."""
    return [_count(board, _apply(board, stream, hint, now)) for hint in actions]


def hint_session(
    board: Board, tenant: str, session_id: str, actions: Sequence[Hint], now: float
) -> tuple[HintAnswer, ...]:
    """Hints on a session as a whole: what it keeps or gives up is every stream's, when it comes back its main one's.
    The end of a session is the end of its sub-agents."""
    streams = board.streams.of_session(tenant, session_id)
    answers: list[HintAnswer] = []
    for hint in actions:
        if not streams:
            answers.append(_count(board, HintAnswer(hint.kind, "ignored", f"no session {session_id!r} is known")))
            continue
        whole = hint.kind in ("retain", "release", "demote", "priority")
        concerned = streams if whole else streams[:1]
        if hint.kind == "release":
            concerned = board.streams.with_descendants(streams)
        told = [_apply(board, stream, hint, now) for stream in concerned]
        answers.append(_count(board, told[0]))
    return tuple(answers)


def judge(board: Board, actions: Sequence[Hint]) -> tuple[HintAnswer, ...]:
    """What a request's hints will be answered with: they count from its end, and their sender wants to know now."""
    answers: list[HintAnswer] = []
    for hint in actions:
        hint, clipped = _clip(hint)
        answer = _tier_answer(board, hint) or board.policy.hinted("", hint, 0.0)
        answers.append(_say(answer, clipped))
    return tuple(answers)


def _count(board: Board, answer: HintAnswer) -> HintAnswer:
    board.counters.hints[f"{answer.kind}:{answer.status}"] += 1
    return answer


def _apply(board: Board, stream: Stream, hint: Hint, now: float) -> HintAnswer:
    hint, clipped = _clip(hint)
    if hint.kind == "retain" and (over := _over_budget(board, stream, now)):
        return HintAnswer(hint.kind, "ignored", over)
    answer = board.policy.hinted(stream.name, hint, now)
    own = _tier_answer(board, hint)
    if own is not None and own.status == "applied":
        _move(board, stream, hint, now)
    if hint.kind == "retain" and answer.status != "ignored":
        stream.retained_until_s = now + hint.seconds
    if hint.kind == "resume_in" and board.connector is not None and len(board.prefetches) < MAX_PREFETCHES:
        # "Within": it may come at any moment.
        schedule_prefetch(board, stream, now if hint.bound == "at_most" else now + hint.seconds)
    return _say(own or answer, clipped)


def _tier_answer(board: Board, hint: Hint) -> HintAnswer | None:
    """Of the actions that move bytes or end a session, whatever the policy thinks of them; None for the others."""
    if hint.kind == "release":
        return HintAnswer(hint.kind, "applied")
    if hint.kind not in ("demote", "prefetch"):
        return None
    if board.connector is None:
        return HintAnswer(hint.kind, "ignored", "there is no tier below the device")
    return HintAnswer(hint.kind, "applied")


def _move(board: Board, stream: Stream, hint: Hint, now: float) -> None:
    if hint.kind == "prefetch":
        if len(board.prefetches) < MAX_PREFETCHES:
            schedule_prefetch(board, stream, now)
        return
    keys = stream.keys()
    board.kv.index.supersede(keys, stream.name)
    if hint.kind == "release":
        stream.released, stream.retained_until_s = True, None
        if board.connector is not None and keys:
            board.connector.turn_ended(stream.name, tuple(keys), keep=False, now=now)


def _over_budget(board: Board, stream: Stream, now: float) -> str:
    """A tenant may ask to keep a share of what there is; "" while this stream fits in."""
    tiers = board.connector.report() if board.connector is not None else ()
    blocks = board.config.num_blocks + sum(tier.num_blocks for tier in tiers)
    budget = int(blocks * board.config.max_retained_share)
    kept = sum(
        other.num_blocks
        for other in board.streams.latest()
        if other is not stream and other.tenant == stream.tenant and (other.retained_until_s or 0.0) > now
    )
    if kept + stream.num_blocks <= budget:
        return ""
    return f"{kept} blocks of yours are retained and this session has {stream.num_blocks}, the budget is {budget}"


def _clip(hint: Hint) -> tuple[Hint, str]:
    if hint.seconds > LONGEST_S:
        return replace(hint, seconds=LONGEST_S), f"{LONGEST_S:.0f} s is the limit"
    most = MOST_CHILDREN if hint.kind == "children" else MOST_PRIORITY
    if abs(hint.count) > most:
        return replace(hint, count=max(-most, min(hint.count, most))), f"{most} is the limit"
    return hint, ""


def _say(answer: HintAnswer, clipped: str) -> HintAnswer:
    if clipped and answer.status == "applied":
        return HintAnswer(answer.kind, "clipped", clipped)
    return answer
