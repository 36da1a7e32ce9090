"""What a turn costs before the engine sees it, against the length of its conversation: `samovar bench frontend`.

Conversations of an agent at work: definitions of tools, then calls and their results. For each length a new
conversation is brought up to it and then goes on by one answer, which the front end knows, and one result of
`new_tokens` tokens, which it does not. Measured is that turn, from the bytes of its body to what the engine is sent;
beside it a front end that knows nothing, and whatever else encodes the same text.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
import gc
import json
import random
from statistics import median
import time
from typing import Any, Protocol

from samovar.base.keys import TOKEN_BYTES, pack_tokens

Progress = Callable[[str], None]
Encode = Callable[[str], Sequence[int]]

ANSWER_TOKENS = 150
TURN_TOKENS = 1000
"""Of a call and of its result, on the way to a length; about."""
_WORDS = (
    *(" def", " return", " self", " the", " a", " of", " value", " for", " in", " if", " not", " None", " kettle"),
    *(
        "\n    ",
        "\n\n",
        "(",
        ")",
        ":",
        " =",
        ".",
        ",",
        " 1",
        "_tokens",
        "é",
        " naïve",
        "\t",
        "'",
        '"',
        " # why",
        "0x7f",
    ),
)
_TOOLS = [
    {
        "type": "function",
        "function": {
            "name": name,
            "description": f"{what} a file of the project.",
            "parameters": {
                "type": "object",
                "properties": {"path": {"type": "string"}, "why": {"type": "string"}},
                "required": ["path"],
            },
        },
    }
    for name, what in (("read_file", "Reads"), ("write_file", "Writes"), ("delete_file", "Deletes"))
]


@dataclass(frozen=True, slots=True)
class FrontendBench:
    contexts: tuple[int, ...] = (1024, 4096, 16_384, 65_536, 131_072)
    """Tokens that the front end has seen when the measured turn comes."""
    new_tokens: int = 1000
    repeats: int = 7
    """Conversations of each length."""
    seed: int = 0


@dataclass(frozen=True, slots=True)
class Ready:
    """A turn as the engine is sent it."""

    packed: bytes
    """Its token ids, little-endian int32."""
    stages_s: tuple[float, ...]
    handle: Any
    """Whatever `FrontEnd.answer` needs to know it by."""


class FrontEnd(Protocol):
    """Of a server. It remembers."""

    @property
    def stages(self) -> Sequence[str]:
        """Names of the steps that `read` times."""
        ...

    def read(self, body: bytes) -> Ready: ...

    def answer(self, ready: Ready, call: dict[str, Any]) -> dict[str, Any]:
        """The model says this call, in the format that it has for it. The message that a client keeps."""
        ...

    def count(self, text: str) -> int:
        """Tokens of a text."""
        ...

    def text(self, ready: Ready) -> str:
        """The prompt's text."""
        ...


@dataclass(frozen=True, slots=True)
class ContextFigures:
    """Medians of one length."""

    context: int
    prompt_tokens: int
    messages: int
    body_bytes: int
    stages_ms: dict[str, float]
    total_ms: float
    unknown_ms: float
    """The same body, at a front end that remembers nothing."""
    other_ms: float | None
    """The other encoder alone, on the text of the prompt."""
    identical: bool
    """The ids of all are the same."""


@dataclass(frozen=True, slots=True)
class FrontendFigures:
    contexts: tuple[ContextFigures, ...]
    flatness: float
    """Slowest length over fastest."""


def run(
    bench: FrontendBench, make: Callable[[], FrontEnd], other: Encode | None, progress: Progress
) -> FrontendFigures:
    """`make`: a front end that knows nothing yet."""
    front = make()
    samples: dict[int, list[_Sample]] = {context: [] for context in bench.contexts}
    for repeat in range(bench.repeats):
        # Lengths take turns, so that whatever else the machine does meets all of them.
        for context in samples:
            progress(f"conversation {repeat + 1} of {bench.repeats}: {context} tokens")
            rng = random.Random(f"{bench.seed} {context} {repeat}")
            samples[context].append(_sample(bench, context, front, make, other, rng))
    rows = [_median_of(context, front.stages, samples[context]) for context in samples]
    totals = [row.total_ms for row in rows]
    return FrontendFigures(tuple(rows), max(totals) / min(totals))


