"""`--record-trace`: calls through the API become a session file; answers stay as they are."""

from __future__ import annotations

from pathlib import Path

from samovar.base.errors import Saturated
from samovar.bench.replay_server import ServerOptions, find_out
from samovar.core.ports import EngineInfo
from samovar.serve.config import ServeConfig
from samovar.serve.recorded import RecordedService
from samovar.text.template import ChatTemplate
from samovar.text.tokenizer import Tokenizer
from samovar.workload.prompts import TokenRange
from samovar.workload.reading import read_sessions
from samovar.workload.recording import Recorder
from tests.serve.asgi import Server
from tests.serve.conftest import ids
from tests.serve.scripted import BLOCK, Script, ScriptedService


def _server(
    script: Script, folder: Path, info: EngineInfo, tokenizer: Tokenizer, template: ChatTemplate
) -> tuple[Server, Recorder]:
    recorder = Recorder(folder, "run", BLOCK)
    service = RecordedService(ScriptedService(lambda request: script, info), recorder, "tea")
    return Server(service, tokenizer, template, ServeConfig(model="tea")), recorder  # type: ignore[arg-type]


async def test_turns_of_a_session(
    tmp_path: Path, info: EngineInfo, tokenizer: Tokenizer, template: ChatTemplate
) -> None:
    server, recorder = _server(Script(ids("Yes.", end=True)), tmp_path, info, tokenizer, template)
    messages = [{"role": "user", "content": "Tell me a secret. " * 20}]
    for stream in (False, True):
        body = {"messages": messages, "stream": stream, "session_id": "mine"}
        answer = await server.client.post("/v1/chat/completions", json=body)
        assert answer.status_code == 200
        messages = [*messages, {"role": "assistant", "content": "Yes."}, {"role": "user", "content": "More! " * 30}]
    recorder.close()
    (session,) = read_sessions([tmp_path])
    one, two = session.main.turns
    assert (one.stop, one.output_tokens, one.model) == ("end_turn", 5, "tea")
    assert two.blocks[: len(one.blocks)].tolist() == one.blocks.tolist()
    assert len(two.blocks) > len(one.blocks) > 4
    assert one.input_tokens // 64 == len(one.blocks)
    assert all(b"secret" not in path.read_bytes() for path in tmp_path.iterdir())


async def test_stop_strings_and_lengths(
    tmp_path: Path, info: EngineInfo, tokenizer: Tokenizer, template: ChatTemplate
) -> None:
    # More tokens than could ever come before the stop string is seen.
    endless = Script(ids("abcd" + "x" * 3000), delay_s=0.02)
    server, recorder = _server(endless, tmp_path, info, tokenizer, template)
    for more in ({"stop": "cd", "max_tokens": 4000}, {"max_tokens": 3}):
        body = {"prompt": "x" * 70, "session_id": str(more), **more}
        assert (await server.client.post("/v1/completions", json=body)).status_code == 200
    recorder.close()
    found = {(turn.stop, turn.output_tokens) for session in read_sessions([tmp_path]) for turn in session.main.turns}
    assert found == {("stopped", 4), ("max_tokens", 3)}


async def test_refused_calls_are_not_recorded(
    tmp_path: Path, info: EngineInfo, tokenizer: Tokenizer, template: ChatTemplate
) -> None:
    server, recorder = _server(Script((), refusal=Saturated("full")), tmp_path, info, tokenizer, template)
    assert (await server.client.post("/v1/completions", json={"prompt": "x"})).status_code == 429
    assert recorder.num_open == 0
    recorder.close()
    assert list(tmp_path.iterdir()) == []


async def test_finding_out_about_a_server_is_not_recorded(
    tmp_path: Path, info: EngineInfo, tokenizer: Tokenizer, template: ChatTemplate
) -> None:
    server, recorder = _server(Script(ids("Y", end=True)), tmp_path, info, tokenizer, template)
    for form in ("tokens", "text", "chat"):
        found = await find_out(server.client, "http://test", ServerOptions(form=form), TokenRange(10, 200))
        assert (found.form, found.forces_length) == (form, True)
    assert recorder.num_open == 0
    assert (await server.complete("Hi")).status_code == 200
    assert recorder.num_open == 1
    recorder.close()
