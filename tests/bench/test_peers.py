"""The comparison of servers, against servers that are scripts."""

from __future__ import annotations

from dataclasses import replace
import json
import math
from pathlib import Path
import random
import subprocess
import sys
from typing import Any

from benchmarks.peer_client import Answer, Endpoint, complete
from benchmarks.peer_scenarios import FILLER, Agents, Streams, continued, figures_of, prompt, run_scenario, warm_up
from benchmarks.peer_servers import Running, Server, SetupError, read_servers
from benchmarks.peers import better, rotated, seed_of, summary, table_of
import httpx
import pytest

ROOT = Path(__file__).resolve().parent.parent.parent
VLLM, LLAMA = Endpoint("http://peer", "vllm", "m"), Endpoint("http://peer", "llama", "m")


def stream(*events: Any) -> httpx.Response:
    lines = "".join(f"data: {event if isinstance(event, str) else json.dumps(event)}\n\n" for event in events)
    return httpx.Response(200, text=lines)


class Peer:
    """Answers both APIs with as many tokens as are asked for, and remembers the requests."""

    def __init__(self) -> None:
        self.bodies: list[dict[str, Any]] = []
        self.paths: list[str] = []

    def __call__(self, request: httpx.Request) -> httpx.Response:
        body = json.loads(request.content)
        self.bodies.append(body)
        self.paths.append(request.url.path)
        if request.url.path == "/completion":
            ids = range(2_000, 2_000 + body["n_predict"])
            # a piece without its id, and a last event that repeats what came before
            pieces = [{"tokens": [one]} for one in ids[1:]]
            last = {"stop": True, "tokens": list(ids), "tokens_predicted": len(ids), "timings": {"cache_n": 5}}
            return stream(*pieces, last)
        count = body["max_tokens"]
        usage = {"completion_tokens": count, "prompt_tokens_details": {"cached_tokens": 7}}
        chunks = [{"choices": [{"token_ids": [3_000 + one]}]} for one in range(count)]
        return stream(*chunks, {"choices": [], "usage": usage}, "[DONE]")

    def client(self) -> httpx.AsyncClient:
        return httpx.AsyncClient(transport=httpx.MockTransport(self))


async def test_both_apis() -> None:
    peer = Peer()
    async with peer.client() as client:
        one, other = await complete(client, VLLM, [1, 2, 3], 4), await complete(client, LLAMA, [1, 2, 3], 4)
    assert peer.paths == ["/v1/completions", "/completion"]
    assert peer.bodies[0]["prompt"] == peer.bodies[1]["prompt"] == [1, 2, 3]
    assert peer.bodies[0]["ignore_eos"] and peer.bodies[1]["ignore_eos"]
    assert (one.error, one.token_ids, one.cached_tokens) == ("", [3000, 3001, 3002, 3003], 7)
    assert (other.error, other.token_ids, other.cached_tokens) == ("", [2001, 2002, 2003], 5)
    assert one.tokens == other.tokens == 4, "the server counts tokens whose ids it leaves out"
    assert 0 < one.first_s <= one.end_s


@pytest.mark.parametrize(
    ("answer", "message"),
    [
        (httpx.Response(500, text="no room"), "HTTP 500: no room"),
        (stream({"error": {"message": "gone"}}), "gone"),
        (stream({"choices": [{"token_ids": [1]}]}), "1 tokens came, 2 were asked for"),
        (httpx.Response(200, text="data: {\n\n"), "JSONDecodeError"),
    ],
)
async def test_failures_are_told(answer: httpx.Response, message: str) -> None:
    async with httpx.AsyncClient(transport=httpx.MockTransport(lambda _: answer)) as client:
        got = await complete(client, VLLM, [1], 2)
    assert message in got.error


def answered(tokens: int, arrivals: list[float], **changes: Any) -> Answer:
    return Answer(10, tokens, arrivals, list(range(len(arrivals))), **changes)


def test_figures_of_requests() -> None:
    first = answered(3, [1.0, 1.5, 3.0], cached_tokens=4)
    second = answered(3, [2.0, 2.5, 3.0])
    failed = answered(3, [9.0], error="gone")
    figures = figures_of([first, second, failed], 3.0)
    assert (figures["requests"], figures["errors"], figures["output_tokens_per_s"]) == (2, 1, 2.0)
    assert figures["ttft_ms"] == 1500
    assert figures["stream_tokens_per_s"] == (1.0 + 2.0) / 2
    assert (figures["longest_gap_ms"], figures["worst_gap_ms"]) == (1000, 1500)
    assert figures["computed_prompt_tokens"] == 16
    assert math.isnan(figures_of([failed], 3.0)["ttft_ms"])


def test_a_rate_needs_two_tokens_at_two_times() -> None:
    assert math.isnan(answered(1, [1.0]).tokens_per_s)
    assert math.isnan(answered(2, [1.0, 1.0]).tokens_per_s)


