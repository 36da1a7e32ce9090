"""An engine process with tiers: what it keeps when it is told to end, and what its log proves."""

from __future__ import annotations

import asyncio
import json
import os
from pathlib import Path
import signal

from msgspec.structs import replace
import pytest
from tests.runner.conftest import VOCAB, Tiny
from tests.runner.test_process import BLOCK, collect, config, request

from samovar.base.errors import ConfigError, EngineDead
from samovar.base.ids import RequestId
from samovar.core.calls import Call, LogHeader, Plan, TierCall
from samovar.core.replay import replay
from samovar.core.stats import TierReport
from samovar.policy.hints import Hint
from samovar.runner.call_log import read_call_log
from samovar.runner.client import EngineClient
from samovar.runner.config import EngineProcessConfig
from samovar.runner.retention import policy_of

pytestmark = pytest.mark.torch

AGENTS, FIRST_TOKENS, NEW_TOKENS = 4, 60, 10
"""8 to 15 blocks each, on a device of 16."""


def tiered(tiny: Tiny, folder: Path, **values: object) -> EngineProcessConfig:
    defaults: dict[str, object] = {
        "num_gpu_blocks_override": 16,
        "max_model_len": 128,
        # Too short to give a prefill rate: everything that is found is loaded, however slow that is.
        "max_num_batched_tokens": 16,
        "kv_offloading_size": "1MiB",
        "kv_disk_path": str(folder / "disk"),
        "kv_disk_size": "8MiB",
    }
    return config(tiny, **{**defaults, **values})


class Agents:
    def __init__(self) -> None:
        self.histories = [[(agent * 31 + i * 7) % VOCAB for i in range(FIRST_TOKENS)] for agent in range(AGENTS)]
        self._number = 0

    async def turn(self, engine: EngineClient, agent: int) -> tuple[int, int]:
        """Tokens of the prompt, and how many of them were found."""
        prompt = self.histories[agent]
        plain = request(engine, self._number, prompt, max_tokens=6)
        asked = replace(plain, session_id=f"agent {agent}", tenant="t")
        self._number += 1
        made, last = await collect(await engine.submit(asked))
        self.histories[agent] = prompt + made + [(agent + i) % VOCAB for i in range(NEW_TOKENS)]
        return len(prompt), last.num_cached_tokens

    async def round(self, engine: EngineClient) -> list[tuple[int, int]]:
        return [await self.turn(engine, agent) for agent in range(AGENTS)]

    def assert_warm(self, found: list[tuple[int, int]]) -> None:
        """Every full block of the turn before: the last token said and the new ones were not computed then."""
        for num_tokens, cached in found:
            assert cached == (num_tokens - NEW_TOKENS - 1) // BLOCK * BLOCK

    async def assert_listed(self, engine: EngineClient) -> None:
        """By name, before any of them has had a turn."""
        report = await engine.cache_report()
        assert report.num_sessions == AGENTS
        found = {session.session_id: session for session in report.sessions}
        for agent, history in enumerate(self.histories):
            session = found.pop(f"agent {agent}")
            assert session.num_tokens == (len(history) - NEW_TOKENS - 1) // BLOCK * BLOCK
            assert session.tiers == {"device": 0, "host": 0, "disk": session.num_tokens}
            assert session.tenant == "t" and session.why.startswith("found at the start")
        assert not found


async def disk_of(engine: EngineClient) -> TierReport:
    return next(tier for tier in (await engine.cache_report()).tiers if tier.tier == "disk")


@pytest.mark.parametrize(("how", "budget"), [("close", None), ("SIGTERM", None), ("SIGTERM", "1KiB")])
async def test_an_end_that_is_asked_for_loses_nothing(tiny: Tiny, tmp_path: Path, how: str, budget: str | None) -> None:
    """The moment the last turn has ended; nobody waits for the disk, and no budget holds it up any more."""
    agents, lines = Agents(), list[str]()
    engine = await EngineClient.start(tiered(tiny, tmp_path, kv_disk_write_budget=budget))
    try:
        await agents.round(engine)
        agents.assert_warm(await agents.round(engine))
        assert budget is None or (await disk_of(engine)).not_yet_durable_blocks > 10
        if how == "SIGTERM":
            os.kill(engine.pid, signal.SIGTERM)
            assert "exit code 0" in await engine.wait_dead()
    finally:
        await engine.close()
    again = await EngineClient.start(tiered(tiny, tmp_path), lines.append)
    try:
        assert any(line.startswith("disk tier: ") and f"{AGENTS} conversations" in line for line in lines)
        await agents.assert_listed(again)
        agents.assert_warm(await agents.round(again))
        await again.check()
        went_on = (await again.cache_report()).sessions
        assert len(went_on) == AGENTS and not any("found" in session.why for session in went_on)
        assert (await again.stats()).cached_tokens_by_tier["disk"] > 0
    finally:
        await again.close()


