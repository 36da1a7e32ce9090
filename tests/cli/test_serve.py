"""`samovar serve` and `samovar chat` as a user runs them: SmolLM2, real processes, real sockets."""

from __future__ import annotations

from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
import os
from pathlib import Path
import re
import signal
import subprocess
import sys
import threading
import time

import httpx
from openai import OpenAI
import pytest

from samovar.kernels.cpu.native_library import native_library

pytestmark = [pytest.mark.torch, pytest.mark.model, pytest.mark.slow]

QUESTION = [{"role": "user", "content": "Name the capital of France."}]


class Server:
    def __init__(self, log: Path, *flags: str) -> None:
        self.began = time.monotonic()
        self.log = log
        command = [sys.executable, "-m", "samovar.cli.main", "serve", "--port", "0", "--num-threads", "1", *flags]
        with log.open("w") as stderr:
            self.process = subprocess.Popen(command, stderr=stderr)
        self.url = self._wait()

    def _wait(self) -> str:
        while time.monotonic() - self.began < 120:
            found = re.search(r"serving .* on (http://\S+)/v1", self.log.read_text())
            if found:
                return found[1]
            assert self.process.poll() is None, self.log.read_text()
            time.sleep(0.05)
        raise TimeoutError(self.log.read_text())

    @property
    def client(self) -> OpenAI:
        return OpenAI(base_url=f"{self.url}/v1", api_key="none", max_retries=0, timeout=120)

    def engine_pid(self) -> int:
        children = Path(f"/proc/{self.process.pid}/task/{self.process.pid}/children").read_text().split()
        found = [int(pid) for pid in children if b"samovar.runner.process" in Path(f"/proc/{pid}/cmdline").read_bytes()]
        assert len(found) == 1
        return found[0]


@contextmanager
def serving(log: Path, *flags: str) -> Iterator[Server]:
    server = Server(log, *flags)
    try:
        yield server
    finally:
        if server.process.poll() is None:
            server.process.terminate()
        server.process.wait(60)


@pytest.fixture(scope="module")
def server(tmp_path_factory: pytest.TempPathFactory, smollm2_gguf: Path) -> Iterator[Server]:
    with serving(tmp_path_factory.mktemp("serve") / "log") as running:
        yield running
    assert running.process.returncode == 0
    assert "Traceback" not in running.log.read_text()


def test_sensible_english_within_15_seconds(server: Server) -> None:
    answer = server.client.chat.completions.create(model="any", messages=QUESTION, temperature=0, max_tokens=30)
    seconds = time.monotonic() - server.began
    assert "Paris" in answer.choices[0].message.content
    assert answer.usage.prompt_tokens_details.cached_tokens == 0
    assert seconds < 15, f"{seconds:.1f} s from the start to the first answer"


@pytest.mark.parametrize("sampling", [{"temperature": 0}, {"temperature": 0.9, "seed": 5, "extra_body": {"top_k": 40}}])
def test_streaming_gives_the_same_text(server: Server, sampling: dict) -> None:
    request = {"model": "any", "messages": QUESTION, "max_tokens": 40, **sampling}
    whole = server.client.chat.completions.create(**request)
    pieces = list(server.client.chat.completions.create(**request, stream=True, stream_options={"include_usage": True}))
    text = "".join(chunk.choices[0].delta.content or "" for chunk in pieces if chunk.choices)
    assert text == whole.choices[0].message.content and text
    assert pieces[-1].choices == [] and pieces[-1].usage.completion_tokens == whole.usage.completion_tokens
    assert pieces[-1].usage.prompt_tokens_details.cached_tokens > 0


def test_the_api_process_has_no_torch(server: Server) -> None:
    maps = Path(f"/proc/{server.process.pid}/maps")
    if not maps.exists():
        pytest.skip("no /proc here")
    assert "libtorch" not in maps.read_text()
    assert "libtorch" in Path(f"/proc/{server.engine_pid()}/maps").read_text(), "the check would see it"


