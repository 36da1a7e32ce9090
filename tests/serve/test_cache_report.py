"""`GET /v1/cache`, and what /metrics says of tiers."""

from __future__ import annotations

import asyncio
from pathlib import Path
from typing import Any

from hypothesis import given
from hypothesis import strategies as st
import jsonschema_rs
import msgspec
import pytest

from samovar.core.stats import CacheReport, EngineStats, SessionReport, TierReport
from samovar.serve import snapshots
from samovar.serve.cache_fields import answer_schema
from samovar.serve.cache_figures import Snapshot
from samovar.serve.cache_report import MAX_SESSIONS, cache_state, fastest_tiers
from tests.serve.asgi import Server
from tests.serve.cache_samples import LiveDay, report, samples
from tests.serve.conftest import MakeServer
from tests.serve.scripted import BLOCK

ROOT = Path(__file__).parents[2]


@pytest.fixture
def day() -> LiveDay:
    found = LiveDay()
    found.seconds(400)
    return found


@pytest.fixture
def busy(make_server: MakeServer, day: LiveDay) -> Server:
    server = make_server()
    server.service.snapshot, server.service.report = day.stats(), day.report()
    return server


# -- the answer ---------------------------------------------------------------------------------------------------


async def test_the_answer(busy: Server, day: LiveDay) -> None:
    response = await busy.client.get("/v1/cache")
    assert response.status_code == 200 and response.headers["cache-control"] == "no-store"
    found, stats = response.json(), day.stats()
    jsonschema_rs.Draft202012Validator(answer_schema()).validate(found)
    assert found["object"] == "cache" and found["model"] == "tea" and found["policy"] == "agent"
    assert found["block_size"] == BLOCK and found["time_s"] > 0
    assert [tier["tier"] for tier in found["tiers"]] == ["device", "host", "disk"]
    assert sum(found["hits"]["by_tier"].values()) == found["tokens"]["cached"] == stats.prompt_tokens_cached > 0
    assert [tier["hit_tokens"] for tier in found["tiers"]] == list(stats.cached_tokens_by_tier.values())
    assert found["tokens"]["prompt"] == found["tokens"]["cached"] + found["tokens"]["computed"]
    assert found["hits"]["rate"] == pytest.approx(stats.prompt_tokens_cached / stats.prompt_tokens)
    assert 1 > found["hits"]["rate_ceiling"] > found["hits"]["rate"]
    assert {reason: miss["tokens"] for reason, miss in found["misses"].items()} == stats.missed_tokens
    assert {reason: miss["requests"] for reason, miss in found["misses"].items()} == stats.misses
    assert found["loads"] == {
        "loaded_blocks": stats.loaded_blocks, "prefetched_blocks": stats.prefetched_blocks,
        "wasted_blocks": stats.wasted_load_blocks, "declined_blocks": 212, "failed_blocks": 3,
        "failed_by_reason": {"checksum": 1, "late": 2},
    }  # fmt: skip
    assert found["evictions"] == {"blocks": 18_320, "regretted_tokens": stats.regretted_tokens}
    assert found["hints"]["resume_in"] == {"applied": 112, "clipped": 2}
    disk = found["tiers"][2]
    assert disk["failed_blocks"] == {"checksum": 1, "late": 2} and disk["not_yet_durable_blocks"] == 38
    assert disk["bytes_per_s"] == 1.3e9 and found["tiers"][0]["bytes_per_s"] is None
    assert (disk["suspended"], disk["suspensions"]) == (False, 2)


async def test_before_anything_happened(make_server: MakeServer) -> None:
    found = (await make_server().client.get("/v1/cache")).json()
    jsonschema_rs.Draft202012Validator(answer_schema()).validate(found)
    assert found["hits"] == {"rate": None, "rate_ceiling": None, "ceiling_tokens": 0, "by_tier": {}}
    assert found["prefill_tokens_per_s"] is None and found["sessions"] == [] and found["num_sessions"] == 0


