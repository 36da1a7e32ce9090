"""The servers of a comparison: read from a TOML file, started, waited for and stopped."""

from __future__ import annotations

import asyncio
from contextlib import suppress
from dataclasses import dataclass, field, fields
import os
from pathlib import Path
import signal
import subprocess
import time
import tomllib
from typing import Any, get_args

from benchmarks.peer_client import Api, Endpoint, complete
import httpx

POLL_S = 0.5
STOP_S = 30.0
LOG_TAIL_CHARACTERS = 800


class SetupError(Exception):
    """Something in the file of servers, or a server, is not as it must be."""


@dataclass(frozen=True)
class Server:
    name: str
    url: str
    """Without /v1."""
    api: Api
    """vllm: /v1/completions, as vLLM and Samovar serve it; llama: llama.cpp's /completion."""
    model: str = ""
    """What the vLLM API calls the model; may be left out where any name is served."""
    command: tuple[str, ...] = ()
    """Starts it; without one it must be running."""
    env: dict[str, str] = field(default_factory=dict)
    """Added to the environment of `command`."""
    ready_s: float = 600.0
    """The longest it may take to start."""
    note: str = ""
    """Version and settings, in words, for the result."""

    @property
    def endpoint(self) -> Endpoint:
        return Endpoint(self.url.rstrip("/"), self.api, self.model or "default")


def read_servers(path: Path) -> list[Server]:
    """Tables [[server]] of a TOML file, with the fields of `Server`. Raises SetupError, naming the field."""
    try:
        tables = tomllib.loads(path.read_text())
    except (OSError, tomllib.TOMLDecodeError) as error:
        raise SetupError(f"{path}: {error}") from error
    found = tables.get("server")
    if not isinstance(found, list) or not found:
        raise SetupError(f"{path}: has no [[server]]")
    servers = [_server(f"{path}: server {number}", table) for number, table in enumerate(found, 1)]
    names = [server.name for server in servers]
    if len(set(names)) != len(names):
        raise SetupError(f"{path}: names must differ, got {', '.join(names)}")
    return servers


def _server(where: str, table: Any) -> Server:
    known = {one.name for one in fields(Server)}
    wrong = [name for name in table if name not in known]
    missing = [name for name in ("name", "url", "api") if name not in table]
    if wrong or missing:
        raise SetupError(f"{where}: {f'unknown field {wrong[0]}' if wrong else f'field {missing[0]} is missing'}")
    if table["api"] not in get_args(Api):
        raise SetupError(f"{where}: api must be {' or '.join(get_args(Api))}, got {table['api']!r}")
    command = table.get("command", [])
    if not isinstance(command, list) or not all(isinstance(word, str) for word in command):
        raise SetupError(f"{where}: command must be a list of words")
    return Server(**{**table, "command": tuple(command)})


class Running:
    """A server that answers. One that was started here is stopped, with all of its processes, by `stop`."""

    def __init__(self, server: Server, process: subprocess.Popen[bytes] | None, log: Path) -> None:
        self.server = server
        self._process = process
        self._log = log

    @classmethod
    async def start(cls, server: Server, client: httpx.AsyncClient, log: Path) -> Running:
        """Returns when it has answered a request. Raises SetupError with the end of its log."""
        process = None
        if server.command:
            # What answers already would be measured in place of what is started, beside it on the same cores.
            if not (await complete(client, server.endpoint, [1000, 1001], 1)).error:
                raise SetupError(f"{server.name}: something answers at {server.url} already; stop it first")
            with log.open("wb") as out:
                process = subprocess.Popen(
                    server.command,
                    stdin=subprocess.DEVNULL,
                    stdout=out,
                    stderr=subprocess.STDOUT,
                    env=os.environ | server.env,
                    start_new_session=True,
                )
        running = cls(server, process, log)
        try:
            await running._until_ready(client)
        except BaseException:
            running.stop()
            raise
        return running

    async def _until_ready(self, client: httpx.AsyncClient) -> None:
        deadline = time.monotonic() + (self.server.ready_s if self._process else 0.0)
        while True:
            answer = await complete(client, self.server.endpoint, [1000, 1001], 1)
            if not answer.error:
                return
            gone = self._process is not None and self._process.poll() is not None
            if gone or time.monotonic() >= deadline:
                why = "ended at its start" if gone else f"does not answer ({answer.error})"
                raise SetupError(f"{self.server.name}: {why}\n{self._log_tail()}")
            await asyncio.sleep(POLL_S)

    def pause(self) -> None:
        """Takes it off the cores, its memory stays: some servers spin while they are idle."""
        if self._process is not None:
            self._signal(signal.SIGSTOP)

    def resume(self) -> None:
        if self._process is not None:
            self._signal(signal.SIGCONT)

    def send(self, number: signal.Signals) -> None:
        """To all of its processes."""
        if self._process is not None:
            self._signal(number)

    def stop(self) -> None:
        if self._process is None:
            return
        self._signal(signal.SIGCONT)
        # The whole group, and again when its first process is gone: a helper that outlives it would take a core.
        self._signal(signal.SIGTERM)
        with suppress(subprocess.TimeoutExpired):
            self._process.wait(STOP_S)
        self._signal(signal.SIGKILL)
        self._process.wait()
        self._process = None

    def _signal(self, number: signal.Signals) -> None:
        assert self._process is not None
        with suppress(ProcessLookupError):
            os.killpg(self._process.pid, number)

    def _log_tail(self) -> str:
        return self._log.read_text(errors="replace")[-LOG_TAIL_CHARACTERS:] if self._log.is_file() else ""
