"""What a client's hints do: they are evidence for the policy, orders to the tiers at most, and never a lock."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace

from samovar.core.board import Board
from samovar.core.prefetch import schedule_prefetch
from samovar.core.state import RequestState
from samovar.core.stream import Stream
from samovar.core.timetable import MOST_PER_TENANT
from samovar.policy.hints import Hint, HintAnswer

LONGEST_S = 86_400.0
MOST_CHILDREN = 1000
MOST_PRIORITY = 1_000_000


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
        told = [_apply(board, stream, hint, now) for stream in _concerned(board, streams, hint)]
        answers.append(_count(board, told[0]))
    return tuple(answers)


def _concerned(board: Board, streams: list[Stream], hint: Hint) -> list[Stream]:
    """At least one. What is said of a session after its end concerns those that have begun a turn since then."""
    if hint.kind == "release":
        return board.streams.with_descendants(streams)
    if hint.kind not in ("retain", "demote", "priority"):
        return streams[:1]
    return [stream for stream in streams if not stream.released] or streams


def judge(board: Board, state: RequestState, now: float) -> tuple[HintAnswer, ...]:
    """What a request's hints will be answered with: they count from its end, and their sender wants to know now. So the
    answer is of what is known now: that of the end is what counts."""
    request = state.request
    if not request.hints:
        return ()
    shared = request.session_is_shared
    stream = board.streams.likely(request.tenant, request.session_id, state.keys, shared=shared)
    answers: list[HintAnswer] = []
    released = False  # an earlier release is void once this turn begins, one among these hints is not
    for hint in request.hints:
        hint, clipped = _clip(hint)
        answer = _too_late(hint, released)
        answer = answer or _refusal(board, request.tenant, stream, len(state.keys), hint, now)
        answer = answer or _tier_answer(board, hint) or board.policy.hinted("", hint, now)
        answers.append(_say(answer, clipped))
        released = released or hint.kind == "release"
    return tuple(answers)


def give_up_device(board: Board, stream: Stream) -> None:
    """The blocks of its last turn are not wanted on the device: they go first, those still held once they are not."""
    board.kv.supersede(stream.keys(), 0, stream.name)


def _count(board: Board, answer: HintAnswer) -> HintAnswer:
    board.counters.hints[f"{answer.kind}:{answer.status}"] += 1
    return answer


def _apply(board: Board, stream: Stream, hint: Hint, now: float) -> HintAnswer:
    hint, clipped = _clip(hint)
    refusal = _too_late(hint, stream.released)
    refusal = refusal or _refusal(board, stream.tenant, stream, stream.num_blocks, hint, now)
    if refusal is not None:
        return refusal
    own = _tier_answer(board, hint)
    if own is not None and own.status == "ignored":
        return own
    answer = board.policy.hinted(stream.name, hint, now)
    if own is not None:
        _move(board, stream, hint, now)
    if hint.kind == "retain" and answer.status != "ignored":
        board.streams.retain(stream, now + hint.seconds)
    return _say(own or answer, clipped)


def _too_late(hint: Hint, released: bool) -> HintAnswer | None:
    """What a released session was made of goes first whatever is said of it: nothing but its next turn undoes that."""
    if not released or hint.kind == "release":
        return None
    return HintAnswer(hint.kind, "ignored", "the session was released, its next turn begins it anew")


def _refusal(
    board: Board, tenant: str, stream: Stream | None, num_blocks: int, hint: Hint, now: float
) -> HintAnswer | None:
    """A tenant has had its share; None while there is room. `num_blocks` of the stream."""
    reason = ""
    if hint.kind == "retain":
        reason = _over_budget(board, tenant, stream, num_blocks, now)
    elif (
        hint.kind in ("resume_in", "prefetch")
        and board.connector is not None
        and not board.prefetches.has_room(tenant, stream.name if stream is not None else "")
    ):
        reason = f"{MOST_PER_TENANT} sessions of yours are to be brought up already, which is the limit"
    return HintAnswer(hint.kind, "ignored", reason) if reason else None


def _tier_answer(board: Board, hint: Hint) -> HintAnswer | None:
    """Of the actions that move bytes or end a session, whatever the policy thinks of them; None for the others."""
    if hint.kind == "release":
        return HintAnswer(hint.kind, "applied")
    if hint.kind == "resume_in":
        moves = board.connector is not None and hint.seconds >= 0.0
        return HintAnswer(hint.kind, "applied") if moves else None
    if hint.kind not in ("demote", "prefetch"):
        return None
    if board.connector is None:
        return HintAnswer(hint.kind, "ignored", "there is no tier below the device")
    return HintAnswer(hint.kind, "applied")


def _move(board: Board, stream: Stream, hint: Hint, now: float) -> None:
    if hint.kind == "prefetch":
        schedule_prefetch(board, stream, now)
    elif hint.kind == "resume_in" and hint.bound == "at_most":
        board.prefetches.expect_within(stream.name, stream.tenant, now, hint.seconds)
    elif hint.kind == "resume_in":
        schedule_prefetch(board, stream, now + hint.seconds)
    elif hint.kind == "demote":
        stream.demoted = True
        give_up_device(board, stream)
    elif hint.kind == "release":
        stream.released = True
        board.streams.retain(stream, None)
        board.prefetches.cancel(stream.name)
        give_up_device(board, stream)
        if board.connector is not None and stream.turn:
            board.connector.turn_ended(stream.name, tuple(stream.keys()), keep=False, now=now)


def _over_budget(board: Board, tenant: str, stream: Stream | None, num_blocks: int, now: float) -> str:
    """A tenant may ask to keep a share of the largest tier; "" while this stream fits in. Tiers are not added up: what
    is in one is mostly in the one below it, too."""
    if board.retain_budget is None:
        tiers = board.connector.report() if board.connector is not None else ()
        largest = max(board.config.num_blocks, *(tier.num_blocks for tier in tiers), 0)
        board.retain_budget = int(largest * board.config.max_retained_share)
    kept = board.streams.retained_blocks(tenant, now, besides=stream)
    if kept + num_blocks <= board.retain_budget:
        return ""
    return f"{kept} blocks of yours are retained and this session has {num_blocks}, the budget is {board.retain_budget}"


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