async def test_sessions_and_sub_agents(busy: Server, day: LiveDay) -> None:
    found = (await busy.client.get("/v1/cache?sessions=200")).json()
    rows = {row["session_id"]: row for row in found["sessions"]}
    assert len(rows) == found["num_sessions"] == len(day.agents) >= 24
    assert len({row["stream"] for row in rows.values()}) == len(rows)
    subs = [row for row in rows.values() if "/sub-" in row["session_id"]]
    assert len(subs) >= 5
    for row in subs:
        assert row["parent_stream"] == rows[row["parent_session_id"]]["stream"]
    assert all(row["parent_stream"] is None for row in rows.values() if row not in subs)
    for row in rows.values():
        assert sum(row["fastest"].values()) + row["lost_tokens"] == row["num_tokens"]
    assert {row["running"] for row in rows.values()} == {True, False}


@pytest.mark.parametrize("wanted", [0, 1, 7, 200])
async def test_as_many_sessions_as_asked_for(busy: Server, wanted: int) -> None:
    everything = (await busy.client.get(f"/v1/cache?sessions={MAX_SESSIONS}")).json()["sessions"]
    found = (await busy.client.get(f"/v1/cache?sessions={wanted}")).json()
    assert [row["session_id"] for row in found["sessions"]] == [row["session_id"] for row in everything][:wanted]
    assert found["num_sessions"] == len(everything)
    listed = {row["stream"] for row in found["sessions"]}
    assert all(row["parent_stream"] in {None, *listed} for row in found["sessions"])


@pytest.mark.parametrize("text", ["-1", "201", "99999999999999999999", "1.5", "", "ten", "1e2", "%F0%9F%8D%B5", "٣"])
async def test_a_number_of_sessions_that_cannot_be(busy: Server, text: str) -> None:
    response = await busy.client.get(f"/v1/cache?sessions={text}")
    error = response.json()["error"]
    assert response.status_code == 400 and error["param"] == "sessions" and "from 0 to 200" in error["message"]


async def test_a_tenant_sees_its_own_sessions_only(make_server: MakeServer) -> None:
    server = make_server(api_keys=("left", "right"))
    await server.post("/v1/completions", {"prompt": "a"}, authorization="Bearer left")
    await server.post("/v1/completions", {"prompt": "a"}, **{"x-api-key": "right"})
    left, right = (request.tenant for request in server.service.requests)
    server.service.report = report(
        SessionReport("mine", left, stream=f"{left}\0mine"),
        SessionReport("theirs", right, stream=f"{right}\0theirs"),
        SessionReport("child", left, parent_session_id="theirs", stream=f"{left}\0child"),
    )
    found = (await server.client.get("/v1/cache", headers={"authorization": "Bearer left"})).json()
    assert [row["session_id"] for row in found["sessions"]] == ["mine", "child"] and found["num_sessions"] == 2
    assert found["sessions"][1]["parent_stream"] is None
    found = (await server.client.get("/v1/cache", headers={"x-api-key": "right"})).json()
    assert [row["session_id"] for row in found["sessions"]] == ["theirs"] and found["num_sessions"] == 1
    text = msgspec.json.encode(found).decode()
    assert left not in text and right not in text
    for headers in ({}, {"authorization": "Bearer middle"}):
        response = await server.client.get("/v1/cache", headers=headers)
        assert response.status_code == 401 and "www-authenticate" in response.headers


async def test_without_keys_everybody_sees_all(make_server: MakeServer) -> None:
    server = make_server()
    server.service.report = report(SessionReport("a", ""), SessionReport("b", "of other days"))
    found = (await server.client.get("/v1/cache")).json()
    assert [row["session_id"] for row in found["sessions"]] == ["a", "b"] and found["num_sessions"] == 2


