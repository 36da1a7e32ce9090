"""What the endpoints share, put together once by `app`."""

from __future__ import annotations

from dataclasses import dataclass

from samovar.base.errors import EngineDead
from samovar.core.ports import Service
from samovar.serve.auth import Authenticator
from samovar.serve.body_memory import BodyMemory
from samovar.serve.config import ServeConfig
from samovar.serve.drain import Drain
from samovar.serve.metrics import Metrics
from samovar.serve.names import ModelNames
from samovar.serve.outputs import Outputs
from samovar.serve.prompts import PromptReader
from samovar.serve.request_ids import RequestIds
from samovar.serve.sampling import Limits
from samovar.serve.uploads import Uploads
from samovar.serve.workers import Workers
from samovar.text.tokenizer import Tokenizer


@dataclass(frozen=True, slots=True)
class ServerState:
    service: Service
    tokenizer: Tokenizer
    reader: PromptReader
    parsed: BodyMemory
    outputs: Outputs
    limits: Limits
    config: ServeConfig
    names: ModelNames
    auth: Authenticator
    metrics: Metrics
    drain: Drain
    uploads: Uploads
    workers: Workers
    ids: RequestIds

    def admit(self) -> None:
        """Raises EngineDead or Draining when no generation can start."""
        if self.service.dead is not None:
            raise engine_dead(self.service)
        self.drain.admit(retry_after_s=self.config.drain_timeout_s)


def engine_dead(service: Service) -> EngineDead:
    reason = (service.dead or "it stopped").rstrip(".")
    return EngineDead(f"The engine is not running: {reason}.")
