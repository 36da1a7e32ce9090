"""Model names: which are served, and what an answer calls the model."""

from __future__ import annotations

import logging

from samovar.base.errors import ModelNotFound
from samovar.base.shown import shown
from samovar.serve.config import ServeConfig

log = logging.getLogger(__name__)

MAX_LOGGED = 100


class ModelNames:
    """Without configured names every name is served, so that a client's default works; each new one is logged once."""

    def __init__(self, config: ServeConfig) -> None:
        self._served = config.served_model_names
        self.canonical = config.canonical_model
        self._logged: set[str] = set()

    def resolve(self, name: str | None) -> str:
        """The name to answer with. Raises ModelNotFound."""
        if name is None:
            return self.canonical
        if self._served:
            if name not in self._served:
                raise ModelNotFound(
                    f"The model {shown(name)} is not served here; served: {', '.join(self._served)}.", param="model"
                )
        elif name != self.canonical and name not in self._logged and len(self._logged) < MAX_LOGGED:
            self._logged.add(name)
            log.info("serving %s under the requested name %s", self.canonical, shown(name))
        return name

    def listed(self) -> tuple[str, ...]:
        return self._served or (self.canonical,)