@pytest.mark.parametrize(
    ("rows", "parents"),
    [
        ([("a", "b"), ("b", "a")], [1, None]),
        ([("a", "a")], [None]),
        ([("a", ""), ("a", "a"), ("a", "a")], [None, 0, 0]),
        ([("a", "a"), ("a", "")], [1, None]),
        ([("a", "b"), ("b", "c"), ("c", "a"), ("d", "a")], [1, 2, None, 0]),
        ([("", ""), ("x", ""), ("y", "gone")], [None, None, None]),
    ],
)
def test_parents_never_make_a_cycle(rows: list[tuple[str, str]], parents: list[int | None]) -> None:
    sessions = [SessionReport(name, "t", parent, stream=f"t\0{name}\0{at}") for at, (name, parent) in enumerate(rows)]
    found = cache_state(Snapshot(EngineStats(), report(*sessions), 1.0), "tea", None, 50).sessions
    names = [row.stream for row in found]
    assert [None if row.parent_stream is None else names.index(row.parent_stream) for row in found] == parents


@given(
    rows=st.lists(st.tuples(st.sampled_from("abcdef"), st.sampled_from(["", *"abcdef"])), max_size=12),
    same=st.booleans(),
)
def test_from_every_row_the_way_up_ends(rows: list[tuple[str, str]], same: bool) -> None:
    sessions = [
        SessionReport(name, "t", parent, stream="" if same else f"{at}") for at, (name, parent) in enumerate(rows)
    ]
    found = cache_state(Snapshot(EngineStats(), report(*sessions), 1.0), "tea", None, 50).sessions
    above = {row.stream: row.parent_stream for row in found}
    assert len(above) == len(rows)
    for start in above:
        steps, at = 0, above[start]
        while at is not None:
            steps, at = steps + 1, above[at]
            assert steps <= len(rows)


HEADS = st.dictionaries(st.sampled_from(["device", "host", "disk", "far"]), st.integers(0, 40))


@given(num_tokens=st.integers(0, 30), heads=HEADS)
def test_a_token_counts_in_the_fastest_tier_that_has_it(num_tokens: int, heads: dict[str, int]) -> None:
    found = fastest_tiers(SessionReport("a", "", num_tokens=num_tokens, tiers=heads), ("device", "host", "disk"))
    order = ("device", "host", "disk", "far")
    where = [next((tier for tier in order if heads.get(tier, 0) > token), None) for token in range(num_tokens)]
    assert found == {tier: where.count(tier) for tier in order if tier in where}


async def test_names_from_clients_come_as_they_are(make_server: MakeServer) -> None:
    server = make_server()
    name = '<img src=x onerror="alert(1)">🍵"\\'
    server.service.report = report(SessionReport(name, "", why=name))
    row = (await server.client.get("/v1/cache")).json()["sessions"][0]
    assert row["session_id"] == name and row["why"] == name


async def test_figures_that_are_no_numbers(make_server: MakeServer) -> None:
    server = make_server()
    strange = SessionReport("a", "", idle_s=-0.1, return_in_s=float("inf"), kept_for_s=float("nan"))
    server.service.report = report(strange, tiers=(TierReport("host", bytes_per_s=float("inf")),))
    server.service.snapshot = EngineStats(saved_s=float("nan"))
    found = (await server.client.get("/v1/cache")).json()
    jsonschema_rs.Draft202012Validator(answer_schema()).validate(found)
    assert found["saved_s"] == 0 and found["tiers"][0]["bytes_per_s"] is None
    row = found["sessions"][0]
    assert (row["idle_s"], row["return_in_s"], row["kept_for_s"]) == (0, None, None)


# -- asking the engine --------------------------------------------------------------------------------------------


class Counted:
    """How often the engine is asked; answers after `delay_s`."""

    def __init__(self, server: Server, monkeypatch: pytest.MonkeyPatch, delay_s: float = 0.0) -> None:
        self.times = 0
        original = server.service.stats

        async def stats() -> EngineStats:
            self.times += 1
            await asyncio.sleep(delay_s)
            return await original()

        monkeypatch.setattr(server.service, "stats", stats)


async def test_many_viewers_ask_the_engine_once(make_server: MakeServer, monkeypatch: pytest.MonkeyPatch) -> None:
    server = make_server()
    counted = Counted(server, monkeypatch, 0.02)
    answers = await asyncio.gather(*(server.client.get("/v1/cache") for _ in range(40)))
    assert {answer.status_code for answer in answers} == {200} and counted.times == 1
    assert len({answer.json()["time_s"] for answer in answers}) == 1
    monkeypatch.setattr(snapshots, "MAX_AGE_S", 0.0)
    await server.client.get("/v1/cache")
    assert counted.times == 2


