"""What the documents name exists: paths, flags, metrics and make targets."""

from __future__ import annotations

from pathlib import Path
import re
import subprocess
import sys

import pytest

ROOT = Path(__file__).resolve().parent.parent
PAGES = [ROOT / "README.md", *sorted((ROOT / "docs").glob("*.md"))]
CODE = re.compile(r"```.*?```", re.S)
PATH = re.compile(r"`((?:src/samovar|docs|benchmarks|tests|scripts|examples|[a-z]+)/[\w./-]+)`")
FOLDERS = {p.name for p in (ROOT / "src" / "samovar").iterdir() if p.is_dir()}


@pytest.mark.parametrize("page", PAGES, ids=lambda p: p.name)
def test_paths_exist(page: Path) -> None:
    named = set(PATH.findall(page.read_text()))
    missing = []
    for path in named:
        head = path.split("/")[0]
        if head in FOLDERS:
            found = (ROOT / "src" / "samovar" / path).exists()
        elif head in {"src", "docs", "benchmarks", "tests", "scripts", "examples"}:
            found = (ROOT / path).exists()
        else:
            continue
        if not found:
            missing.append(path)
    assert not missing


def test_flags_and_targets_exist() -> None:
    text = "\n".join(page.read_text() for page in PAGES)
    commands = (["serve"], ["bench", "replay"], ["trace", "stats"], ["simulate"], ["plan"])
    shown = "".join(
        subprocess.run(
            [sys.executable, "-m", "samovar.cli.main", *command, "--help"],
            capture_output=True,
            text=True,
            env={"COLUMNS": "200", "PATH": "", "TERMINAL_WIDTH": "200"},
            check=True,
        ).stdout
        for command in commands
    )
    flags = set(re.findall(r"(?<![\w-])--[a-z][a-z-]+", CODE.sub("", text))) - {"--check"}
    assert flags and not {flag for flag in flags if flag not in shown}
    targets = set(re.findall(r"(?:^|`)make ([a-z-]+)", text, re.M))
    makefile = (ROOT / "Makefile").read_text()
    assert targets and all(re.search(rf"^{target}:", makefile, re.M) for target in targets)


def test_metrics_exist() -> None:
    text = "\n".join(page.read_text() for page in PAGES)
    source = "\n".join(p.read_text() for p in (ROOT / "src/samovar/serve").glob("*metrics*.py"))
    for name in set(re.findall(r"`((?:samovar|vllm):\w+)`", text)):
        assert name.removesuffix("_total") in source, name
