"""What an engine process recorded, replayed in a fresh core."""

from __future__ import annotations

import asyncio
from pathlib import Path

import pytest
from tests.runner.conftest import Tiny
from tests.runner.test_process import PROMPT, collect, config, request

from samovar.base.errors import ConfigError
from samovar.base.ids import RequestId
from samovar.core.calls import Call, LogHeader
from samovar.core.config import EngineConfig
from samovar.core.replay import replay
from samovar.runner.call_log import CallLog, read_call_log
from samovar.runner.client import EngineClient
from samovar.runner.retention import policy_of

pytestmark = pytest.mark.torch


async def test_a_process_records_and_a_fresh_core_agrees(tiny: Tiny, tmp_path: Path) -> None:
    """Six requests at depth 2, two of them given up; every plan comes out again."""
    path = tmp_path / "calls"
    engine = await EngineClient.start(config(tiny, record_path=str(path), max_num_batched_tokens=64))
    try:
        streams = [await engine.submit(request(engine, n, [*PROMPT, n], max_tokens=20)) for n in range(6)]
        await anext(streams[0])
        engine.finish(RequestId(1), 0)
        await asyncio.gather(*(collect(stream) for stream in streams[2:]))
        steps = (await engine.stats()).steps
    finally:
        await engine.close()
    header, *calls = read_call_log(path)
    assert isinstance(header, LogHeader) and all(isinstance(call, Call) for call in calls)
    assert replay(header, calls, policy_of(header)) >= steps > 20  # type: ignore[arg-type]
    assert path.stat().st_mode & 0o777 == 0o600


def test_a_torn_end_is_the_end(tmp_path: Path) -> None:
    path = tmp_path / "calls"
    written = CallLog(path)
    header = LogHeader(EngineConfig(8, 16, max_model_len=100), "lru")
    written.write(header)
    written.write(header)  # long enough to be cut; never decoded
    written.close()
    path.write_bytes(path.read_bytes()[:-3])
    assert list(read_call_log(path)) == [header]
    path.write_bytes(b"\3\0\0\0abc")
    with pytest.raises(ConfigError, match="damaged"):
        list(read_call_log(path))


def test_a_path_that_cannot_be_written_is_named(tmp_path: Path) -> None:
    with pytest.raises(ConfigError, match="missing/calls"):
        CallLog(tmp_path / "missing" / "calls")


def test_a_full_disk_ends_the_log_and_not_the_engine(caplog: pytest.LogCaptureFixture) -> None:
    full = Path("/dev/full")
    if not full.exists():
        pytest.skip("no /dev/full here")
    written = CallLog(full)
    header = LogHeader(EngineConfig(8, 16, max_model_len=100), "x" * (1 << 21))
    written.write(header)
    written.write(header)
    written.close()
    assert caplog.text.count("ends here") == 1
