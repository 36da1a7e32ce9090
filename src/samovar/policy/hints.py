"""What a client may say of a session's future, and what it is answered.

The actions are those of the `kv_hints` envelope (vLLM RFC 53421, 57103). A hint is evidence for a policy, never an
order: no request is refused and no block is pinned because of one.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Literal

HintKind = Literal["retain", "resume_in", "release", "demote", "prefetch", "priority", "children"]
HINT_KINDS: tuple[HintKind, ...] = ("retain", "resume_in", "release", "demote", "prefetch", "priority", "children")

Bound = Literal["exact", "at_most", "at_least"]


@dataclass(frozen=True, slots=True)
class Hint:
    """One action on a session.

    - `retain`: worth keeping for `seconds`;
    - `resume_in`: the next turn comes in `seconds` (by `bound`: at that time, within it, or not before it);
    - `release`: the session is over;
    - `demote`: not wanted on the device for now, a lower tier will do;
    - `prefetch`: bring it up to the device now;
    - `priority`: `count` orders sessions of one tenant, lower is more important, as a request's priority does;
    - `children`: `count` sub-agents are at work, and the next turn comes when the last one ends; 0: none any more.
    """

    kind: HintKind
    seconds: float = 0.0
    count: int = 0
    bound: Bound = "exact"


@dataclass(frozen=True, slots=True)
class HintAnswer:
    """What became of one action. `clipped`: applied with a smaller value, which `reason` names."""

    kind: HintKind
    status: Literal["applied", "clipped", "ignored"]
    reason: str = ""
