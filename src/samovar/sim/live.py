"""One request of a simulated run: when what happened to it, and what that makes of its record and its timing."""

from __future__ import annotations

from dataclasses import dataclass

from samovar.base.ids import RequestId
from samovar.sim.outcome import TurnTiming
from samovar.workload.metrics_record import RequestRecord
from samovar.workload.replay import Launch

_CUT = "cut off at the end of the run"


@dataclass(slots=True)
class Live:
    """Times are the simulation's seconds. `rank` is where it runs, -1 as long as nobody has chosen."""

    id: RequestId
    launch: Launch
    keys: bytes
    ceiling_tokens: int
    num_prompt: int
    start_s: float
    carry: float
    """What of its mean tokens per step was not handed out yet, 0..1."""
    rank: int = -1

    core_s: float | None = None
    """It reached the engine core."""
    first_step_s: float | None = None
    """Its first step began."""
    first_token_s: float | None = None
    """The step with its first token ended."""
    last_token_s: float | None = None
    end_s: float | None = None
    """The client has all of it."""
    loading_since_s: float | None = None
    load_s: float = 0.0
    others_before_s: float = 0.0
    """Its rank's `others_s` when its first step began, at its first token and at its last."""
    others_at_token_s: float = 0.0
    others_at_last_s: float = 0.0

    num_starts: int = 0
    """How often the runner was told of it; more than once after preemptions."""
    gave_up_load: bool = False
    computed_tokens: int = 0
    """Of its prompt, each time they were computed."""
    cached_tokens: int | None = None
    output_tokens: int = 0
    error: str = ""
    overflow: bool = False

    def tokens_of_step(self, mean: float, most: int) -> int:
        """How many tokens a decode step of it gives: an exact running fraction of the mean, at most `most`."""
        exact = self.carry + mean
        count = int(exact)
        self.carry = exact - count
        return max(1, min(count, most, self.launch.output_tokens - self.output_tokens))

    # -- at the end ------------------------------------------------------------------------------------------------

    def timing(self, now: float, others_now_s: float) -> TurnTiming:
        """`now` and its rank's `others_s` are used for what had not ended when the run did."""
        end = now if self.end_s is None else self.end_s
        if self.core_s is None or self.error:
            return TurnTiming(front_end_s=end - self.start_s)
        last = end if self.end_s is None or self.last_token_s is None else self.last_token_s
        front_end_s = self.core_s - self.start_s + end - last
        load_s = self.load_s
        if self.first_step_s is None:
            load_s += last - self.loading_since_s if self.loading_since_s is not None else 0.0
            return TurnTiming(front_end_s, last - self.core_s - load_s, load_s)
        queue_s = self.first_step_s - self.core_s - load_s
        others_last_s = others_now_s if self.end_s is None else self.others_at_last_s
        first = last if self.first_token_s is None else self.first_token_s
        others_first_s = others_last_s if self.first_token_s is None else self.others_at_token_s
        return TurnTiming(
            front_end_s,
            queue_s,
            load_s,
            first - self.first_step_s - (others_first_s - self.others_before_s),
            last - first - (others_last_s - others_first_s),
            others_last_s - self.others_before_s,
        )

    def record(self, began_s: float, now: float, output_token_s: float, concurrency: int) -> RequestRecord:
        """Times count from `began_s`; `now` is the end of the run for a request that had not ended."""
        launch = self.launch
        cut = self.end_s is None
        end_s = now if self.end_s is None else self.end_s
        first_s = None if self.first_token_s is None else min(end_s, self.first_token_s + output_token_s)
        last_s = None if self.last_token_s is None else end_s if not cut else min(end_s, self.last_token_s)
        return RequestRecord(
            concurrency=concurrency,
            lane=launch.lane,
            tree=launch.script.tree.id,
            visit=launch.visit,
            stream=launch.call.stream,
            turn=launch.call.turn,
            role=launch.call.role,
            phase=launch.phase,
            status="cut" if cut else "failed" if self.error else "ok",
            error=_CUT if cut else self.error,
            due_s=launch.due_s - began_s,
            start_s=self.start_s - began_s,
            first_s=None if first_s is None else first_s - began_s,
            last_s=None if last_s is None else last_s - began_s,
            end_s=end_s - began_s,
            planned_prompt_tokens=self.num_prompt,
            prompt_tokens=self.num_prompt,
            cached_tokens=None if cut else self.cached_tokens,
            ceiling_tokens=self.ceiling_tokens,
            planned_output_tokens=launch.output_tokens,
            output_tokens=self.output_tokens,
            tree_turns=len(launch.script.calls),
        )
