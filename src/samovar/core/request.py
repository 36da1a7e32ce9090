"""A request as it enters the core: everything that needs text, clocks or randomness has been settled outside."""

from __future__ import annotations

import msgspec

from samovar.base.ids import RequestId
from samovar.core.sampling import SamplingParams
from samovar.policy.hints import Hint


class Request(msgspec.Struct, frozen=True, array_like=True):
    """One generation to run. Owned by whoever made it; the core copies what it changes."""

    id: RequestId
    token_ids: bytes
    """Prompt, little-endian int32, at least one token (`base.keys.pack_tokens`)."""
    sampling: SamplingParams
    root: bytes
    """Root key of the prompt's chain (`base.keys.root_key`): namespace and the caller's cache domain."""
    keys: bytes = b""
    """Keys of the prompt's full blocks, 16 bytes each (`base.keys.extend_keys` from `root`), in one string."""
    tenant: str = ""
    """Opaque; "" for everyone when there are no API keys."""
    priority: int = 0
    """Lower runs first, as in vLLM."""
    session_id: str = ""
    """The agent's conversation inside its tenant; "" when the client names none."""
    parent_session_id: str = ""
    use_prefix_cache: bool = True
    """False: neither looks up nor leaves anything findable."""
    hints: tuple[Hint, ...] = ()
    """Of its session's future; their times count from the request's end."""
    session_is_shared: bool = False
    """Several conversations may come under `session_id`: which one it continues is told by its prompt's end alone."""
