"""From a call of the replay to a request at an engine core, under the names the benchmark's client sends."""

from __future__ import annotations

from samovar.base.ids import RequestId
from samovar.sim.live import Live
from samovar.sim.prompt_keys import PromptKeys
from samovar.workload.agent_names import session_names
from samovar.workload.metrics_ceiling import InfiniteCache
from samovar.workload.prompts import seed_of
from samovar.workload.replay import Launch
from samovar.workload.session import outcome_word


class Arrivals:
    """Makes the requests of one run. Ids are the replay's."""

    def __init__(self, block_tokens: int, concurrency: int, seed: int) -> None:
        self._keys = PromptKeys(block_tokens, concurrency)
        self._cache = InfiniteCache(block_tokens)
        self._seed = seed
        self._name = f"simulated-c{concurrency}"

    def make(self, launch: Launch, now: float) -> Live:
        keys = self._keys.keys(launch)
        num_prompt = max(1, launch.call.recorded.input_tokens)
        ceiling = self._cache.look_up_keys(keys, num_prompt)
        carry = seed_of(self._seed, launch.id) / 2**64
        return Live(RequestId(launch.id), launch, keys, ceiling, num_prompt, now, carry)

    def session_ids(self, launch: Launch) -> tuple[str, str]:
        """The agent's session and its parent's, "" for none."""
        return session_names(self._name, launch)


def outcome_of(launch: Launch) -> str:
    """How the recorded answer ended, in the words of a server that has read it; "" when the trace does not tell."""
    return outcome_word(launch.call.recorded.stop)
