"""/tokenize and /detokenize in vLLM's shapes."""

from __future__ import annotations

from typing import Any

from samovar.base.errors import InvalidField
from samovar.serve.bodies import DetokenizeBody, TokenizeBody
from samovar.serve.chat_input import conversation_of
from samovar.serve.json_input import parse_object
from samovar.serve.prompts import Domain
from samovar.serve.state import ServerState
from samovar.serve.unsupported import refuse_unsupported
from samovar.serve.validation import validate


def tokenize(state: ServerState, tenant: str, raw: bytes) -> dict[str, Any]:
    """The ids that the same prompt or messages would have in a generation request. Raises RequestErrors."""
    body = validate(TokenizeBody, parse_object(raw))
    refuse_unsupported(body)
    state.names.resolve(body.model)
    if (body.prompt is None) == (body.messages is None):
        raise InvalidField("prompt: give either prompt or messages.", param="prompt")
    if body.prompt is not None:
        ids = state.tokenizer.encode(body.prompt, add_special_tokens=body.add_special_tokens is not False)
    else:
        domain = Domain.of(state.service.info, tenant, "")
        prompt = state.reader.conversation(conversation_of(body), domain, bounded=False, remember=False)
        ids = prompt.token_ids()
    strings = [state.tokenizer.token_text(token) for token in ids] if body.return_token_strs else None
    return {"count": len(ids), "max_model_len": state.limits.max_model_len, "tokens": ids, "token_strs": strings}


def detokenize(state: ServerState, tenant: str, raw: bytes) -> dict[str, Any]:
    """Raises RequestErrors."""
    body = validate(DetokenizeBody, parse_object(raw))
    state.names.resolve(body.model)
    ids = state.reader.token_ids(list(body.tokens), "tokens") if body.tokens else []
    return {"prompt": state.tokenizer.decode(ids, skip_special_tokens=False)}
