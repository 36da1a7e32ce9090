"""Policies by name: ours, and those that other packages bring, as installed ones."""

from __future__ import annotations

from pathlib import Path

import pytest

from samovar.base.errors import ConfigError
from samovar.policy.choose import GROUP, choose, policy_names

GOOD = """
from samovar.policy.lru import LRU

class Mine(LRU):
    def __init__(self, capacity_blocks):
        super().__init__(name=f"mine of {capacity_blocks}")

class Lacks:
    name = "lacks"
    def __init__(self, capacity_blocks):
        pass

def fails(capacity_blocks):
    raise RuntimeError("no licence")
"""


@pytest.fixture
def installed(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """A package on the path with entry points, as pip would leave it."""
    (tmp_path / "made_up_policies.py").write_text(GOOD)
    info = tmp_path / "made_up_policies-1.0.dist-info"
    info.mkdir()
    (info / "METADATA").write_text("Metadata-Version: 2.1\nName: made-up-policies\nVersion: 1.0\n")
    targets = {"mine": "Mine", "lacks": "Lacks", "fails": "fails", "absent": "Absent", "agent": "Mine"}
    lines = [f"{name} = made_up_policies:{target}" for name, target in targets.items()]
    (info / "entry_points.txt").write_text("\n".join([f"[{GROUP}]", *lines, "gone = no_such_module:X", ""]))
    monkeypatch.syspath_prepend(str(tmp_path))


@pytest.mark.parametrize("name", ["lru", "ttl", "agent"])
def test_ours(name: str) -> None:
    assert choose(name, 100).name == name


def test_an_unknown_name_is_told_with_the_known_ones() -> None:
    with pytest.raises(ConfigError, match=r"'fifo' is not known; there are lru, ttl, agent"):
        choose("fifo", 100)


@pytest.mark.usefixtures("installed")
def test_one_of_another_package_is_made_for_the_capacity() -> None:
    assert choose("mine", 77).name == "mine of 77"
    assert policy_names() == ("lru", "ttl", "agent", "absent", "fails", "gone", "lacks", "mine")


@pytest.mark.usefixtures("installed")
def test_nobody_takes_our_names() -> None:
    assert choose("agent", 77).name == "agent"


@pytest.mark.usefixtures("installed")
@pytest.mark.parametrize(
    ("name", "words"),
    [
        ("fails", "RuntimeError: no licence; others are lru"),
        ("absent", "AttributeError"),
        ("gone", "ModuleNotFoundError"),
        ("lacks", "has no value, turn_started, turn_ended, outcome, hinted, outlook, sample"),
    ],
)
def test_one_that_cannot_be_used_is_told_with_the_reason(name: str, words: str) -> None:
    with pytest.raises(ConfigError, match=words):
        choose(name, 77)
