"""Models, tokens, version, metrics, configuration."""

from __future__ import annotations

import logging
import re
from typing import Any

from prometheus_client.parser import text_string_to_metric_families
import pytest

from samovar import __version__
from samovar.base.errors import ConfigError
from samovar.core.stats import EngineStats
from samovar.serve.config import ServeConfig
from tests.serve.conftest import MakeServer, ids
from tests.serve.scripted import Script


async def test_models(make_server: MakeServer) -> None:
    client = make_server(served_model_names=("org/tea", "coffee")).client
    cards = (await client.get("/v1/models")).json()
    assert cards["object"] == "list" and [card["id"] for card in cards["data"]] == ["org/tea", "coffee"]
    card = (await client.get("/v1/models/org/tea")).json()
    assert card["object"] == "model" and card["max_model_len"] == 4096 and card["root"] == "tea"
    assert (await client.get("/v1/models/milk")).status_code == 404
    assert (await make_server().client.get("/v1/models")).json()["data"][0]["id"] == "tea"
    assert (await client.get("/version")).json() == {"version": __version__}


async def test_new_names_are_logged_once(make_server: MakeServer, caplog: pytest.LogCaptureFixture) -> None:
    server = make_server()
    caplog.set_level(logging.INFO, "samovar")
    for name in ["gpt-5"] * 3 + [f"name-{number}" for number in range(200)]:
        await server.chat(model=name)
    assert sum("gpt-5" in message for message in caplog.messages) == 1
    assert len(caplog.messages) == 100


async def test_tokenize(make_server: MakeServer, tokenizer: Any) -> None:
    server = make_server()
    answer = (await server.post("/tokenize", {"prompt": "aö", "return_token_strs": True})).json()
    assert answer == {
        "count": 3,
        "max_model_len": 4096,
        "tokens": [97, 0xC3, 0xB6],
        "token_strs": ["a", "\ufffd", "\ufffd"],
    }
    messages = [{"role": "user", "content": "Hi"}]
    tokens = (await server.post("/tokenize", {"messages": messages})).json()["tokens"]
    await server.chat("Hi")
    assert list(ids("")) + tokens == tokenizer.encode("<|im_start|>user\nHi<|im_end|>\n<|im_start|>assistant\n")
    assert len(server.service.requests[0].token_ids) == 4 * len(tokens)
    text = (await server.post("/detokenize", {"tokens": tokens})).json()["prompt"]
    assert text == "<|im_start|>user\nHi<|im_end|>\n<|im_start|>assistant\n"
    assert (await server.post("/detokenize", {"tokens": []})).json() == {"prompt": ""}
    assert (await server.post("/tokenize", {"prompt": ""})).json()["count"] == 0


@pytest.mark.parametrize(
    ("path", "body", "param"),
    [
        ("/tokenize", {}, "prompt"),
        ("/tokenize", {"prompt": "a", "messages": [{"role": "user", "content": "a"}]}, "prompt"),
        ("/tokenize", {"prompt": 5}, "prompt"),
        ("/tokenize", {"messages": []}, "messages"),
        ("/detokenize", {}, "tokens"),
        ("/detokenize", {"tokens": [1, 259]}, "tokens[1]"),
        ("/detokenize", {"tokens": [1, "a"]}, "tokens[1]"),
        ("/detokenize", {"tokens": [1, -1]}, "tokens[1]"),
    ],
)
async def test_tokenize_faults(make_server: MakeServer, path: str, body: dict[str, Any], param: str) -> None:
    response = await make_server().post(path, body)
    assert response.status_code == 400 and response.json()["error"]["param"] == param


