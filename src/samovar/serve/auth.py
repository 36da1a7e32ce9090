"""API keys: who is calling, as an opaque tenant."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from hashlib import sha256
import hmac

from samovar.base.errors import Unauthorized


class Authenticator:
    """Keeps digests, not keys. Compares in constant time, and against every key, so that time tells nothing."""

    def __init__(self, api_keys: Sequence[str]) -> None:
        self._digests = [_digest(key) for key in api_keys]

    def tenant(self, headers: Mapping[str, str]) -> str:
        """A stable hash of the caller's key; "" without keys. Raises Unauthorized. Header names in lower case."""
        if not self._digests:
            return ""
        key = _presented(headers)
        if key is None:
            raise Unauthorized("An API key is required: send 'Authorization: Bearer KEY' or 'x-api-key: KEY'.")
        digest = _digest(key)
        known = False
        for candidate in self._digests:
            known |= hmac.compare_digest(candidate, digest)
        if not known:
            raise Unauthorized("The API key is not known to this server.")
        return sha256(b"samovar tenant\0" + digest).hexdigest()[:32]


def _digest(key: str) -> bytes:
    return sha256(key.encode("utf-8", "surrogatepass")).digest()


def _presented(headers: Mapping[str, str]) -> str | None:
    scheme, _, value = headers.get("authorization", "").partition(" ")
    if scheme.lower() == "bearer" and value.strip():
        return value.strip()
    return headers.get("x-api-key") or None
