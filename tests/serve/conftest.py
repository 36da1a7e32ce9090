"""A byte-level tokenizer (one token per byte), a ChatML template, and an application around a scripted service."""

from __future__ import annotations

from collections.abc import Callable

import httpx
import pytest
import tokenizers
from tokenizers import AddedToken, decoders, models, pre_tokenizers

from samovar.core.ports import EngineInfo
from samovar.core.request import Request
from samovar.serve.config import ServeConfig
from samovar.text.template import ChatTemplate
from samovar.text.tokenizer import SpecialTokens, Tokenizer
from tests.serve.asgi import Server
from tests.serve.scripted import BLOCK, Script, ScriptedService

START, END, EXTRA = 256, 257, 258
CHATML = (
    "{% for message in messages %}<|im_start|>{{ message.role }}\n{{ message.content }}<|im_end|>\n{% endfor %}"
    "{% if tools %}{{ tools | tojson }}\n{% endif %}"
    "{% if shout is defined %}{{ shout }}{% endif %}"
    "{% if add_generation_prompt %}<|im_start|>assistant\n{% endif %}"
)
ANSWER = "Hello, wörld."


def ids(text: str, end: bool = False) -> tuple[int, ...]:
    """Tokens of a text, and the EOS when asked for."""
    return (*text.encode(), *((END,) if end else ()))


def _character(byte: int) -> str:
    """How a byte-level vocabulary spells a byte: itself where that is printable, else from U+0100 on, in order."""
    odd = [other for other in range(256) if not (33 <= other <= 126 or 161 <= other <= 172 or other >= 174)]
    return chr(256 + odd.index(byte)) if byte in odd else chr(byte)


@pytest.fixture(scope="session")
def tokenizer() -> Tokenizer:
    vocabulary = {_character(byte): byte for byte in range(256)}
    backend = tokenizers.Tokenizer(models.BPE(vocab=vocabulary, merges=[]))
    backend.pre_tokenizer = pre_tokenizers.ByteLevel(add_prefix_space=False, use_regex=False)
    backend.decoder = decoders.ByteLevel()
    special = [AddedToken(text, special=True) for text in ("<|im_start|>", "<|im_end|>", "<|extra|>")]
    backend.add_special_tokens(special)
    return Tokenizer(backend, SpecialTokens({"eos_token": "<|im_end|>"}, (END,)))


@pytest.fixture(scope="session")
def template() -> ChatTemplate:
    return ChatTemplate({"default": CHATML}, {})


@pytest.fixture
def info() -> EngineInfo:
    return EngineInfo(
        max_model_len=4096,
        block_tokens=BLOCK,
        num_blocks=1024,
        namespace=b"test",
        max_num_seqs=256,
        max_num_batched_tokens=2048,
        vocab_size=259,
        settings={"--max-model-len": "4096"},
    )


MakeServer = Callable[..., Server]


@pytest.fixture
def make_server(tokenizer: Tokenizer, template: ChatTemplate, info: EngineInfo) -> MakeServer:
    """`make_server(script=..., config=...)`; a script may be a Script or a function of the request."""

    def make(script: Script | Callable[[Request], Script] | None = None, **config: object) -> Server:
        chosen = script or Script(ids(ANSWER, end=True))
        function = chosen if callable(chosen) else lambda request: chosen
        service = ScriptedService(function, info)
        return Server(service, tokenizer, template, ServeConfig(**{"model": "tea", **config}))  # type: ignore[arg-type]

    return make


@pytest.fixture
def server(make_server: MakeServer) -> Server:
    return make_server()


@pytest.fixture
def client(server: Server) -> httpx.AsyncClient:
    return server.client