async def test_streams_are_fresh_each_time_and_equal_for_every_server() -> None:
    shape, peers = Streams(lanes=2, requests=5, prompt_tokens=20, output_tokens=3), [Peer(), Peer(), Peer()]
    for peer, endpoint, seed in zip(peers, (VLLM, LLAMA, VLLM), (1, 1, 2), strict=True):
        async with peer.client() as client:
            figures = await run_scenario(client, endpoint, shape, seed)
        assert (figures["requests"], figures["errors"]) == (5, 0)
    first, same, fresh = ([body["prompt"] for body in peer.bodies] for peer in peers)
    assert first == same
    assert len({tuple(one) for one in first + fresh}) == 10
    assert all(len(one) == 20 for one in first)


@pytest.mark.parametrize("endpoint", [VLLM, LLAMA])
async def test_agents_send_their_history(endpoint: Endpoint) -> None:
    shape = Agents(sessions=2, turns=3, first_tokens=30, added_tokens=5, output_tokens=4)
    peer = Peer()
    async with peer.client() as client:
        figures = await run_scenario(client, endpoint, shape, 0)
    assert (figures["requests"], figures["errors"]) == (6, 0)
    assert figures["first_turn_ttft_ms"] > 0 and figures["later_turn_ttft_ms"] > 0
    prompts = sorted((body["prompt"] for body in peer.bodies), key=len)
    assert [len(one) for one in prompts] == [30, 30, 39, 39, 48, 48]
    for long in prompts[2:4]:
        assert long[:30] in prompts[:2]
        answer = [3000, 3001, 3002, 3003] if endpoint is VLLM else [2001, 2002, 2003, FILLER]
        assert long[30:34] == answer


def test_a_history_grows_by_what_was_asked_for() -> None:
    assert continued([1], answered(2, [1.0, 2.0, 3.0])) == [1, 0, 1]
    assert continued([1], answered(3, [1.0])) == [1, 0, FILLER, FILLER]


async def test_a_server_that_cannot_warm_up_is_not_measured() -> None:
    transport = httpx.MockTransport(lambda _: httpx.Response(500, text="no"))
    async with httpx.AsyncClient(transport=transport) as client:
        with pytest.raises(RuntimeError, match="2 of 2 warm-up requests failed"):
            await warm_up(client, VLLM, 0)


def test_prompts_are_inside_the_range() -> None:
    ids = prompt(random.Random(0), 1000)
    assert len(ids) == 1000 and min(ids) >= 1_000 and max(ids) < 30_000


def test_medians_ratios_and_order() -> None:
    runs = [{"wall_s": 4.0, "stream_tokens_per_s": 10.0}, {"wall_s": 2.0, "stream_tokens_per_s": 30.0}]
    slower = [{"wall_s": 9.0, "stream_tokens_per_s": 5.0}]
    result = summary({"agent": {"ours": runs, "theirs": slower}}, ["ours", "theirs"])["agent"]
    assert result["ours"]["median"] == {"wall_s": 3.0, "stream_tokens_per_s": 20.0}
    assert result["theirs"]["first_is_better"] == {"wall_s": 3.0, "stream_tokens_per_s": 4.0}
    assert math.isnan(better("wall_s", 0.0, 1.0))
    servers = [Server(name, "u", "vllm") for name in "abc"]
    assert [one.name for one in rotated(servers, 4)] == ["b", "c", "a"]
    assert seed_of(0, 1, "agent") == seed_of(0, 1, "agent") != seed_of(0, 2, "agent")


def test_a_table_shows_ratios() -> None:
    figures = dict.fromkeys(("stream_tokens_per_s", "ttft_ms", "longest_gap_ms"), 8.0)
    result = summary({"single512": {"ours": [figures], "theirs": [figures | {"ttft_ms": 20.0}]}}, ["ours", "theirs"])
    table = table_of("single512", result["single512"], 1)
    cells = [list(column.cells) for column in table.columns]
    assert cells[2] == ["8.0", "20.0  2.50x"]


def test_reads_a_file_of_servers(tmp_path: Path) -> None:
    path = tmp_path / "servers.toml"
    path.write_text(
        '[[server]]\nname = "a"\nurl = "http://x/"\napi = "llama"\ncommand = ["run", "it"]\nenv = {A = "1"}\n'
    )
    (server,) = read_servers(path)
    assert server.command == ("run", "it") and server.env == {"A": "1"}
    assert server.endpoint == Endpoint("http://x", "llama", "default")


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("", r"has no \[\[server\]\]"),
        ("[[server", "servers.toml: "),
        ('[[server]]\nname = "a"\nurl = "u"', "server 1: field api is missing"),
        ('[[server]]\nname = "a"\nurl = "u"\napi = "grpc"', "api must be vllm or llama, got 'grpc'"),
        ('[[server]]\nname = "a"\nurl = "u"\napi = "vllm"\nport = 1', "unknown field port"),
        ('[[server]]\nname = "a"\nurl = "u"\napi = "vllm"\ncommand = "run"', "command must be a list of words"),
        ('[[server]]\nname = "a"\nurl = "u"\napi = "vllm"\n' * 2, "names must differ, got a, a"),
    ],
)
def test_refuses_a_file(tmp_path: Path, text: str, message: str) -> None:
    path = tmp_path / "servers.toml"
    path.write_text(text)
    with pytest.raises(SetupError, match=message):
        read_servers(path)


