"""Ctrl-C while the program is being loaded."""

from __future__ import annotations

import signal
import subprocess
import sys
import threading

import pytest

from samovar.cli.interrupts import INTERRUPTED, quiet_interrupts

ASKS = """
import signal, sys
class Finder:
    def find_spec(name, path=None, target=None):
        if name == {module!r}:
            signal.raise_signal(signal.SIGINT)
sys.meta_path.insert(0, Finder)
from samovar.cli.main import main
print("loaded")
sys.argv[1:] = ["--version"]
main()
"""


@pytest.mark.parametrize(
    ("module", "code"),
    [("samovar.cli.app", INTERRUPTED), ("typer", INTERRUPTED), ("samovar.cli.trace", INTERRUPTED), ("none", 0)],
)
def test_an_interrupt_while_a_part_is_loaded_ends_it_quietly(module: str, code: int) -> None:
    ended = subprocess.run([sys.executable, "-c", ASKS.format(module=module)], capture_output=True, text=True)
    assert (ended.returncode, ended.stderr) == (code, "")
    assert ("loaded" in ended.stdout) == (code == 0)


def test_afterwards_an_interrupt_is_what_it_was() -> None:
    before = signal.getsignal(signal.SIGINT)
    with quiet_interrupts():
        assert signal.getsignal(signal.SIGINT) is not before
    assert signal.getsignal(signal.SIGINT) is before
    with pytest.raises(ValueError, match="x"), quiet_interrupts():
        raise ValueError("x")
    assert signal.getsignal(signal.SIGINT) is before


def test_off_the_main_thread_nothing_is_changed() -> None:
    seen: list[object] = []

    def enter() -> None:
        with quiet_interrupts():
            seen.append(signal.getsignal(signal.SIGINT))

    thread = threading.Thread(target=enter)
    thread.start()
    thread.join()
    assert seen == [signal.getsignal(signal.SIGINT)]
