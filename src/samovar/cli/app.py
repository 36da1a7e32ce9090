"""The command line: `samovar COMMAND`. Errors a user can cause end it with one line and exit code 2."""

from __future__ import annotations

import shutil
import sys
from typing import Annotated

from rich.console import Console
from rich.markup import escape
import typer

from samovar import __version__
from samovar.base.errors import SamovarError
from samovar.cli.arguments import spread_lists
from samovar.cli.bench import app as bench_app
from samovar.cli.chat import chat
from samovar.cli.check_log import check_log
from samovar.cli.interrupts import INTERRUPTED
from samovar.cli.plan import plan
from samovar.cli.policy import app as policy_app
from samovar.cli.replay import report
from samovar.cli.serve import serve
from samovar.cli.simulate import simulate
from samovar.cli.tokenizer import app as tokenizer_app
from samovar.cli.trace import app as trace_app

# Tables cut long flags short where there is no room for them; a plain list never does.
_WIDE = shutil.get_terminal_size().columns >= 100

app = typer.Typer(
    name="samovar",
    help="An inference system that keeps every agent's context warm.",
    no_args_is_help=True,
    add_completion=False,
    pretty_exceptions_enable=False,
    rich_markup_mode="rich" if _WIDE else None,
    context_settings={"help_option_names": ["-h", "--help"]},
)
app.command()(serve)
app.command()(chat)
app.command()(check_log)
app.command()(report)
app.command()(simulate)
app.command()(plan)
app.add_typer(bench_app, name="bench")
app.add_typer(trace_app, name="trace")
app.add_typer(policy_app, name="policy")
app.add_typer(tokenizer_app, name="tokenizer")


def _show_version(wanted: bool) -> None:
    if wanted:
        print(f"samovar {__version__}")
        raise typer.Exit


@app.callback()
def root(
    version: Annotated[
        bool, typer.Option("--version", callback=_show_version, is_eager=True, help="Show the version and exit.")
    ] = False,
) -> None:
    pass


def run() -> None:
    try:
        app(args=spread_lists(sys.argv[1:]))
    except SamovarError as error:
        Console(stderr=True).print(f"[bold red]error:[/] {escape(error.message)}", highlight=False, soft_wrap=True)
        sys.exit(2)
    except KeyboardInterrupt:
        sys.exit(INTERRUPTED)
