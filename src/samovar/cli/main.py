"""Where `samovar` begins. Loading the parts takes half a second; Ctrl-C ends it quietly from the first moment on."""

from __future__ import annotations

from samovar.cli.interrupts import quiet_interrupts

with quiet_interrupts():
    from samovar.cli.app import run


def main() -> None:
    run()


if __name__ == "__main__":
    main()
