"""Several threads read and remember with one reader, under a memory that is always full."""

from __future__ import annotations

from concurrent.futures import ThreadPoolExecutor
import random

from samovar.base.keys import unpack_tokens
from samovar.text.answer import Answer
from samovar.text.template import ChatTemplate
from samovar.text.tokenizer import Tokenizer
from samovar.text.turns.reader import Turn, TurnReader
from tests.text.turns.conversations import BLOCK, CHATML, ROOT, long_way


def test_threads(small_bpe: Tokenizer) -> None:
    template = ChatTemplate({"default": CHATML}, {})
    reader = TurnReader(small_bpe, template, memory_bytes=60_000)

    def session(seed: int) -> None:
        """Of texts that several threads use; answers that nobody else gets."""
        rng = random.Random(seed)
        said = [{"role": "user", "content": f"question {seed % 3}"}]
        for turn in range(30):
            prompt = reader.read(Turn(said), ROOT, BLOCK)
            assert unpack_tokens(prompt.packed) == long_way(small_bpe, template, Turn(said))
            answer = f"answer {rng.randrange(3)} {turn}"
            if prompt.answer is not None:
                reader.remember(prompt.answer, [*small_bpe.encode(answer), small_bpe.eos_ids[0]], Answer(answer))
            said = [
                *said,
                {"role": "assistant", "content": answer},
                {"role": "user", "content": f"more {rng.randrange(3)}<|im_end|>"},
            ]

    with ThreadPoolExecutor(8) as pool:
        list(pool.map(session, range(16)))
    reader.check()