async def test_a_kill_loses_nothing_that_is_durable(tiny: Tiny, tmp_path: Path) -> None:
    agents = Agents()
    engine = await EngineClient.start(tiered(tiny, tmp_path))
    try:
        await agents.round(engine)
        async with asyncio.timeout(2):
            while (await disk_of(engine)).not_yet_durable_blocks:
                await asyncio.sleep(0.02)
        os.kill(engine.pid, signal.SIGKILL)
        with pytest.raises(EngineDead):
            await engine.wait_dead()
            await engine.cache_report()
    finally:
        await engine.close()
    again = await EngineClient.start(tiered(tiny, tmp_path))
    try:
        agents.assert_warm(await agents.round(again))
    finally:
        await again.close()


async def test_the_log_of_a_run_with_tiers_and_hints_proves_itself(tiny: Tiny, tmp_path: Path) -> None:
    """Loads, stores, evictions under the agent policy, hints and outcomes: every plan comes out again."""
    path, agents = tmp_path / "calls", Agents()
    engine = await EngineClient.start(
        tiered(tiny, tmp_path, record_path=str(path), kv_verify=2, num_gpu_blocks_override=40)
    )
    try:
        for _ in range(4):
            await asyncio.gather(*(agents.turn(engine, agent) for agent in range(AGENTS)))
            engine.outcome(RequestId(0), "tool_calls", ("read",))
            answers = await engine.hint("", "nobody", (Hint("retain", 60.0), Hint("prefetch")))
            assert [answer.status for answer in answers] == ["ignored", "ignored"]
            report = await engine.cache_report()
            assert report.policy == "agent" and [tier.tier for tier in report.tiers] == ["device", "host", "disk"]
            await engine.match(request(engine, 999, agents.histories[0]).keys, len(agents.histories[0]))
        stats = await engine.stats()
        assert stats.loaded_blocks > 0 and stats.stored_blocks > 0 and stats.evicted_blocks > 0
        assert stats.verified_blocks > 0 and stats.differing_blocks == 0
    finally:
        await engine.close()
    header, *calls = read_call_log(path)
    assert isinstance(header, LogHeader) and header.has_connector and header.policy == "agent"
    made = [call for call in calls if isinstance(call, Call)]
    assert {"lookup", "load", "store", "moves", "transferred", "turn_ended", "restore_s"} <= {
        call.call.method for call in made if isinstance(call.call, TierCall)
    }
    assert replay(header, made, policy_of(header)) > 20
    # A check that could not fail would prove nothing.
    first = next(i for i, call in enumerate(made) if isinstance(call.call, TierCall) and call.call.method == "load")
    with pytest.raises(Exception, match=r"the log has|differs|did not make"):
        replay(header, made[:first] + made[first + 1 :], policy_of(header))
    assert any(isinstance(call.call, Plan) for call in made)


async def test_settings_name_sizes_and_no_path(tiny: Tiny, tmp_path: Path) -> None:
    extra = {"total_capacity_bytes": 1 << 20, "disk_path": str(tmp_path / "disk"), "disk_capacity_bytes": "8MiB"}
    text = json.dumps({"kv_connector": "UMBPStoreConnector", "kv_role": "kv_both", "kv_connector_extra_config": extra})
    none = {"kv_offloading_size": None, "kv_disk_path": None, "kv_disk_size": None}
    engine = await EngineClient.start(tiered(tiny, tmp_path, kv_transfer_config=text, **none))
    try:
        settings = engine.info.settings
        assert int(settings["kv-host-blocks"]) == (1 << 20) // 4096 and int(settings["kv-disk-blocks"]) > 100
        assert not {"kv-disk-path", "kv-transfer-config"} & settings.keys()
        assert not [name for name, value in settings.items() if str(tmp_path) in value]
    finally:
        await engine.close()


async def test_a_folder_in_use_is_named(tiny: Tiny, tmp_path: Path) -> None:
    engine = await EngineClient.start(tiered(tiny, tmp_path))
    try:
        with pytest.raises(ConfigError, match=r"disk folder .*in use"):
            await EngineClient.start(tiered(tiny, tmp_path))
    finally:
        await engine.close()
    blocked = tmp_path / "file"
    blocked.write_text("")
    with pytest.raises(ConfigError, match=r"folder .*file/below cannot be made"):
        await EngineClient.start(tiered(tiny, tmp_path, kv_disk_path=str(blocked / "below")))
