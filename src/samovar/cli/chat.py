"""`samovar chat`: talk to a server in the terminal, and see what each turn cost."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, field
import json
import time
from typing import Annotated, Any

import httpx
from rich.console import Console
from rich.markup import escape
import typer

from samovar.base.errors import SamovarError

HELP = "/clear forgets the conversation, /system TEXT sets the system message, /exit leaves."


@dataclass(slots=True)
class Turn:
    """What came back so far, and when."""

    began_s: float
    text: list[str] = field(default_factory=list)
    first_s: float | None = None
    last_s: float = 0.0
    usage: dict[str, Any] = field(default_factory=dict)

    def summary(self) -> str:
        tokens = int(self.usage.get("completion_tokens", 0))
        cached = int((self.usage.get("prompt_tokens_details") or {}).get("cached_tokens", 0))
        prompt = int(self.usage.get("prompt_tokens", 0))
        parts = [f"{prompt} tokens in, {cached} cached", f"{tokens} out"]
        if self.first_s is not None:
            parts.append(f"first after {self.first_s - self.began_s:.2f} s")
            if tokens > 1 and self.last_s > self.first_s:
                parts.append(f"{(tokens - 1) / (self.last_s - self.first_s):.1f} tokens/s")
        return " · ".join(parts)


def chat(
    message: Annotated[
        str | None, typer.Argument(help="Ask this once and leave; without it a conversation starts.")
    ] = None,
    url: Annotated[str, typer.Option(help="The server's OpenAI base address.")] = "http://127.0.0.1:8000/v1",
    model: Annotated[str | None, typer.Option(help="Model name to ask for.", show_default="the served one")] = None,
    system: Annotated[str | None, typer.Option(help="System message.")] = None,
    api_key: Annotated[str | None, typer.Option(envvar="SAMOVAR_API_KEY", help="Key of the server.")] = None,
    temperature: Annotated[float | None, typer.Option(help="0: always the likeliest token.")] = None,
    max_tokens: Annotated[int | None, typer.Option(help="Longest answer.")] = None,
) -> None:
    """Chat with a running server."""
    console = Console()
    headers = {"Authorization": f"Bearer {api_key}"} if api_key else {}
    options = {"model": model, "temperature": temperature, "max_tokens": max_tokens}
    body = {name: value for name, value in options.items() if value is not None}
    history: list[dict[str, str]] = [{"role": "system", "content": system}] if system else []
    with httpx.Client(base_url=url.rstrip("/") + "/", headers=headers, timeout=httpx.Timeout(10, read=600)) as client:
        if message is not None:
            asked = message.encode("utf-8", "replace").decode("utf-8")
            _turn(console, client, body, [*history, {"role": "user", "content": asked}])
            return
        if console.is_terminal:
            console.print(f"[dim]{HELP}[/]")
        while (line := _ask(console)) is not None:
            if line.startswith("/system"):
                history = [{"role": "system", "content": line.removeprefix("/system").strip()}]
            elif line == "/clear":
                history = [m for m in history if m["role"] == "system"]
            elif line == "/exit":
                return
            elif line.startswith("/"):
                console.print(f"[dim]{HELP}[/]")
            elif line:
                _converse(console, client, body, history, line)


def _ask(console: Console) -> str | None:
    try:
        # What is not UTF-8 came in as lone surrogates, which no JSON body can carry.
        line = console.input("[bold cyan]>[/] ") if console.is_terminal else input()
        return line.encode("utf-8", "replace").decode("utf-8").strip()
    except (EOFError, KeyboardInterrupt):
        if console.is_terminal:
            console.print()
        return None


def _converse(
    console: Console, client: httpx.Client, body: dict[str, Any], history: list[dict[str, str]], line: str
) -> None:
    """One turn of a conversation; one that failed or was cut off leaves the history as it was."""
    question = {"role": "user", "content": line}
    try:
        answer = _turn(console, client, body, [*history, question])
    except SamovarError as error:
        if not console.is_terminal:
            raise  # nobody is there to try again
        console.print(f"[bold red]error:[/] {escape(error.message)}", highlight=False)
    except KeyboardInterrupt:
        console.print("\n[dim]cut off[/]")
    else:
        history += [question, {"role": "assistant", "content": answer}]


def _turn(console: Console, client: httpx.Client, body: dict[str, Any], messages: list[dict[str, str]]) -> str:
    turn = Turn(time.perf_counter())
    request = {**body, "messages": messages, "stream": True, "stream_options": {"include_usage": True}}
    for piece in _stream(client, request, turn):
        console.print(piece, end="", markup=False, highlight=False, soft_wrap=True)
    console.print(f"\n[dim]{turn.summary()}[/]", highlight=False)
    return "".join(turn.text)


def _stream(client: httpx.Client, request: dict[str, Any], turn: Turn) -> Iterator[str]:
    try:
        with client.stream("POST", "chat/completions", json=request) as response:
            if response.status_code != 200:
                response.read()
                raise SamovarError(_message(response))
            for line in response.iter_lines():
                if not line.startswith("data: ") or line == "data: [DONE]":
                    continue
                yield from _piece(json.loads(line.removeprefix("data: ")), turn)
    except httpx.ConnectError as error:
        raise SamovarError(f"no server answers at {client.base_url}: start one with `samovar serve`") from error
    except httpx.HTTPError as error:
        raise SamovarError(f"the connection to {client.base_url} broke: {error}") from error


def _piece(event: dict[str, Any], turn: Turn) -> Iterator[str]:
    if "error" in event:
        raise SamovarError(str(event["error"].get("message", event["error"])))
    turn.usage = event.get("usage") or turn.usage
    for choice in event.get("choices", ()):
        piece = choice.get("delta", {}).get("content")
        if piece:
            turn.last_s = time.perf_counter()
            turn.first_s = turn.first_s or turn.last_s
            turn.text.append(piece)
            yield piece


def _message(response: httpx.Response) -> str:
    try:
        hint = ": does --url end in /v1?" if response.status_code == 404 else ""
        return f"{response.status_code}: {response.json()['error']['message']}{hint}"
    except (ValueError, KeyError, TypeError):
        return f"{response.status_code}: {response.text[:500]}"
