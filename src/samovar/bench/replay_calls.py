"""Turns a call of the replay into a request, and what came back into its record."""

from __future__ import annotations

from dataclasses import dataclass
import time
from typing import Any

import httpx
import msgspec
import numpy as np

from samovar.bench.replay_client import Answer, ask
from samovar.bench.replay_server import Server
from samovar.workload.agent_names import session_names
from samovar.workload.metrics_ceiling import InfiniteCache
from samovar.workload.metrics_record import RequestRecord
from samovar.workload.prompts import Tokens
from samovar.workload.prompts_maker import PromptMaker
from samovar.workload.prompts_text import Words
from samovar.workload.replay import Launch


@dataclass(slots=True)
class Sent:
    """A request under way."""

    launch: Launch
    units: Tokens
    ceiling_tokens: int
    answer: Answer


class Caller:
    """Makes the requests of one run at one concurrency. `cache` lives as long as the server's."""

    def __init__(
        self,
        client: httpx.AsyncClient,
        server: Server,
        maker: PromptMaker,
        words: Words,
        cache: InfiniteCache,
        *,
        run: str,
        concurrency: int,
        live_history: bool,
        timeout_s: float,
    ) -> None:
        self._client = client
        self._server = server
        self._maker = maker
        self._words = words
        self._cache = cache
        self._name = f"{run}-c{concurrency}"
        self._concurrency = concurrency
        self._live_history = live_history
        self._timeout_s = timeout_s

    def prepare(self, launch: Launch) -> Sent:
        units = self._maker.prompt(launch)
        now_s = time.monotonic()
        return Sent(launch, units, self._cache.look_up(units), Answer(now_s, now_s))

    async def call(self, sent: Sent) -> None:
        """Fills `sent.answer`. Cancelled, it leaves there what had come so far."""
        body = msgspec.json.encode(self._body(sent.launch, sent.units))
        path = "/v1/chat/completions" if self._server.form == "chat" else "/v1/completions"
        url = self._server.url + path
        await ask(self._client, url, body, self._headers(sent.launch), self._timeout_s, sent.answer)
        if self._live_history:
            self._remember(sent)

    def record(self, sent: Sent, began_s: float, *, cut: bool = False) -> RequestRecord:
        launch, answer = sent.launch, sent.answer
        planned = len(sent.units)
        return RequestRecord(
            concurrency=self._concurrency,
            lane=launch.lane,
            tree=launch.script.tree.id,
            visit=launch.visit,
            stream=launch.call.stream,
            turn=launch.call.turn,
            role=launch.call.role,
            phase=launch.phase,
            status="cut" if cut else "failed" if answer.error else "ok",
            error="cut off at the end of the run" if cut else answer.error,
            due_s=launch.due_s - began_s,
            start_s=answer.start_s - began_s,
            first_s=None if answer.first_s is None else answer.first_s - began_s,
            last_s=None if answer.last_s is None else answer.last_s - began_s,
            end_s=answer.end_s - began_s,
            planned_prompt_tokens=planned,
            prompt_tokens=planned if answer.prompt_tokens is None else answer.prompt_tokens,
            cached_tokens=answer.cached_tokens,
            ceiling_tokens=sent.ceiling_tokens,
            planned_output_tokens=launch.output_tokens,
            output_tokens=_output_tokens(answer),
            tree_turns=len(launch.script.calls),
        )

    def _body(self, launch: Launch, units: Tokens) -> dict[str, Any]:
        body: dict[str, Any] = {
            "model": self._server.model,
            "stream": True,
            "stream_options": {"include_usage": True},
        }
        if self._server.forces_length:
            body["ignore_eos"] = True
        if self._server.form == "chat":
            messages = self._maker.messages(launch, units)
            body["messages"] = [{"role": role, "content": self._words.text(part).strip()} for role, part in messages]
            body["max_completion_tokens"] = launch.output_tokens
            return body
        body["max_tokens"] = launch.output_tokens
        if self._server.form == "tokens":
            body["prompt"] = units.tolist()
            if self._live_history:
                body["return_token_ids"] = True
        else:
            body["prompt"] = self._words.text(units)
        return body

    def _headers(self, launch: Launch) -> dict[str, str]:
        """Names of the agent and its parent, as agents' clients send them."""
        own, parent = session_names(self._name, launch)
        headers = {
            "content-type": "application/json",
            "x-request-id": f"{own}-t{launch.call.turn}-{launch.id}",
            "x-session-id": own,
        }
        if parent:
            headers["x-parent-session-id"] = parent
        return headers

    def _remember(self, sent: Sent) -> None:
        answer = sent.answer
        if self._server.form == "tokens":
            units = np.asarray(answer.token_ids, dtype=np.int32)
        else:
            units = self._words.add("".join(answer.text), _output_tokens(answer))
        self._maker.answered(sent.launch, units)
        if len(units):
            # The last token was never fed back, so its KV was not written.
            self._cache.add(np.concatenate([sent.units, units[:-1]]))


def _output_tokens(answer: Answer) -> int:
    """As the server counted; without that, the ids it sent, or its pieces."""
    if answer.output_tokens is not None:
        return answer.output_tokens
    return len(answer.token_ids) or answer.pieces
