"""What no trace can exceed: a reader refuses it, since it would only drown the figures of everything else."""

from __future__ import annotations

MAX_TOKENS = 1 << 40
"""Of one prompt or answer."""
MAX_BLOCK_TOKENS = 1 << 20
MAX_TIME_S = 1e10
"""Three centuries: times since 1970 fit, those in milliseconds that are taken for seconds do not."""
