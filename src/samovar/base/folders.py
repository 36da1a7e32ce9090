"""Folders that a command writes its results into: what somebody else keeps there is not overwritten unasked."""

from __future__ import annotations

import os
from pathlib import Path

from samovar.base.errors import ConfigError


def check_unused(folder: Path, flag: str, *, overwrite: bool) -> None:
    """Raises ConfigError, naming `flag` and the folder, when it holds anything (unless `overwrite`) or is no folder."""
    try:
        held = next((entry.name for entry in folder.iterdir()), None)
    except FileNotFoundError:
        return
    except OSError as error:
        raise ConfigError(f"{flag} {folder}: cannot be used: {error.strerror or error}") from None
    if held is not None and not overwrite:
        raise ConfigError(
            f"{flag} {folder}: the folder is not empty (it holds {held}); name another one, or give --overwrite to "
            "replace files of the same names"
        )


def make_folder(folder: Path, flag: str) -> None:
    """Raises ConfigError, naming `flag`, when it is not there and cannot be made."""
    try:
        folder.mkdir(parents=True, exist_ok=True)
    except OSError as error:
        raise ConfigError(f"{flag} {folder}: cannot be made: {error.strerror or error}") from None


def check_writable(file: Path, flag: str) -> None:
    """Raises ConfigError, naming `flag`, when the file could not be written: to be asked before long work."""
    folder = file.parent
    if file.is_dir() or not folder.is_dir():
        raise ConfigError(f"{flag} {file}: {'is a folder' if file.is_dir() else f'there is no folder {folder}'}")
    if not os.access(file if file.exists() else folder, os.W_OK):
        raise ConfigError(f"{flag} {file}: cannot be written")
