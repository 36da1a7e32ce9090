"""Several tenants on one real server: what they share and what they do not, what those cost who leave or are too many.

SmolLM2, two requests on the device at once, a queue of four of which a key may fill two.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import ExitStack
from hashlib import sha256
from itertools import count
from pathlib import Path
import time
from typing import Any

import httpx
import pytest

from samovar.serve.auth import Authenticator
from tests.cli.test_serve import Server, serving

pytestmark = [pytest.mark.torch, pytest.mark.model, pytest.mark.slow]

KEYS = ("key-one", "key-two", "key-three")
ONE, TWO, THREE = ({"x-api-key": key} for key in KEYS)
FLAGS = (
    "--api-key", *KEYS, "--max-num-seqs", "2", "--max-num-queued-reqs", "4", "--max-num-queued-reqs-per-tenant", "2",
    "--max-num-batched-tokens", "256", "--kv-cache-memory-bytes", "512MiB", "--num-threads", "2",
)  # fmt: skip
_SEEDS = count()


@pytest.fixture(scope="module")
def server(tmp_path_factory: pytest.TempPathFactory, smollm2_gguf: Path) -> Iterator[Server]:
    log = tmp_path_factory.mktemp("isolation") / "log"
    with serving(log, *FLAGS) as running:
        yield running
    assert running.process.returncode == 0 and "Traceback" not in log.read_text()


@pytest.fixture
def client(server: Server) -> Iterator[httpx.Client]:
    with httpx.Client(base_url=server.url, timeout=60) as client:
        idle(client)
        yield client
        idle(client)


def metric(client: httpx.Client, name: str) -> float:
    lines = [line for line in client.get("/metrics").text.splitlines() if line.startswith(name + "{")]
    return sum(float(line.rsplit(" ", 1)[1]) for line in lines)


def until(condition: Callable[[], bool], within_s: float) -> float:
    """How long it took."""
    began = time.monotonic()
    while not condition():
        assert time.monotonic() - began < within_s, "it did not come about"
        time.sleep(0.01)
    return time.monotonic() - began


def idle(client: httpx.Client, within_s: float = 30.0) -> float:
    names = ("vllm:num_requests_running", "vllm:num_requests_waiting", "samovar:kv_blocks_used")
    return until(lambda: not any(metric(client, name) for name in names), within_s)


def prompt(length: int) -> list[int]:
    """Token ids that nobody has sent before."""
    seed = next(_SEEDS)
    return [100 + int.from_bytes(sha256(b"%d %d" % (seed, at)).digest()[:2], "little") % 40_000 for at in range(length)]


def complete(client: httpx.Client, key: dict[str, str], ids: list[int], **fields: Any) -> httpx.Response:
    body = {"prompt": ids, "max_tokens": 1, "ignore_eos": True, **fields}
    return client.post("/v1/completions", json=body, headers=key)


def cached(response: httpx.Response) -> int:
    assert response.status_code == 200, response.text
    return int(response.json()["usage"]["prompt_tokens_details"]["cached_tokens"])


def streaming(stack: ExitStack, client: httpx.Client, key: dict[str, str], ids: list[int], **fields: Any) -> Any:
    """An accepted request whose answer streams until the stack ends: then its client goes away."""
    body = {"prompt": ids, "max_tokens": 4000, "ignore_eos": True, "stream": True, **fields}
    response = stack.enter_context(client.stream("POST", "/v1/completions", json=body, headers=key))
    assert response.status_code == 200
    return response


def test_a_prompt_is_warm_for_its_own_tenant_alone(client: httpx.Client) -> None:
    ids = prompt(1000)
    assert cached(complete(client, ONE, ids)) == 0
    assert cached(complete(client, TWO, ids)) == 0
    hits, tier = metric(client, "vllm:prefix_cache_hits_total"), metric(client, "samovar:cached_tokens_total")
    for calls in (1, 2, 3):
        assert cached(complete(client, ONE, ids)) == 992
        assert metric(client, "vllm:prefix_cache_hits_total") == hits + calls * 992
        assert metric(client, "samovar:cached_tokens_total") == tier + calls * 992
    assert 'tier="device"' in client.get("/metrics").text
    tenant = Authenticator([KEYS[0]]).tenant(ONE)
    for salt in (tenant, KEYS[0], ""):
        assert cached(complete(client, THREE, ids, **({"cache_salt": salt} if salt else {}))) == 0
    assert cached(complete(client, ONE, ids, cache_salt="s")) == 0


def test_a_match_costs_and_changes_nothing(client: httpx.Client) -> None:
    ids = prompt(1000)
    complete(client, ONE, ids)
    names = ("vllm:prefix_cache_queries_total", "vllm:prefix_cache_hits_total", "samovar:requests_admitted_total")
    before = [metric(client, name) for name in names]

    def match(key: dict[str, str], ids: list[int]) -> dict[str, Any]:
        answer: dict[str, Any] = client.post("/v1/cache/match", json={"prompt": ids}, headers=key).json()
        return answer

    assert match(ONE, ids) == {
        "prompt_tokens": 1000, "cached_tokens": 992, "tiers": {"device": 992}, "block_size": 16,
    }  # fmt: skip
    assert [match(TWO, ids)["cached_tokens"], match(ONE, ids[:500])["cached_tokens"]] == [0, 496]
    assert [metric(client, name) for name in names] == before
    with ExitStack() as stack:
        streaming(stack, client, TWO, prompt(7000))
        times = []
        for _ in range(10):
            began = time.monotonic()
            match(ONE, ids)
            times.append(time.monotonic() - began)
    assert min(times) < 0.05, "an answer waited for a step"


@pytest.mark.parametrize("state", ["queued", "prefilling", "decoding"])
def test_who_leaves_is_gone_at_once(client: httpx.Client, state: str) -> None:
    name = {"x-request-id": f"mine-{state}"}
    with ExitStack() as others, ExitStack() as stack:
        if state == "queued":
            for _ in range(2):
                streaming(others, client, TWO, prompt(20))
        response = streaming(stack, client, ONE | name, prompt(7000 if state == "prefilling" else 20))
        if state == "queued":
            until(lambda: metric(client, "vllm:num_requests_running") == 2, 5)
            assert metric(client, "vllm:num_requests_waiting") == 1
        elif state == "prefilling":
            until(lambda: metric(client, "vllm:num_requests_running") == 1, 5)
            assert metric(client, "samovar:kv_blocks_used") > 0
        else:
            lines = (line for line in response.iter_lines() if line)
            for _ in range(3):
                next(lines)
        left = time.monotonic()
        stack.close()
        if state == "queued":
            until(lambda: metric(client, "vllm:num_requests_waiting") == 0, 1)
        else:
            idle(client, 1)
        assert time.monotonic() - left < 1
    idle(client, 1)
    again = complete(client, ONE | name, prompt(20))
    assert again.status_code == 200 and again.headers["x-request-id"] == name["x-request-id"]


def test_a_full_queue_answers_at_once(client: httpx.Client) -> None:
    with ExitStack() as stack:
        for key in (THREE, THREE, ONE, ONE):  # two run, two wait
            streaming(stack, client, key, prompt(20))
        until(lambda: metric(client, "vllm:num_requests_waiting") == 2, 5)
        refused, within_s = _refused(client, ONE)
        assert refused.json()["error"]["code"] == "rate_limit_exceeded" and within_s < 0.05
        assert refused.json()["error"]["type"] == "rate_limit_error" and "limit is 2" in refused.text
        for _ in range(2):
            streaming(stack, client, TWO, prompt(20))
        refused, within_s = _refused(client, THREE)
        assert refused.json()["error"]["code"] == "saturated" and within_s < 0.05
        assert complete(client, ONE, prompt(20), n=1_000_000).status_code == 400
    idle(client, 2)
    assert complete(client, ONE, prompt(20)).status_code == 200


def _refused(client: httpx.Client, key: dict[str, str]) -> tuple[httpx.Response, float]:
    """The refusal, and the time of the fastest of some: this machine has other things to do as well."""
    times = []
    for _ in range(10):
        began = time.monotonic()
        response = complete(client, key, prompt(20))
        times.append(time.monotonic() - began)
        assert response.status_code == 429 and 1 <= int(response.headers["retry-after"]) <= 30
    return response, min(times)


@pytest.mark.parametrize("gone", [False, True])
def test_a_retry_joins_the_prefill_that_runs(client: httpx.Client, gone: bool) -> None:
    """The same body while the first still prefills: its prompt is computed once, and a block for the second."""
    ids, before = prompt(4000), metric(client, "samovar:step_tokens_total")

    def computed() -> float:
        return metric(client, "samovar:step_tokens_total") - before

    with ExitStack() as stack:
        first = streaming(stack, client, ONE, ids, max_tokens=1)
        until(lambda: computed() >= 512, 20)
        if gone:
            first.close()
        again = complete(client, ONE, ids)
        assert again.status_code == 200
    idle(client)
    assert len(ids) <= computed() <= len(ids) + 16
    assert cached(again) >= 512


def test_metrics_say_nothing_of_what_clients_send(client: httpx.Client, server: Server) -> None:
    body = {"prompt": "zanzibar nutmeg", "max_tokens": 2, "session_id": "zanzibar-session", "model": "zanzibar-model"}
    headers = ONE | {"x-request-id": "zanzibar-request"}
    assert client.post("/v1/completions", json=body, headers=headers).status_code == 200
    page = client.get("/metrics").text
    assert "zanzibar" not in page and not any(key in page for key in KEYS)
    assert "nutmeg" not in server.log.read_text()