def test_chat_shows_what_a_turn_cost(server: Server) -> None:
    run = subprocess.run(
        [sys.executable, "-m", "samovar.cli.main", "chat", "--url", f"{server.url}/v1", "--temperature", "0"],
        input="Name the capital of France.\nAnd of Italy?\n/exit\n",
        capture_output=True,
        text=True,
        timeout=120,
    )
    assert run.returncode == 0 and "Paris" in run.stdout
    turns = re.findall(r"(\d+) tokens in, (\d+) cached · (\d+) out", run.stdout)
    assert len(turns) == 2 and int(turns[1][1]) > 0 and "tokens/s" in run.stdout


def test_a_prompt_longer_than_the_context(server: Server) -> None:
    answer = httpx.post(f"{server.url}/v1/completions", json={"prompt": [5] * 9000, "max_tokens": 1}, timeout=60)
    message = answer.json()["error"]["message"]
    assert answer.status_code == 400 and "9000" in message and "8192" in message


@pytest.mark.parametrize("victim", ["engine", "server"])
def test_sudden_and_orderly_ends(tmp_path: Path, smollm2_gguf: Path, victim: str) -> None:
    """The engine dies: an error event at once, 503 for new requests, a failure code. SIGTERM: open requests finish."""
    with serving(tmp_path / "log", "--kv-cache-memory-bytes", "256MiB", "--max-num-batched-tokens", "256") as server:
        engine = server.engine_pid()
        body = {"prompt": "Once upon a time", "max_tokens": 40, "ignore_eos": True, "stream": True}
        with httpx.stream("POST", f"{server.url}/v1/completions", json=body, timeout=60) as response:
            lines = response.iter_lines()
            assert next(lines).startswith("data: {")
            if victim == "engine":
                os.kill(engine, signal.SIGKILL)
                rest = list(lines)
                assert any('"error"' in line for line in rest)
                refused = httpx.post(f"{server.url}/v1/completions", json={"prompt": "x"}, timeout=10)
                assert refused.status_code == 503 and refused.json()["error"]["code"] == "engine_dead"
            else:
                server.process.terminate()
                time.sleep(0.2)
                refused = httpx.post(f"{server.url}/v1/completions", json={"prompt": "x"}, timeout=10)
                assert refused.status_code == 503 and "Retry-After" in refused.headers
                rest = list(lines)
                assert rest[-2:] == ["data: [DONE]", ""] and not any('"error"' in line for line in rest)
        code = server.process.wait(30)
        log = server.log.read_text()
        assert (code, "Traceback" in log) == ((1 if victim == "engine" else 0), False)
        assert ("died" in log) is (victim == "engine")
        assert not Path(f"/proc/{engine}").exists()


def test_every_stream_hears_at_once_that_the_engine_was_killed(tmp_path: Path, smollm2_gguf: Path) -> None:
    """Four streams in mono decode on two threads; the signal comes in the middle of a step, of which there is one at
    all times."""
    if native_library() is None:
        pytest.skip("this installation has no native kernels")
    flags = ("--monokernel", "on", "--num-threads", "2", "--kv-cache-memory-bytes", "256MiB")
    with serving(tmp_path / "log", *flags, "--max-num-batched-tokens", "256") as server:
        engine = server.engine_pid()
        assert "mono decode: up to 64 rows" in server.log.read_text()
        decoding = threading.Barrier(5, timeout=60)

        def listen(number: int) -> tuple[float, list[str]]:
            prompt = f"{number} green bottles, hanging on the wall"
            body = {"prompt": prompt, "max_tokens": 2000, "ignore_eos": True, "stream": True}
            with httpx.stream("POST", f"{server.url}/v1/completions", json=body, timeout=60) as response:
                lines = (line for line in response.iter_lines() if line)
                for _ in range(5):
                    assert '"error"' not in next(lines)
                decoding.wait()
                rest = list(lines)
                return time.monotonic(), rest

        with ThreadPoolExecutor(4) as pool:
            listening = [pool.submit(listen, number) for number in range(4)]
            decoding.wait()
            time.sleep(0.1)
            os.kill(engine, signal.SIGKILL)
            died = time.monotonic()
            for ended, rest in (each.result(30) for each in listening):
                assert ended - died < 1.0
                assert '"engine_dead"' in rest[-1] or '"engine_dead"' in rest[-2]
        assert server.process.wait(30) == 1
