"""The engine process on native kernels with mono decode, as `samovar serve` runs it by default: the same tokens as the
normal path, and a sudden end that every open stream hears of at once."""

from __future__ import annotations

import asyncio
import os
from pathlib import Path
import signal
import time

import pytest

pytest.importorskip("torch")
from tests.kernels.packed import native_levels, needs_native
from tests.models.oracle import save_tiny
from tests.runner.test_process import collect, request

from samovar.base.errors import EngineDead
from samovar.core.events import FinishReason
from samovar.runner.client import EngineClient
from samovar.runner.config import EngineProcessConfig

pytestmark = [
    pytest.mark.torch,
    needs_native,
]

PROMPTS = [[3 + n, 14, 15, 92, 65, 35, *range(n)] for n in range(4)]


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    made = tmp_path_factory.mktemp("tiny")
    save_tiny(made, hidden_size=64, intermediate_size=96, num_attention_heads=4, head_dim=32, tie_word_embeddings=True)
    return made


def config(folder: Path, monokernel: str) -> EngineProcessConfig:
    return EngineProcessConfig(
        model=str(folder),
        cache_dir=str(folder.parent),
        monokernel=monokernel,
        num_threads=2,
        num_gpu_blocks_override=200,
        max_num_batched_tokens=64,
    )


async def test_the_same_tokens_with_and_without_mono_decode(folder: Path) -> None:
    made = []
    for monokernel, most_rows in (("on", "64"), ("off", "0")):
        engine = await EngineClient.start(config(folder, monokernel))
        try:
            settings = engine.info.settings
            assert (settings["isa"], settings["monokernel-max-rows"]) == (native_levels()[0], most_rows)
            asked = [request(engine, n, prompt, max_tokens=100) for n, prompt in enumerate(PROMPTS)]
            streams = [await engine.submit(each) for each in asked]
            made.append([tokens for tokens, _ in await asyncio.gather(*map(collect, streams))])
            await engine.check()
        finally:
            await engine.close()
    assert made[0] == made[1]
    assert all(len(tokens) == 100 for tokens in made[0]) and len(set(map(tuple, made[0]))) == len(PROMPTS)


async def test_killed_while_it_decodes(folder: Path) -> None:
    engine = await EngineClient.start(config(folder, "on"))
    try:
        streams = [await engine.submit(request(engine, n, prompt, max_tokens=500)) for n, prompt in enumerate(PROMPTS)]
        for stream in streams:
            for _ in range(3):
                assert (await anext(stream)).finish is None
        os.kill(engine.pid, signal.SIGKILL)
        died = time.monotonic()
        for _, last in await asyncio.wait_for(asyncio.gather(*map(collect, streams)), 5):
            assert last.finish is FinishReason.ERROR and last.error is not None
            assert last.error.code == "engine_dead" and "SIGKILL" in last.error.message
        assert time.monotonic() - died < 1.0
        with pytest.raises(EngineDead, match="SIGKILL"):
            await engine.submit(request(engine, 9, PROMPTS[0]))
    finally:
        await engine.close()
