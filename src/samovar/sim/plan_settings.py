"""What the figures of a plan depend on, by flag where there is one, as text that can be compared and shown. Equal texts
give equal plans, so what was simulated before may be taken over.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import asdict, replace
from hashlib import sha256
from typing import Any

from samovar import __version__
from samovar.sim.plan_changes import Menu
from samovar.sim.plan_setup import Rules, Setup
from samovar.sim.plan_trial import Bench
from samovar.spec.catalog import load_kernels
from samovar.workload.result import git_revision
from samovar.workload.session import SessionTree

_FLAGS = {
    "duration_s": "--duration",
    "grace_s": "--grace",
    "start_from": "--start, its beginning,",
    "start_to": "--start, its end,",
    "idle_cap_s": "--idle-cap",
    "tree_idle_cap_s": "--tree-idle-cap",
    "request_s": "--front-end-request-ms, in seconds,",
    "prompt_token_s": "--front-end-prompt-token-us, in seconds,",
    "output_token_s": "--front-end-output-token-ms, in seconds,",
    "dcp_comm": "--dcp-comm-backend",
    "kv_format": "--kv-cache-dtype",
}
"""Of fields that are not called as their flags are."""
_NO_FLAG = {"stats_delay_s", "max_visits"}
_CHANGED = "+dirty"
"""Ends the revision of code that was changed since."""


def settings_of(bench: Bench, menu: Menu, loads: Sequence[int], trees: Sequence[SessionTree]) -> dict[str, str]:
    hardware = bench.hardware
    found = {
        "samovar": f"{__version__} {_short(git_revision())}".strip(),
        "--model": _named(hardware.model.name, hardware.model),
        "--device": _named(hardware.device.name, (hardware.device, load_kernels(hardware.device.kernels))),
        "--gpus": str(hardware.gpus),
        "steps": "cost model" if hardware.measured is None else _digest(hardware.measured),
        "--concurrency": ",".join(map(str, loads)),
        "--slo": " ".join(f"p90_{name}={limit:g}" for name, limit in bench.slo.items()) or "none",
        "--price": str(bench.price),
        "the load (--trace, --scale, --fit)": f"{len(trees)} sessions, {_of_trees(trees)}",
        **_of_rules(bench.rules),
        **_of_setup(menu.baseline),
    }
    changes = [(change.name, change.axis, change.apply(menu.baseline)) for change in menu.changes]
    return found | {"what is tried beside the baseline": f"{len(changes)} changes, {_digest(changes)}"}


def differing(before: Mapping[str, str], now: Mapping[str, str]) -> str:
    """One of the settings that are not the same, in words; "" when all are."""
    for name in (*now, *before):
        old, new = before.get(name, "not there"), now.get(name, "not there")
        if old != new:
            return f"{name} was {old} and is {new}"
    return ""


def unsure(before: Mapping[str, str], now: Mapping[str, str]) -> str:
    """The code that was changed since its revision, so that equal settings may be of different code, in words; "" when
    neither was."""
    for verb, settings in (("was", before), ("is", now)):
        if (code := settings.get("samovar", "")).endswith(_CHANGED):
            return f"samovar {verb} {code}: changed since that revision, nobody knows how"
    return ""


def _of_rules(rules: Rules) -> dict[str, str]:
    fields = asdict(replace(rules, replay=replace(rules.replay, concurrency=1)))
    replay, front_end = fields.pop("replay"), fields.pop("front_end")
    del replay["concurrency"]  # of each simulation its own
    return _by_flag({**replay, **front_end, **fields})


def _of_setup(setup: Setup) -> dict[str, str]:
    fields = asdict(setup)
    layout = fields.pop("layout")
    every = {**fields, **layout}
    return _by_flag({name: value for name, value in every.items() if isinstance(value, int | float | str)})


def _by_flag(fields: Mapping[str, Any]) -> dict[str, str]:
    return {
        name if name in _NO_FLAG else _FLAGS.get(name, "--" + name.replace("_", "-")): str(value)
        for name, value in fields.items()
    }


def _short(revision: str) -> str:
    commit, changed, _ = revision.partition(_CHANGED)
    return commit[:12] + changed


def _named(name: str, value: object) -> str:
    """A file of one's own may keep its name and change."""
    return f"{name} ({_digest(value)})"


def _digest(value: object) -> str:
    """Of plain values, whose `repr` says everything."""
    return sha256(repr(value).encode()).hexdigest()[:12]


def _of_trees(trees: Sequence[SessionTree]) -> str:
    found = sha256()
    for tree in trees:
        # Not where it was read from, which changes nothing.
        found.update(repr((tree.id, tree.block_tokens, tree.namespace, tree.start_s)).encode())
        for stream in tree.streams:
            found.update(repr(replace(stream, turns=())).encode())
            for turn in stream.turns:
                found.update(repr(replace(turn, blocks=turn.blocks[:0])).encode())
                found.update(turn.blocks.tobytes())
    return found.hexdigest()[:12]
