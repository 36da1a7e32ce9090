"""Devices, models, kernel figures and measured steps by name: the files that ship, or a user's own by its path."""

from __future__ import annotations

from dataclasses import replace
from importlib import resources
from importlib.resources.abc import Traversable
from pathlib import Path

from samovar.base.errors import ConfigError
from samovar.spec.device import Device, read_device
from samovar.spec.kernels import Kernels, read_kernels
from samovar.spec.model_shape import ModelShape, read_model
from samovar.spec.toml_table import TomlTable

_SUFFIX = ".toml"


def known(kind: str) -> tuple[str, ...]:
    """Names of the files that ship; `kind` is "devices", "models", "kernels" or "steps"."""
    names = (item.name for item in _folder(kind).iterdir())
    return tuple(sorted(name.removesuffix(_SUFFIX) for name in names if name.endswith(_SUFFIX)))


def load_device(name_or_path: str) -> Device:
    """Kernel figures that a user's own file names by a path lie relative to that file."""
    device = read_device(open_table("devices", name_or_path))
    if name_or_path.endswith(_SUFFIX) and device.kernels.endswith(_SUFFIX):
        return replace(device, kernels=str(Path(name_or_path).parent / device.kernels))
    return device


def load_model(name_or_path: str) -> ModelShape:
    return read_model(open_table("models", name_or_path))


def load_kernels(name_or_path: str) -> Kernels:
    """A file with `based_on` says only what differs from another one, which must ship and be whole."""
    table = open_table("kernels", name_or_path)
    if not table.has("based_on"):
        return read_kernels(table)
    whole = {name: file for name in known("kernels") if not (file := open_table("kernels", name)).has("based_on")}
    return read_kernels(table.over(whole[table.text("based_on", choices=whole)]))


def open_table(kind: str, name_or_path: str) -> TomlTable:
    """What ends in .toml is a path, anything else a name in any case. Raises ConfigError."""
    if name_or_path.endswith(_SUFFIX):
        return _open_path(Path(name_or_path))
    name = name_or_path.lower()
    if name not in known(kind):
        what = kind.removesuffix("s") if kind != "kernels" else "kernel file"
        raise ConfigError(
            f"unknown {what} {name_or_path!r}; known: {', '.join(known(kind))}; or give the path of a .toml file"
        )
    return TomlTable.parse(_folder(kind).joinpath(name + _SUFFIX).read_text("utf-8"), f"{kind}/{name}{_SUFFIX}")


def _open_path(path: Path) -> TomlTable:
    try:
        return TomlTable.parse(path.read_text("utf-8"), str(path))
    except OSError as error:
        raise ConfigError(f"cannot read {path}: {error.strerror}") from error
    except UnicodeDecodeError as error:
        raise ConfigError(f"{path}: not UTF-8: {error.reason} at byte {error.start}") from error


def _folder(kind: str) -> Traversable:
    return resources.files("samovar.spec").joinpath("data", kind)
