"""`samovar bench frontend`: the server's own steps from a body's bytes to what the engine is sent, timed one by one."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import asdict, dataclass, field
from itertools import pairwise
import json
from pathlib import Path
from tempfile import TemporaryDirectory
import time
from typing import Annotated, Any

from rich.table import Table
import typer

from samovar.base.errors import ConfigError
from samovar.base.ids import RequestId
from samovar.bench.frontend import FrontendBench, FrontendFigures, Ready, run
from samovar.cli.surroundings import cache_dir, output_console
from samovar.core.request import Request
from samovar.core.sampling import SamplingParams
from samovar.models.locate import DEFAULT_MODEL, locate
from samovar.serve.bodies import ChatBody
from samovar.serve.body_memory import BodyMemory
from samovar.serve.chat_input import conversation_of
from samovar.serve.prompts import Domain, Prompt, PromptReader
from samovar.serve.unsupported import refuse_unsupported
from samovar.serve.validation import validate
from samovar.text.answer import Answer, Call
from samovar.text.checkpoint import load_text
from samovar.text.export import export_hf
from samovar.text.template import ChatTemplate
from samovar.text.tokenizer import Tokenizer
from samovar.workload.result import bench_result, write_result

_MAX_MODEL_LEN = 1 << 20


@dataclass
class ServedFrontEnd:
    """What `/v1/chat/completions` does with a body, without the engine."""

    tokenizer: Tokenizer
    template: ChatTemplate
    domain: Domain
    bodies: BodyMemory = field(default_factory=BodyMemory)
    stages: Sequence[str] = ("JSON", "messages", "prompt", "request")
    reader: PromptReader = field(init=False)
    _numbers: int = 0

    def __post_init__(self) -> None:
        self.reader = PromptReader(self.tokenizer, self.template, self.tokenizer.vocab_size, _MAX_MODEL_LEN)

    def read(self, body: bytes) -> Ready:
        times = [time.perf_counter()]
        value = self.bodies.parse(body, "")
        times.append(time.perf_counter())
        checked = validate(ChatBody, value)
        refuse_unsupported(checked)
        conversation = conversation_of(checked)
        times.append(time.perf_counter())
        prompt = self.reader.conversation(conversation, self.domain)
        times.append(time.perf_counter())
        sampling = SamplingParams(max_tokens=1000, stop_token_ids=self.tokenizer.eos_ids)
        Request(RequestId(1), prompt.packed, sampling, prompt.root, prompt.keys)
        times.append(time.perf_counter())
        steps = tuple(end - begin for begin, end in pairwise(times))
        return Ready(prompt.packed, steps, prompt)

    def answer(self, ready: Ready, call: dict[str, Any]) -> dict[str, Any]:
        prompt: Prompt = ready.handle
        arguments = json.dumps(call["arguments"], ensure_ascii=False)
        spoken = f'<tool_call>\n{{"name": "{call["name"]}", "arguments": {arguments}}}\n</tool_call>'
        ids = [*self.tokenizer.encode(spoken), self.tokenizer.eos_ids[0]]
        self.reader.remember(prompt, ids, Answer("", "", (Call(call["name"], arguments),)))
        self._numbers += 1
        function = {"name": call["name"], "arguments": arguments}
        calls = [{"id": f"call_made_{self._numbers}", "type": "function", "function": function}]
        return {"role": "assistant", "content": None, "tool_calls": calls}

    def count(self, text: str) -> int:
        return len(self.tokenizer.encode(text))

    def text(self, ready: Ready) -> str:
        return self.tokenizer.decode(ready.handle.token_ids(), skip_special_tokens=False)


def frontend(
    model: Annotated[
        str, typer.Option(help="A Hugging Face folder, a .gguf file or a hub id.", show_default=DEFAULT_MODEL)
    ] = DEFAULT_MODEL,
    contexts: Annotated[str, typer.Option(help="Lengths in tokens, with commas.")] = "1024,4096,16384,65536,131072",
    new_tokens: Annotated[int, typer.Option(help="Tokens that a turn brings.")] = 1000,
    repeats: Annotated[int, typer.Option(help="Conversations of each length; medians are shown.")] = 7,
    seed: Annotated[int, typer.Option(help="Of the texts.")] = 0,
    transformers: Annotated[bool, typer.Option("--transformers/--no-transformers", help="Also that library.")] = True,
    download_dir: Annotated[
        Path | None, typer.Option(help="Where downloads are kept.", show_default="user cache")
    ] = None,
    json: Annotated[Path | None, typer.Option(help="Write the result here.")] = None,
) -> None:
    """What a turn costs before the engine sees it, against the length of its conversation."""
    try:
        lengths = tuple(int(length) for length in contexts.split(","))
    except ValueError:
        raise ConfigError(f"--contexts must be numbers with commas between them, got {contexts!r}") from None
    for name, value in (("--contexts", min(lengths)), ("--new-tokens", new_tokens), ("--repeats", repeats)):
        if value < 1:
            raise ConfigError(f"{name} must be at least 1, got {value}")
    bench = FrontendBench(lengths, new_tokens, repeats, seed)
    parts = load_text(locate(model, download_dir or cache_dir()).path)
    template = parts.template
    if template is None:
        raise ConfigError(f"--model {model}: it has no chat template, so it has no conversations")

    def make() -> ServedFrontEnd:
        return ServedFrontEnd(parts.tokenizer, template, Domain(b"bench" + bytes(11), 16))

    other = transformers_encoder(parts.tokenizer) if transformers else None
    with output_console(stderr=True).status("preparing") as status:
        figures = run(bench, make, other, status.update)
    output_console().print(_table(figures, new_tokens))
    if json is not None:
        config = {"model": model, **asdict(bench)}
        write_result(bench_result("frontend", config, asdict(figures), seed=seed, repeats=repeats), json)


def transformers_encoder(tokenizer: Tokenizer) -> Callable[[str], Sequence[int]]:
    """transformers' tokenizer of the same vocabulary. Raises ConfigError when the library is not there."""
    try:
        from transformers import PreTrainedTokenizerFast
    except ImportError:
        raise ConfigError(
            "--transformers: the library is not installed (it comes with samovar[dev]); --no-transformers leaves it out"
        ) from None
    with TemporaryDirectory() as folder:
        export_hf(tokenizer, {}, Path(folder) / "tokenizer", _MAX_MODEL_LEN)
        loaded = PreTrainedTokenizerFast.from_pretrained(str(Path(folder) / "tokenizer"))

    def encode(text: str) -> Sequence[int]:
        ids: list[int] = loaded(text, add_special_tokens=False)["input_ids"]
        return ids

    return encode


def _table(figures: FrontendFigures, new_tokens: int) -> Table:
    stages = list(figures.contexts[0].stages_ms)
    table = Table(title=f"A turn of {new_tokens} new tokens before the engine sees it; {figures.flatness:.2f} x flat")
    for name in ("known tokens", "messages", "body", *stages, "together", "nothing known", "transformers", "same ids"):
        table.add_column(name, justify="right")
    for row in figures.contexts:
        table.add_row(
            f"{row.context:,}",
            f"{row.messages:,}",
            f"{row.body_bytes / 1000:,.0f} KB",
            *(f"{row.stages_ms[name]:.2f} ms" for name in stages),
            f"{row.total_ms:.2f} ms",
            f"{row.unknown_ms:.1f} ms",
            "" if row.other_ms is None else f"{row.other_ms:.1f} ms",
            "yes" if row.identical else "NO",
        )
    return table