FAKE = """
import json, os, sys, time
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer

class Handler(BaseHTTPRequestHandler):
    def do_POST(self):
        body = json.loads(self.rfile.read(int(self.headers["content-length"])))
        self.send_response(200)
        self.end_headers()
        for token in range(body["max_tokens"]):
            self.wfile.write(b"data: " + json.dumps({"choices": [{"token_ids": [token]}]}).encode() + b"\\n\\n")
            self.wfile.flush()
            time.sleep(float(os.environ.get("PAUSE_S", "0")))
    def log_message(self, *args):
        pass

print("serving for", os.environ["WHO"], flush=True)
ThreadingHTTPServer(("127.0.0.1", int(sys.argv[1])), Handler).serve_forever()
"""


def servers_file(tmp_path: Path, port: int) -> Path:
    script, path = tmp_path / "fake.py", tmp_path / "servers.toml"
    script.write_text(FAKE)
    path.write_text(
        f'[[server]]\nname = "fake"\nurl = "http://127.0.0.1:{port}"\napi = "vllm"\n'
        f'command = ["{sys.executable}", "{script}", "{port}"]\nenv = {{ WHO = "a test" }}\nnote = "a script"\n'
    )
    return path


def free_port() -> int:
    import socket

    with socket.socket() as one:
        one.bind(("127.0.0.1", 0))
        port: int = one.getsockname()[1]
        return port


def test_the_whole_command(tmp_path: Path) -> None:
    out, port = tmp_path / "out.json", free_port()
    command = [sys.executable, "-m", "benchmarks.peers", str(servers_file(tmp_path, port)), "--reps", "2"]
    command += ["--scenarios", "single512,agent", "--json", str(out), "--logs", str(tmp_path / "logs")]
    done = subprocess.run(command, cwd=ROOT, capture_output=True, text=True, timeout=120, check=False)
    assert done.returncode == 0, done.stderr
    result = json.loads(out.read_text())
    assert result["repeats"] == 2 and str(tmp_path) not in out.read_text()
    assert result["config"]["servers"] == [{"name": "fake", "api": "vllm", "note": "a script"}]
    runs = result["measured"]["runs"]
    assert [len(runs[name]["fake"]) for name in ("single512", "agent")] == [2, 2]
    assert runs["agent"]["fake"][0]["requests"] == 48
    assert result["measured"]["summary"]["agent"]["fake"]["first_is_better"]["wall_s"] == 1.0
    assert "single512, median of 2" in done.stdout
    assert "serving for a test" in (tmp_path / "logs" / "fake.log").read_text()
    with pytest.raises(httpx.ConnectError):
        httpx.get(f"http://127.0.0.1:{port}")


async def test_a_server_that_ends_at_its_start(tmp_path: Path) -> None:
    server = Server("short", f"http://127.0.0.1:{free_port()}", "vllm", command=("sh", "-c", "echo why; exit 3"))
    async with httpx.AsyncClient() as client:
        with pytest.raises(SetupError, match="short: ended at its start\nwhy"):
            await Running.start(server, client, tmp_path / "log")


async def test_a_server_that_is_not_there(tmp_path: Path) -> None:
    server = Server("away", f"http://127.0.0.1:{free_port()}", "vllm")
    async with httpx.AsyncClient() as client:
        with pytest.raises(SetupError, match="away: does not answer"):
            await Running.start(server, client, tmp_path / "log")


async def test_tokens_are_timed_when_they_come(tmp_path: Path) -> None:
    path, pause_s = servers_file(tmp_path, free_port()), 0.05
    (server,) = read_servers(path)
    async with httpx.AsyncClient() as client:
        running = await Running.start(
            replace(server, env={"WHO": "a slow one", "PAUSE_S": str(pause_s)}), client, tmp_path / "log"
        )
        try:
            answer = await complete(client, server.endpoint, [1], 6)
        finally:
            running.stop()
    assert not answer.error and len(answer.arrivals) == 6
    assert answer.arrivals[-1] - answer.arrivals[0] > 4 * pause_s
    assert 0.5 / pause_s / 20 < answer.tokens_per_s < 1.3 / pause_s
    assert answer.end_s > answer.arrivals[-1]
