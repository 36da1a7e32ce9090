"""The official harness's artifacts with the ceiling of the prompts it sent, as far as these and their tokenizer are
still there."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

from samovar.base.errors import CheckpointError, SamovarError
from samovar.text.checkpoint import load_text
from samovar.workload.metrics_agentx import read_export, tokenizer_folder
from samovar.workload.metrics_agentx_prompts import RAW, Tokenise
from samovar.workload.report_data import ReportRun

NOT_COUNTED = "prompts kept, but not counted"


def read_artifacts(folder: Path) -> ReportRun:
    """Without the tokenizer, or with raw records that cannot be read, the harness's own ceiling stays, and the facts
    say why. Raises ConfigError as `read_export` does for the records themselves."""
    if not (folder / RAW).is_file():
        return read_export(folder)
    tokenizer = tokenizer_folder(folder)
    if tokenizer is None:
        return _uncounted(folder, "the tokenizer that the harness was run with is no folder that is still there")
    try:
        return read_export(folder, tokeniser(tokenizer))
    except SamovarError as error:
        return _uncounted(folder, error.message)


def tokeniser(folder: Path) -> Tokenise:
    """What a server of this checkpoint makes of a chat. Raises CheckpointError and UnsupportedFeature, also for a
    checkpoint without a chat template; a call raises RequestError when the template refuses its messages."""
    text = load_text(folder)
    template = text.template
    if template is None:
        raise CheckpointError(f"{folder}: has no chat template, and the harness sends chats")

    def tokenise(messages: Sequence[Mapping[str, Any]]) -> Sequence[int]:
        return text.tokenizer.encode(template.render([dict(message) for message in messages]))

    return tokenise


def _uncounted(folder: Path, reason: str) -> ReportRun:
    run = read_export(folder)
    return replace(run, facts={**run.facts, NOT_COUNTED: reason})
