"""What `samovar serve` says while it starts and once it serves, and what stands between the engine and the doors."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from datetime import datetime
import logging
from pathlib import Path

from rich.console import Console
from rich.markup import escape
from rich.status import Status

from samovar.core.ports import EngineInfo, Service
from samovar.serve.recorded import RecordedService
from samovar.workload.recording import Recorder

log = logging.getLogger("samovar")


def progress(console: Console, status: Status, text: str) -> None:
    if console.is_terminal:
        status.update(escape(text))
    else:
        log.info("%s", text)


def start_line(info: EngineInfo, model: str, address: str, port: int) -> str:
    """Every tier with its size: what is in one is mostly in those below it, too."""
    places = [f"{info.num_blocks} blocks of {info.block_tokens} tokens"]
    for name, where in (("kv-host-blocks", "in host memory"), ("kv-disk-blocks", "on disk")):
        if int(info.settings.get(name, "0")):
            places.append(f"{info.settings[name]} {where}")
    if len(places) > 1:
        places[0] += " on the device"
    return (
        f"serving {model} on http://{address}:{port}/v1 ({info.dtype}, context {info.max_model_len}, "
        f"{', '.join(places)}, {info.max_num_batched_tokens} tokens per step)"
    )


@contextmanager
def recorded(service: Service, model: str, folder: Path | None) -> Iterator[Service]:
    """The service, its calls written down when a folder was given. Session files are complete at the end."""
    if folder is None:
        yield service
        return
    recorder = Recorder(folder, datetime.now().strftime("samovar-%Y%m%d-%H%M%S"), service.info.block_tokens)
    log.info("recording sessions (lengths and reuse, no text) into %s", folder)
    try:
        yield RecordedService(service, recorder, model)
    finally:
        recorder.close()
