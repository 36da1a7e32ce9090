"""Request fields to the engine's sampling parameters: the engine's limits, defaults, clamping."""

from __future__ import annotations

from dataclasses import dataclass
import secrets

import msgspec

from samovar.base.errors import InvalidField
from samovar.base.shown import shown
from samovar.core.sampling import SamplingParams
from samovar.serve.bodies import MAX_STOP_CHARACTERS, MAX_STOPS, ChatBody, CompletionBody, GenerationBody
from samovar.serve.config import ServeConfig
from samovar.serve.context import check_fits
from samovar.serve.json_input import child

COMPLETION_MAX_TOKENS = 16
"""What /v1/completions generates when not told, as in the OpenAI API; a chat may fill the context."""
SEEDS = 1 << 63


@dataclass(frozen=True, slots=True)
class Limits:
    """What the engine and the checkpoint allow."""

    max_model_len: int
    vocab_size: int
    eos_ids: tuple[int, ...]


@dataclass(frozen=True, slots=True)
class Wanted:
    """What the APIs name or default differently."""

    max_tokens: int | None = None
    """None: whatever the context has room for."""
    logprobs: int = -1
    grammar: str = ""
    param: str = "messages"
    """What the API calls the prompt."""


def sampling_params(
    body: GenerationBody, asked: Wanted, prompt_tokens: int, limits: Limits, config: ServeConfig
) -> SamplingParams:
    """For the first choice of a prompt; raises InvalidField or ContextLengthExceeded."""
    check_fits(prompt_tokens, limits.max_model_len, asked.param)
    room = limits.max_model_len - prompt_tokens
    wanted = asked.max_tokens
    min_tokens = body.min_tokens or 0
    if wanted is not None and min_tokens > wanted:
        raise InvalidField(f"min_tokens: must be at most max_tokens ({wanted}); got {min_tokens}.", param="min_tokens")
    max_tokens = min(room, wanted if wanted is not None else room)
    defaults = config.sampling
    top_k = defaults.top_k if body.top_k is None else body.top_k
    stop_token_ids = _stop_tokens(body, limits)
    if min_tokens and len(stop_token_ids) >= limits.vocab_size:
        raise InvalidField(
            f"min_tokens: {min_tokens} with stop_token_ids naming all {limits.vocab_size} tokens of the vocabulary "
            "leaves none to begin with.",
            param="min_tokens",
        )
    return SamplingParams(
        max_tokens=max_tokens,
        min_tokens=min(min_tokens, max_tokens),
        stop_token_ids=stop_token_ids,
        seed=secrets.randbelow(SEEDS) if body.seed is None else body.seed % SEEDS,
        temperature=_or(body.temperature, defaults.temperature),
        top_p=_or(body.top_p, defaults.top_p),
        top_k=0 if top_k < 0 else min(top_k, limits.vocab_size),
        min_p=_or(body.min_p, defaults.min_p),
        repetition_penalty=_or(body.repetition_penalty, defaults.repetition_penalty),
        presence_penalty=_or(body.presence_penalty, 0.0),
        frequency_penalty=_or(body.frequency_penalty, 0.0),
        logit_bias=_logit_bias(body.logit_bias or {}, limits.vocab_size),
        logprobs=asked.logprobs,
        grammar=asked.grammar,
    )


def for_choice(params: SamplingParams, index: int) -> SamplingParams:
    """Each choice of one prompt draws from its own seed."""
    return params if index == 0 else msgspec.structs.replace(params, seed=(params.seed + index) % SEEDS)


def num_choices(body: GenerationBody, prompts: int, config: ServeConfig) -> int:
    """`n`, checked against both limits."""
    n = body.n or 1
    if n > config.max_n:
        raise InvalidField(f"n: must be at most {config.max_n}; got {shown(n)}.", param="n")
    if n * prompts > config.max_choices:
        raise InvalidField(
            f"prompt: at most {config.max_choices} choices in one request; got {prompts} prompts x n {n}.",
            param="prompt",
        )
    return n


def stop_strings(value: object, param: str = "stop", *, alone: bool = True) -> tuple[str, ...]:
    """The field `param`: null or an array of strings; `alone`: or a string."""
    if value is None:
        return ()
    items = [value] if alone and isinstance(value, str) else value
    if not isinstance(items, list):
        kinds = "a string or an array of strings" if alone else "an array of strings"
        raise InvalidField(f"{param}: must be {kinds}; got {shown(value)}.", param=param)
    if len(items) > MAX_STOPS:
        raise InvalidField(f"{param}: must have at most {MAX_STOPS} strings; got {len(items)}.", param=param)
    for at, item in enumerate(items):
        path = param if isinstance(value, str) else child(param, at)
        if not isinstance(item, str) or not item:
            raise InvalidField(f"{path}: must be a string that is not empty; got {shown(item)}.", param=path)
        if len(item) > MAX_STOP_CHARACTERS:
            raise InvalidField(
                f"{path}: must have at most {MAX_STOP_CHARACTERS} characters; got {len(item)}.", param=path
            )
    return tuple(dict.fromkeys(items))


def _or(value: float | None, default: float) -> float:
    return default if value is None else float(value)


def _stop_tokens(body: GenerationBody, limits: Limits) -> tuple[int, ...]:
    given = body.stop_token_ids or []
    for at, token in enumerate(given):
        if token >= limits.vocab_size:
            path = f"stop_token_ids[{at}]"
            raise InvalidField(f"{path}: must be below the vocabulary's {limits.vocab_size}; got {token}.", param=path)
    return tuple(dict.fromkeys([*(() if body.ignore_eos else limits.eos_ids), *given]))


def _logit_bias(bias: dict[str, float], vocab_size: int) -> tuple[tuple[int, float], ...]:
    result: dict[int, float] = {}
    for key, value in bias.items():
        if not (key.isascii() and key.isdigit() and len(key) <= 10 and int(key) < vocab_size):
            raise InvalidField(
                f"logit_bias: keys must be token ids below the vocabulary's {vocab_size}; got {shown(key)}.",
                param="logit_bias",
            )
        result[int(key)] = float(value)
    return tuple(sorted(result.items()))


def chat_wanted(body: ChatBody, limit: int) -> Wanted:
    """`limit`: alternatives per token at most."""
    if body.top_logprobs is not None and not body.logprobs and body.top_logprobs > 0:
        raise InvalidField("top_logprobs: needs logprobs to be true.", param="top_logprobs")
    return Wanted(
        max_tokens=body.max_tokens if body.max_completion_tokens is None else body.max_completion_tokens,
        logprobs=_bounded("top_logprobs", body.top_logprobs or 0, limit) if body.logprobs else -1,
    )


def completion_wanted(body: CompletionBody, limit: int) -> Wanted:
    if body.echo and body.logprobs is not None:
        raise InvalidField("logprobs: not supported together with echo.", param="logprobs")
    return Wanted(
        max_tokens=COMPLETION_MAX_TOKENS if body.max_tokens is None else body.max_tokens,
        logprobs=-1 if body.logprobs is None else _bounded("logprobs", body.logprobs, limit),
        param="prompt",
    )


def _bounded(name: str, count: int, limit: int) -> int:
    if count > limit:
        raise InvalidField(f"{name}: must be at most {limit}; got {shown(count)}.", param=name)
    return count
