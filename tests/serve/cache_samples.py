"""A made-up engine in the middle of its day: three tiers, two dozen agents at various depths of their work. `LiveDay`
moves on by itself, second by second, always the same way for one seed."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, field
import random

from prometheus_client.parser import text_string_to_metric_families

from samovar.core.stats import CacheReport, EngineStats, SessionReport, TierReport
from tests.serve.asgi import Server

BLOCK = 16
BLOCK_BYTES = 2 << 20
CAPACITY = {"device": 600_000, "host": 1_000_000, "disk": 3_000_000}
"""Tokens."""
Samples = dict[tuple[str, tuple[tuple[str, str], ...]], float]
"""Of /metrics: name and labels, but those that every metric has, to value."""
PREFILL_PER_S = 8_200.0
PROJECTS = ("checkout-refactor", "flaky-ci", "i18n", "pg-migration", "search-index", "billing", "docs", "sso")


@dataclass
class Agent:
    session_id: str
    parent: str = ""
    num_tokens: int = 4_000
    used_s: float = 0.0
    runs_until_s: float = -1.0
    returns_s: float | None = None
    kept_until_s: float | None = None
    why: str = ""

    def running(self, now: float) -> bool:
        return now < self.runs_until_s


@dataclass
class LiveDay:
    """`second()` moves one second on; `stats()` and `report()` are what an engine would say then."""

    seed: int = 1
    now: float = 10_000.0
    agents: list[Agent] = field(default_factory=list)
    sums: dict[str, float] = field(default_factory=dict)
    by_tier: dict[str, int] = field(default_factory=lambda: dict.fromkeys(CAPACITY, 0))
    missed: dict[str, int] = field(default_factory=dict)
    missed_requests: dict[str, int] = field(default_factory=dict)

    def __post_init__(self) -> None:
        self.chance = random.Random(self.seed)
        for at in range(16):
            main = Agent(f"claude-{PROJECTS[at % 8]}-{at:02d}", num_tokens=self.chance.randrange(8, 170) * 1000)
            self.agents.append(main)
            for sub in range((0, 0, 3, 0, 2, 0, 4)[at % 7] if at < 9 else 0):
                tokens = self.chance.randrange(6, 60) * 1000
                self.agents.append(Agent(f"{main.session_id}/sub-{sub + 1}", main.session_id, tokens))
        for agent in self.agents:
            agent.used_s = self.now - self.chance.expovariate(1 / 400)
            self._ends(agent, agent.used_s)

    def seconds(self, count: int) -> None:
        for _ in range(count):
            self.second()

    def second(self) -> None:
        self.now += 1.0
        for agent in self.agents:
            if agent.runs_until_s < self.now - 1.0 and self.chance.random() < self._eagerness(agent):
                self._turn(agent)
            elif agent.running(self.now):
                self._add("generated", self.chance.randrange(25, 45))
                agent.used_s = self.now
            elif self.now - 1.0 <= agent.runs_until_s:
                self._ends(agent, self.now)
            elif agent.returns_s is not None and self.now > agent.returns_s + 120:
                agent.why, agent.returns_s = "not back when expected", None

    def _eagerness(self, agent: Agent) -> float:
        """Some work all the time, some come back now and then."""
        return (0.05, 0.006, 0.001)[self.agents.index(agent) % 3]

    def _turn(self, agent: Agent) -> None:
        cached = 0
        for tier, tokens in self._fastest(agent).items():
            self.by_tier[tier] += tokens
            cached += tokens
        lost = agent.num_tokens - cached
        new = self.chance.randrange(400, 5600)
        agent.num_tokens = (agent.num_tokens + new) // BLOCK * BLOCK
        self._add("prompt", cached + lost + new)
        self._add("cached", cached)
        self._add("ceiling", cached + lost)
        self._miss("evicted" if lost else self.chance.choice(("new", "new", "new", "cut", "cold")), lost + new)
        agent.used_s, agent.returns_s = self.now, None
        agent.runs_until_s = self.now + self.chance.randrange(4, 22)

    def _ends(self, agent: Agent, now: float) -> None:
        children = [one for one in self.agents if one.parent == agent.session_id]
        agent.kept_until_s = now + 300 if self.chance.random() < 0.3 else None
        if children and self.chance.random() < 0.6:
            agent.why, agent.returns_s = f"waits for {len(children)} sub-agents", now + 40
        elif self.chance.random() < 0.7:
            tool, after = self.chance.choice((("Bash", 9), ("Read", 2), ("WebFetch", 14), ("Task", 75)))
            agent.why, agent.returns_s = f"called {tool}", now + after
        elif self.chance.random() < 0.7:
            agent.why, agent.returns_s = "answered its user", now + 221
        else:
            agent.why, agent.returns_s = "closed by its client", None

    def _fastest(self, agent: Agent) -> dict[str, int]:
        heads = self._heads()[agent.session_id]
        found, covered = {}, 0
        for tier in CAPACITY:
            found[tier] = max(0, heads[tier] - covered)
            covered = max(covered, heads[tier])
        return found

    def _heads(self) -> dict[str, dict[str, int]]:
        """The latest used has most of every tier."""
        left = dict(CAPACITY)
        heads: dict[str, dict[str, int]] = {}
        for agent in sorted(self.agents, key=lambda one: -one.used_s):
            old = self.now - agent.used_s
            heads[agent.session_id] = {tier: min(left[tier], agent.num_tokens) // BLOCK * BLOCK for tier in CAPACITY}
            if old > 600 and heads[agent.session_id]["disk"]:
                # What was written late is not whole.
                heads[agent.session_id]["disk"] = heads[agent.session_id]["disk"] * 2 // 3 // BLOCK * BLOCK
            for tier in CAPACITY:
                left[tier] -= heads[agent.session_id][tier]
        return heads

    def _add(self, name: str, count: int) -> None:
        self.sums[name] = self.sums.get(name, 0) + count

    def _miss(self, reason: str, tokens: int) -> None:
        self.missed[reason] = self.missed.get(reason, 0) + tokens
        self.missed_requests[reason] = self.missed_requests.get(reason, 0) + 1

    def stats(self) -> EngineStats:
        prompt, cached = int(self.sums.get("prompt", 0)), int(self.sums.get("cached", 0))
        loaded = (self.by_tier["host"] + self.by_tier["disk"]) // BLOCK
        return EngineStats(
            num_running=sum(agent.running(self.now) for agent in self.agents),
            num_waiting=int(self.now) % 3,
            prompt_tokens=prompt,
            prompt_tokens_cached=cached,
            prompt_tokens_computed=prompt - cached,
            prefix_queries_tokens=prompt,
            prefix_hits_tokens=cached,
            cached_tokens_by_tier=dict(self.by_tier),
            generation_tokens=int(self.sums.get("generated", 0)),
            ceiling_tokens=int(self.sums.get("ceiling", 0)),
            regretted_tokens=self.missed.get("evicted", 0),
            evicted_blocks=18_320,
            loaded_blocks=loaded,
            prefetched_blocks=loaded // 3,
            wasted_load_blocks=loaded // 40,
            declined_load_blocks=212,
            failed_load_blocks=3,
            failed_load_reasons={"checksum": 1, "late": 2},
            saved_s=cached / PREFILL_PER_S,
            prefill_tokens_per_s=PREFILL_PER_S,
            preemptions=4,
            shared_tokens=31_200,
            recomputed_tokens=5_120,
            hints={"retain:applied": 31, "resume_in:applied": 112, "resume_in:clipped": 2, "prefetch:ignored": 1},
            misses=dict(self.missed_requests),
            missed_tokens=dict(self.missed),
        )

    def report(self) -> CacheReport:
        heads = self._heads()
        rows = tuple(self._rows(heads))
        return CacheReport("agent", BLOCK, tuple(self._tiers(heads)), rows, len(rows))

    def _rows(self, heads: dict[str, dict[str, int]]) -> Iterator[SessionReport]:
        for agent in sorted(self.agents, key=lambda one: -one.used_s):
            running = agent.running(self.now)
            yield SessionReport(
                session_id=agent.session_id,
                tenant="",
                parent_session_id=agent.parent,
                stream=f"\0{agent.session_id}",
                num_tokens=agent.num_tokens // BLOCK * BLOCK,
                tiers=heads[agent.session_id],
                running=running,
                idle_s=0.0 if running else self.now - agent.used_s,
                return_in_s=None if agent.returns_s is None else max(0.0, agent.returns_s - self.now),
                kept_for_s=None if agent.kept_until_s is None else max(0.0, agent.kept_until_s - self.now) or None,
                why="" if running else agent.why,
            )

    def _tiers(self, heads: dict[str, dict[str, int]]) -> Iterator[TierReport]:
        rates = {"device": 0.0, "host": 5.8e9, "disk": 1.3e9}
        failed = {"device": {}, "host": {}, "disk": {"checksum": 1, "late": 2}}
        for tier, capacity in CAPACITY.items():
            used = sum(head[tier] for head in heads.values()) // BLOCK
            yield TierReport(
                tier=tier,
                num_blocks=capacity // BLOCK,
                num_used_blocks=used,
                block_bytes=BLOCK_BYTES,
                capacity_bytes=capacity // BLOCK * BLOCK_BYTES,
                physical_bytes=used * BLOCK_BYTES,
                stored_blocks=2 * used,
                loaded_blocks=self.by_tier[tier] // BLOCK,
                evicted_blocks=used // 2,
                failed=failed[tier],
                not_yet_durable_blocks=38 if tier == "disk" else 0,
                bytes_per_s=rates[tier],
                suspensions=2 if tier == "disk" else 0,
            )


def report(*sessions: SessionReport, tiers: tuple[TierReport, ...] = ()) -> CacheReport:
    return CacheReport("agent", BLOCK, tiers, sessions, len(sessions))


async def samples(server: Server) -> Samples:
    page = (await server.client.get("/metrics")).text
    own = {("engine", "0"), ("model_name", "tea")}
    return {
        (sample.name, tuple(sorted(sample.labels.items() - own))): sample.value
        for family in text_string_to_metric_families(page)
        for sample in family.samples
    }
