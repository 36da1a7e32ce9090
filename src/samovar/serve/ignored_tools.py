"""Tools that only their maker's servers can execute: they are left out of prompts, and the log says so."""

from __future__ import annotations

import logging

from samovar.base.shown import shown

log = logging.getLogger(__name__)

MAX_KINDS = 100
"""Clients make the types up: beyond these no more is remembered or said."""


class IgnoredTools:
    """The first of a type is worth a line in the log. May be used from several threads: the worst is a second line."""

    def __init__(self) -> None:
        self._kinds: set[str] = set()

    def note(self, kind: str) -> None:
        name = shown(kind)
        if name not in self._kinds and len(self._kinds) < MAX_KINDS:
            self._kinds.add(name)
            log.warning("tools of type %s are executed by a server, but not by this one: ignored", name)
