"""Models, tokens, version, metrics, configuration."""

from __future__ import annotations

import inspect
import json
import logging
from pathlib import Path
import re
from typing import Any

from hypothesis import given, settings
from hypothesis import strategies as st
import msgspec
from prometheus_client.parser import text_string_to_metric_families
from pydantic import ValidationError
import pytest

from samovar import __version__
from samovar.base.errors import ConfigError
from samovar.cli.serve import serve as serve_command
from samovar.core.sampling import SamplingParams
from samovar.core.stats import EngineStats
from samovar.serve import config as config_module
from samovar.serve.bodies import ChatBody
from samovar.serve.config import SamplingDefaults, ServeConfig
from samovar.serve.sampling import Limits, Wanted, sampling_params
from tests.serve.asgi import Exchange, Server
from tests.serve.conftest import MakeServer, ids
from tests.serve.scripted import Script, ScriptedService


async def test_models(make_server: MakeServer) -> None:
    client = make_server(served_model_names=("org/tea", "coffee")).client
    cards = (await client.get("/v1/models")).json()
    assert cards["object"] == "list" and [card["id"] for card in cards["data"]] == ["org/tea", "coffee"]
    card = (await client.get("/v1/models/org/tea")).json()
    assert card["object"] == "model" and card["max_model_len"] == 4096 and card["root"] == "tea"
    assert (await client.get("/v1/models/milk")).status_code == 404
    assert (await client.get("/v1/models/")).json() == cards
    anything = make_server().client
    assert (await anything.get("/v1/models")).json()["data"][0]["id"] == "tea"
    assert (await anything.get("/v1/models/")).json() == (await anything.get("/v1/models")).json()
    assert (await client.get("/version")).json() == {"version": __version__}


async def test_new_names_are_logged_once(make_server: MakeServer, caplog: pytest.LogCaptureFixture) -> None:
    server = make_server()
    caplog.set_level(logging.INFO, "samovar")
    for name in ["gpt-5"] * 3 + [f"name-{number}" for number in range(200)]:
        await server.chat(model=name)
    assert sum("gpt-5" in message for message in caplog.messages) == 1
    assert sum("under the requested name" in message for message in caplog.messages) == 100


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
        ({"max_n": 0}, "max_n is 0"),
        ({"max_logprobs": -1}, "--max-logprobs"),
        ({"body_timeout_s": 0}, "body_timeout_s"),
        ({"max_connections": 0}, "max_connections"),
        ({"max_upload_bytes": 32 << 20, "max_body_bytes": 33 << 20}, "max_upload_bytes is 33554432.*34603008"),
        ({"model": "te\na"}, r"'te\\na'.*printable"),
        ({"served_model_names": ("tea", "\udcff")}, "udcff.*printable"),
        ({"served_model_names": ("\x1b[31m",)}, "printable"),
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


def test_errors_name_flags_that_exist() -> None:
    """A setting is called by its flag where `samovar serve` has one, else by its name."""
    flags = set(re.findall(r'"(--[a-z-]+)"', Path(config_module.__file__).read_text()))
    parameters = {"--" + name.replace("_", "-") for name in inspect.signature(serve_command).parameters}
    assert flags - {"--max-logprobs"} and flags - {"--max-logprobs"} <= parameters


VALUES = st.one_of(
    st.integers(-(2**70), 2**70),
    st.floats(),
    st.sampled_from([0, 1, 2, -1, 0.01, 100, 0.0, 1.0, 2.0, 50.0, 1e-320, 2**31 - 1, 2**31, True, False, "1", [1], {}]),
    st.text(max_size=3),
)


@settings(max_examples=300, deadline=None)
@given(name=st.sampled_from(["temperature", "top_p", "top_k", "min_p", "repetition_penalty"]), value=VALUES)
def test_sampling_defaults_have_the_clients_bounds(name: str, value: Any) -> None:
    """A default is taken exactly when a client could ask for it, and then the engine can decode it."""
    try:
        ChatBody.model_validate({"messages": [], name: value})
    except ValidationError:
        with pytest.raises(ConfigError, match=name) as error:
            SamplingDefaults(**{name: value})
        assert error.value.param == name
        return
    server = ServeConfig("tea", sampling=SamplingDefaults(**{name: value}))
    body = ChatBody.model_validate({"messages": []})
    params = sampling_params(body, Wanted(), 1, Limits(100, 50, ()), server)
    assert msgspec.msgpack.decode(msgspec.msgpack.encode(params), type=SamplingParams) == params


PATHLIKE = {
    "cache-dir": "/home/me/secret",
    "--cache-dir": "secret/relative",
    "record-path": "secret.log",
    "model": "org/secret",
    "kv-disk-path": "/mnt/secret",
    "chat-template": "~/secret.jinja",
    "other": "../secret",
}


@pytest.mark.parametrize("name", PATHLIKE)
async def test_metrics_show_no_paths(tokenizer: Any, template: Any, info: Any, name: str) -> None:
    engine = msgspec.structs.replace(info, settings={name: PATHLIKE[name], "dtype": "float32"})
    config = ServeConfig("/home/me/secret/models/tea")
    server = Server(ScriptedService(lambda request: Script(ids("a")), engine), tokenizer, template, config)
    page = (await server.client.get("/metrics")).text
    assert "secret" not in page and 'dtype="float32"' in page and 'model_name="tea"' in page


async def test_nothing_from_a_client_breaks_a_log_line(
    make_server: MakeServer, caplog: pytest.LogCaptureFixture
) -> None:
    """Names and header values with line breaks, escape sequences, overlong or foreign text."""
    server = make_server()
    caplog.clear()
    caplog.set_level(logging.DEBUG)
    hostile = ["a\nERROR root: forged", "\r\x1b[2J", "\u2028x\u202e", "\0", "x" * 256, "ü\x85"]
    for text in hostile:
        raw = text.encode("utf-8")
        headers: dict[str, str | bytes] = {
            "x-request-id": raw, "x-session-id": raw * 300, "x-claude-code-session-id": raw, "user-agent": raw,
        }  # fmt: skip
        body = json.dumps({"model": text, "prompt": "a", "user": text}).encode()
        for path in ("/v1/completions", f"/v1/{text}"):
            exchange = Exchange(server.app, path, [body], headers=headers)
            await exchange.done()
            assert exchange.status == (200 if path == "/v1/completions" else 404)
            assert re.fullmatch(r"[!-~]{1,128}", exchange.headers["x-request-id"])
    ours = [message for name, _, message in caplog.record_tuples if name.startswith("samovar")]
    assert len(ours) == 2 * len(hostile) and all(re.fullmatch(r"[ -~]*", message) for message in ours)
    assert all(len(message) < 300 for message in ours)
    assert all(request.session_id.isprintable() for request in server.service.requests)
    assert all(len(request.session_id) <= 256 for request in server.service.requests)