async def test_a_scrape_is_never_old(make_server: MakeServer) -> None:
    server = make_server()
    for tokens in (1, 2, 3):
        server.service.snapshot = EngineStats(generation_tokens=tokens)
        await server.client.get("/v1/cache")
        assert (await samples(server))["vllm:generation_tokens_total", ()] == tokens


async def test_a_viewer_who_leaves_takes_the_answer_from_nobody(
    make_server: MakeServer, monkeypatch: pytest.MonkeyPatch
) -> None:
    server = make_server()
    counted = Counted(server, monkeypatch, 0.05)
    first = asyncio.create_task(server.client.get("/v1/cache"))
    await asyncio.sleep(0.01)
    second = asyncio.create_task(server.client.get("/v1/cache"))
    await asyncio.sleep(0.01)
    first.cancel()
    assert (await second).status_code == 200 and counted.times == 1


async def test_an_engine_that_is_too_busy(make_server: MakeServer, monkeypatch: pytest.MonkeyPatch) -> None:
    server = make_server()
    monkeypatch.setattr(snapshots, "ANSWER_TIMEOUT_S", 0.05)
    counted = Counted(server, monkeypatch, 0.3)
    answers = await asyncio.gather(*(server.client.get("/v1/cache") for _ in range(3)))
    assert [answer.status_code for answer in answers] == [429] * 3 and answers[0].headers["retry-after"] == "1"
    assert "did not answer" in answers[0].json()["error"]["message"] and counted.times == 1
    assert (await samples(server))["samovar:engine_up", ()] == 0
    await asyncio.sleep(0.3)
    assert (await server.client.get("/v1/cache")).status_code == 200


async def test_an_engine_that_is_gone(busy: Server) -> None:
    assert (await busy.client.get("/v1/cache")).status_code == 200
    busy.service.die("it ran out of tea")
    response = await busy.client.get("/v1/cache")
    assert response.status_code == 503 and "out of tea" in response.json()["error"]["message"]


async def test_a_failure_comes_through_and_is_not_kept(
    make_server: MakeServer, monkeypatch: pytest.MonkeyPatch
) -> None:
    server = make_server()

    async def broken() -> CacheReport:
        raise RuntimeError("broken")

    with monkeypatch.context() as patch:
        patch.setattr(server.service, "cache_report", broken)
        with pytest.raises(RuntimeError):
            await server.client.get("/v1/cache")
    assert (await server.client.get("/v1/cache")).status_code == 200


# -- documents ----------------------------------------------------------------------------------------------------


def _fields(schema: dict[str, Any]) -> set[str]:
    found = set(schema.get("properties", ()))
    below = [*schema.get("properties", {}).values(), schema.get("items"), schema.get("additionalProperties")]
    return found.union(*(_fields(node) for node in below if isinstance(node, dict)))


def test_the_page_names_every_field() -> None:
    page = (ROOT / "docs" / "observing.md").read_text()
    fields = _fields(answer_schema())
    assert len(fields) > 50 and not {name for name in fields if f"`{name}`" not in page}


def test_the_document_says_what_is_answered(make_server: MakeServer) -> None:
    operation = make_server().app.openapi()["paths"]["/v1/cache"]["get"]
    schema = operation["responses"]["200"]["content"]["application/json"]["schema"]
    assert "sessions" in schema["properties"] and "$ref" not in str(schema)
    assert operation["parameters"][0]["schema"]["maximum"] == MAX_SESSIONS
    assert {"400", "401", "429", "503"} < set(operation["responses"])


async def test_a_tier_that_does_not_answer_is_said_to(make_server: MakeServer) -> None:
    server = make_server()
    server.service.report = report(tiers=(TierReport("device"), TierReport("disk", suspended=True, suspensions=3)))
    device, disk = (await server.client.get("/v1/cache")).json()["tiers"]
    assert (disk["suspended"], disk["suspensions"]) == (True, 3)
    assert (device["suspended"], device["suspensions"]) == (False, 0)
