"""The refusal of prompts that do not fit the model's context, the same wherever it is found out."""

from __future__ import annotations

from samovar.base.errors import ContextLengthExceeded


def check_fits(num_tokens: int, max_model_len: int, param: str, *, at_least: bool = False) -> None:
    """Raises ContextLengthExceeded when the prompt leaves no room for one token. `at_least`: it has that many or more,
    and was not encoded to find out."""
    if num_tokens >= max_model_len:
        raise ContextLengthExceeded(
            f"This model's maximum context length is {max_model_len} tokens. However, your prompt has "
            f"{'at least ' if at_least else ''}{num_tokens} tokens, which leaves no room for an answer.",
            param=param,
            num_tokens=num_tokens,
            limit=max_model_len,
            at_least=at_least,
        )