@dataclass(frozen=True, slots=True)
class _Sample:
    ready: Ready
    messages: int
    body_bytes: int
    unknown_s: float
    other_s: float | None
    identical: bool


class _Client:
    """An agent's side of a conversation that asks for a file after the other."""

    def __init__(self, front: FrontEnd, rng: random.Random) -> None:
        self._front = front
        self._rng = rng
        self._calls = 0
        question = f"Please look through the files ({rng.randrange(10**9)})."
        self.messages: list[dict[str, Any]] = [
            {"role": "system", "content": self._words(150)},
            {"role": "user", "content": question},
        ]

    def body(self) -> bytes:
        return json.dumps({"model": "model", "stream": True, "messages": self.messages, "tools": _TOOLS}).encode()

    def call(self) -> dict[str, Any]:
        """The next one, as the model says it."""
        self._calls += 1
        return {"name": "read_file", "arguments": {"path": f"src/part_{self._calls}.py", "why": self._words(60)}}

    def made_call(self) -> dict[str, Any]:
        """The message of a call that the front end never heard."""
        call = self.call()
        function = {"name": call["name"], "arguments": json.dumps(call["arguments"])}
        calls = [{"id": f"call_{self._calls}", "type": "function", "function": function}]
        return {"role": "assistant", "content": None, "tool_calls": calls}

    def go_on(self, answer: dict[str, Any], num_tokens: int) -> None:
        """With the model's call and its result."""
        result = self._words(num_tokens // 4)
        while (missing := num_tokens - self._front.count(result)) > 0:
            result += self._words(max(1, missing // 4))
        call_id = answer["tool_calls"][0]["id"]
        self.messages += [answer, {"role": "tool", "tool_call_id": call_id, "content": result}]

    def _words(self, count: int) -> str:
        return "".join(self._rng.choice(_WORDS) for _ in range(count))


def _sample(
    bench: FrontendBench,
    context: int,
    front: FrontEnd,
    make: Callable[[], FrontEnd],
    other: Encode | None,
    rng: random.Random,
) -> _Sample:
    client = _Client(front, rng)
    ready = front.read(client.body())
    for _ in range((context - len(ready.packed) // TOKEN_BYTES) // (TURN_TOKENS + ANSWER_TOKENS)):
        client.go_on(client.made_call(), TURN_TOKENS)
    ready = front.read(client.body())
    client.go_on(front.answer(ready, client.call()), bench.new_tokens)
    body = client.body()
    gc.collect()
    ready = front.read(body)
    unknown = make()
    begin = time.perf_counter()
    anew = unknown.read(body)
    unknown_s = time.perf_counter() - begin
    same = anew.packed == ready.packed
    other_s = None
    if other is not None:
        text = front.text(ready)
        begin = time.perf_counter()
        ids = other(text)
        other_s = time.perf_counter() - begin
        same = same and pack_tokens(ids) == ready.packed
    return _Sample(ready, len(client.messages), len(body), unknown_s, other_s, same)


def _median_of(context: int, stages: Sequence[str], samples: Sequence[_Sample]) -> ContextFigures:
    def of(value: Callable[[_Sample], float]) -> float:
        return median(value(sample) for sample in samples)

    others = [sample.other_s for sample in samples if sample.other_s is not None]
    return ContextFigures(
        context=context,
        prompt_tokens=round(of(lambda sample: len(sample.ready.packed) / TOKEN_BYTES)),
        messages=round(of(lambda sample: sample.messages)),
        body_bytes=round(of(lambda sample: sample.body_bytes)),
        stages_ms={
            name: 1e3 * median(sample.ready.stages_s[at] for sample in samples) for at, name in enumerate(stages)
        },
        total_ms=1e3 * of(lambda sample: sum(sample.ready.stages_s)),
        unknown_ms=1e3 * of(lambda sample: sample.unknown_s),
        other_ms=1e3 * median(others) if others else None,
        identical=all(sample.identical for sample in samples),
    )
