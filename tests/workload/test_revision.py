"""The revision that a result names."""

from __future__ import annotations

from pathlib import Path
import subprocess

import pytest

from samovar.workload import result


def git(folder: Path, *words: str) -> str:
    identity = ["-c", "user.name=Someone", "-c", "user.email=someone@localhost"]
    return subprocess.run(["git", *identity, *words], cwd=folder, check=True, capture_output=True, text=True).stdout


@pytest.fixture
def package(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A repository whose only file stands for the module."""
    module = tmp_path / "inner" / "result.py"
    module.parent.mkdir()
    module.write_text("first\n")
    git(tmp_path, "init", "--quiet")
    git(tmp_path, "add", "inner/result.py")
    git(tmp_path, "commit", "--quiet", "-m", "first")
    monkeypatch.setattr(result, "__file__", str(module))
    return tmp_path


def test_a_checkout_and_what_is_changed_in_it(package: Path) -> None:
    head = git(package, "rev-parse", "HEAD").strip()
    assert result.git_revision() == head
    (package / "plan-results").mkdir()
    (package / "plan-results" / "plan.json").write_text("{}")
    assert result.git_revision() == head, "results of one's own are no change"
    (package / "inner" / "result.py").write_text("second\n")
    assert result.git_revision() == head + "+dirty"


def test_a_package_inside_somebody_elses_repository(package: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    installed = package / "site-packages" / "result.py"
    installed.parent.mkdir()
    installed.write_text("first\n")
    monkeypatch.setattr(result, "__file__", str(installed))
    assert result.git_revision() == ""


def test_no_repository_and_no_git(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(result, "__file__", str(tmp_path / "result.py"))
    assert result.git_revision() == ""
    monkeypatch.setenv("PATH", str(tmp_path))
    assert result.git_revision() == ""
