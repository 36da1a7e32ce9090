"""Which formats a model's output is read in: what the flags say, or what its chat template is written for."""

from __future__ import annotations

import logging

from samovar.base.errors import ConfigError
from samovar.text.formats.reasoning import REASONING_FORMATS, ReasoningFormat, detect_reasoning
from samovar.text.formats.table import FORMATS, ToolFormat, detect
from samovar.text.template import ChatTemplate

log = logging.getLogger(__name__)

AUTO, NONE = "auto", "none"
OURS = "hermes"
"""What `text.formats.tool_prompt` asks for."""


def choose_tool_format(name: str, template: ChatTemplate | None) -> ToolFormat:
    """`name`: of --tool-call-parser, "auto" for what the template is written for. A template that reads no tools gets
    ours, which asks for Hermes calls. Raises ConfigError for an unknown name."""
    if name != AUTO:
        if name not in FORMATS:
            known = ", ".join(sorted(FORMATS))
            raise ConfigError(f"--tool-call-parser {name!r} is not known; there are {AUTO}, {known}")
        if template is not None and not template.reads_tools and name != OURS:
            raise ConfigError(
                f"--tool-call-parser {name}: the chat template reads no tools, so the model is told to call in the "
                f"format {OURS}; leave it out, or give a template that reads tools with --chat-template"
            )
        return FORMATS[name]
    found = None
    if template is not None and not template.reads_tools:
        log.info("the chat template reads no tools: definitions, calls (Hermes JSON) and results go into the messages")
    elif template is not None:
        found = detect(template.source(with_tools=True))
        if found is None:
            log.warning(
                "the chat template reads tools, but not how its model writes calls: reading calls as Hermes JSON; "
                "--tool-call-parser says otherwise"
            )
    return FORMATS[found or OURS]


def choose_reasoning(name: str, template: ChatTemplate | None) -> ReasoningFormat | None:
    """`name`: of --reasoning-parser, "auto" or "none" among them. Raises ConfigError for an unknown name."""
    if name == NONE or (name == AUTO and template is None):
        return None
    if name == AUTO:
        assert template is not None
        found = detect_reasoning(template.source(with_tools=True))
        return None if found is None else REASONING_FORMATS[found]
    if name not in REASONING_FORMATS:
        known = ", ".join(sorted(REASONING_FORMATS))
        raise ConfigError(f"--reasoning-parser {name!r} is not known; there are {AUTO}, {NONE}, {known}")
    return REASONING_FORMATS[name]