async def test_engine_metrics(make_server: MakeServer) -> None:
    """The engine's snapshot appears under vLLM's names; counters keep their `_total` and say so in `# TYPE`."""
    server = make_server()
    server.service.snapshot = EngineStats(
        num_running=3, num_waiting=2, num_waiting_for_capacity=2, num_blocks=10, num_free_blocks=3, num_cached_blocks=2,
        prompt_tokens=100, prompt_tokens_cached=64, prompt_tokens_computed=36, generation_tokens=7,
        prefix_queries_tokens=100, prefix_hits_tokens=64, shared_tokens=16,
        misses={"cold": 1}, missed_tokens={"cold": 36}, requests_rejected={"saturated": 4},
    )  # fmt: skip
    response = await server.client.get("/metrics")
    assert response.headers["content-type"].startswith("text/plain")
    page = response.text
    found = {
        (sample.name, tuple(sorted(sample.labels.items() - {("engine", "0"), ("model_name", "tea")}))): sample.value
        for family in text_string_to_metric_families(page)
        for sample in family.samples
    }
    for name, value in {
        "vllm:num_requests_running": 3, "vllm:num_requests_waiting": 2, "vllm:kv_cache_usage_perc": 0.5,
        "vllm:prefix_cache_queries_total": 100, "vllm:prefix_cache_hits_total": 64, "vllm:prompt_tokens_total": 100,
        "vllm:prompt_tokens_cached_total": 64, "vllm:generation_tokens_total": 7, "samovar:shared_tokens_total": 16,
        "samovar:kv_blocks_used": 5, "samovar:engine_up": 1,
    }.items():  # fmt: skip
        assert found[name, ()] == value, name
    for name, label, value in (
        ("vllm:num_requests_waiting_by_reason", ("reason", "capacity"), 2),
        ("vllm:prompt_tokens_by_source_total", ("source", "local_cache_hit"), 64),
        ("vllm:prompt_tokens_by_source_total", ("source", "local_compute"), 36),
        ("vllm:admission_rejections_total", ("reason", "saturated"), 4),
        ("samovar:prefix_cache_misses_total", ("reason", "cold"), 1),
        ("samovar:prefix_cache_missed_tokens_total", ("reason", "cold"), 36),
    ):
        assert found[name, (label,)] == value, name
    assert "# TYPE vllm:prefix_cache_queries_total counter" in page
    assert re.search(r'vllm:cache_config_info\{[^}]*block_size="16"[^}]*max_model_len="4096"', page)
    server.service.die("gone")
    page = (await server.client.get("/metrics")).text
    assert 'samovar:engine_up{engine="0",model_name="tea"} 0.0' in page
    assert 'vllm:prefix_cache_hits_total{engine="0",model_name="tea"} 64.0' in page


async def test_request_metrics(make_server: MakeServer) -> None:
    server = make_server(Script(ids("abcd", end=True), prefill_s=0.1, delay_s=0.01))
    await server.chat("secret text", model="client-name")
    await server.chat("secret text", stop="b", stream=True)
    await server.chat(max_tokens=2)
    await server.chat(n=0)
    page = (await server.client.get("/metrics")).text
    labels = 'engine="0",model_name="tea"'
    assert 'vllm:request_success_total{engine="0",finished_reason="stop",model_name="tea"} 2.0' in page
    assert 'finished_reason="length",model_name="tea"} 1.0' in page
    assert f"vllm:time_to_first_token_seconds_count{{{labels}}} 3.0" in page
    assert 'vllm:time_to_first_token_seconds_bucket{engine="0",le="0.08",model_name="tea"} 0.0' in page
    # Gaps: 4 of the whole answer, 1 up to the stop string, 1 of two tokens.
    assert f"vllm:inter_token_latency_seconds_count{{{labels}}} 6.0" in page
    assert f"vllm:e2e_request_latency_seconds_count{{{labels}}} 3.0" in page
    assert f"vllm:request_generation_tokens_sum{{{labels}}} 9.0" in page
    assert 'samovar:error_responses_total{code="invalid_value",engine="0",model_name="tea"} 1.0' in page
    assert "secret" not in page and "client-name" not in page


@pytest.mark.parametrize(
    ("fields", "words"),
    [
        ({"port": 70000}, "--port"),
        ({"port": -1}, "--port"),
        ({"max_n": 0}, "--max-n"),
        ({"keepalive_s": 0}, "--keepalive-s"),
        ({"keepalive_s": float("nan")}, "--keepalive-s"),
        ({"max_body_bytes": 10}, "1024"),
        ({"api_keys": ("",)}, "--api-key"),
        ({"served_model_names": ("",)}, "--served-model-name"),
    ],
)
def test_config(fields: dict[str, Any], words: str) -> None:
    with pytest.raises(ConfigError, match=words):
        ServeConfig(**{"model": "tea", **fields})
    assert "secret" not in repr(ServeConfig("tea", api_keys=("secret",)))
