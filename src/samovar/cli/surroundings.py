"""What the command line takes from its surroundings: folders, the log, the terminal. Nothing below reads them."""

from __future__ import annotations

import logging
import os
from pathlib import Path

from rich.console import Console
from rich.logging import RichHandler

from samovar.runner.child import LOG_FORMAT

PIPE_COLUMNS = 140


def instruction_set() -> str:
    """Of the native kernels: SAMOVAR_ISA, or "auto"."""
    return os.environ.get("SAMOVAR_ISA") or "auto"


def cache_dir() -> Path:
    """Where downloads go: SAMOVAR_CACHE_DIR, or `samovar` in the user's cache folder."""
    chosen = os.environ.get("SAMOVAR_CACHE_DIR")
    if chosen:
        return Path(chosen)
    base = os.environ.get("XDG_CACHE_HOME")
    return (Path(base) if base else Path.home() / ".cache") / "samovar"


def set_up_log(console: Console, *, debug: bool) -> None:
    """Plain lines where nobody watches, colours and columns on a terminal."""
    handler: logging.Handler
    if console.is_terminal:
        handler = RichHandler(console=console, show_path=False, omit_repeated_times=False, markup=False)
        form = "%(message)s"
    else:
        handler = logging.StreamHandler()
        form = LOG_FORMAT
    logging.basicConfig(level=logging.DEBUG if debug else logging.INFO, format=form, handlers=[handler], force=True)
    for chatty in ("httpx", "httpcore", "uvicorn.error", "asyncio", "multipart"):
        logging.getLogger(chatty).setLevel(logging.WARNING)


def output_console(*, stderr: bool = False) -> Console:
    """For tables of figures: as wide as the terminal, and never so narrow in a pipe or log that digits are cut off."""
    console = Console(stderr=stderr)
    if not console.is_terminal:
        console.width = max(console.width, PIPE_COLUMNS)
    return console
