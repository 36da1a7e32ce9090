"""What is installed: a wheel without C++ sources, a source distribution with them, and, where no compiler is, a package
that still serves, on PyTorch, and says once what to install."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
import os
from pathlib import Path
import re
import shutil
import subprocess
import sys
import sysconfig
import tarfile
import time
import venv
import zipfile

import httpx
import pytest

pytest.importorskip("scikit_build_core", reason="the build backend is not in this environment")
pytestmark = pytest.mark.slow

ROOT = Path(__file__).resolve().parent.parent
SOURCES = ("pyproject.toml", "CMakeLists.txt", "README.md", "LICENSE", "src")
TOOLS = ("cmake", "ninja")
NATIVE = "samovar/kernels/cpu/native/"


@pytest.fixture(scope="module")
def sources(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A copy: a build leaves files beside the sources."""
    folder = tmp_path_factory.mktemp("sources")
    for name in SOURCES:
        if (ROOT / name).is_dir():
            shutil.copytree(ROOT / name, folder / name, ignore=shutil.ignore_patterns("__pycache__", "*.egg-info"))
        else:
            shutil.copy(ROOT / name, folder / name)
    return folder


def build(sources: Path, kind: str, into: Path, environment: dict[str, str]) -> Path:
    code = f"from scikit_build_core.build import build_{kind}; print(build_{kind}({str(into)!r}))"
    made = subprocess.run(
        [sys.executable, "-c", code], cwd=sources, env=environment, capture_output=True, text=True, timeout=300
    )
    assert made.returncode == 0, made.stdout + made.stderr
    return into / made.stdout.split()[-1]


@pytest.fixture(scope="module")
def no_compiler(tmp_path_factory: pytest.TempPathFactory) -> dict[str, str]:
    """An environment with cmake and ninja and nothing else."""
    tools = tmp_path_factory.mktemp("tools")
    for name in TOOLS:
        found = shutil.which(name, path=f"{Path(sys.executable).parent}{os.pathsep}{os.environ['PATH']}")
        if found is None:
            pytest.skip(f"{name} is not on this machine")
        (tools / name).symlink_to(Path(found).resolve())
    return {"PATH": str(tools), "CXX": str(tools / "none"), "HOME": os.environ.get("HOME", "/")}


@pytest.fixture(scope="module")
def wheel_without_compiler(
    sources: Path, no_compiler: dict[str, str], tmp_path_factory: pytest.TempPathFactory
) -> Path:
    return build(sources, "wheel", tmp_path_factory.mktemp("wheel"), no_compiler)


def test_a_wheel_holds_no_sources_of_the_extension(wheel_without_compiler: Path) -> None:
    names = zipfile.ZipFile(wheel_without_compiler).namelist()
    assert "samovar/cli/main.py" in names and "samovar/workload/prices.toml" in names and "samovar/py.typed" in names
    assert not [
        name for name in names if name.startswith(NATIVE) or name.endswith((".cpp", ".h", ".so", "CMakeLists.txt"))
    ]


def test_a_source_distribution_can_build_the_extension(sources: Path, tmp_path: Path) -> None:
    with tarfile.open(build(sources, "sdist", tmp_path, dict(os.environ))) as archive:
        names = {name.partition("/")[2] for name in archive.getnames()}
    native = {f"src/{NATIVE}{path.name}" for path in (ROOT / "src" / NATIVE).iterdir() if path.is_file()}
    assert native and native <= names and {"CMakeLists.txt", "pyproject.toml", "LICENSE", "README.md"} <= names


@pytest.mark.skipif(shutil.which("c++") is None, reason="no compiler on this machine")
def test_a_compiler_that_comes_later_is_found(sources: Path, no_compiler: dict[str, str], tmp_path: Path) -> None:
    """The build folder is kept from one installation to the next."""
    command = ["cmake", "-S", str(sources), "-B", str(tmp_path), "-G", "Ninja", "-DSAMOVAR_PYTHON=OFF"]
    found = []
    for environment in (no_compiler, {"PATH": f"{no_compiler['PATH']}{os.pathsep}{os.environ['PATH']}"}):
        made = subprocess.run(command, env=environment, capture_output=True, text=True, timeout=120)
        assert made.returncode == 0, made.stdout + made.stderr
        found.append("installing without native kernels" not in made.stderr)
    assert found == [False, True]


@contextmanager
def serving(python: Path, log: Path) -> Iterator[str]:
    command = [python, "-m", "samovar.cli.main", "serve", "--port", "0", "--num-threads", "1"]
    command += ["--kv-cache-memory-bytes", "256MiB", "--max-num-batched-tokens", "256"]
    with log.open("w") as stderr, subprocess.Popen(command, stderr=stderr) as process:
        try:
            end = time.monotonic() + 120
            while (found := re.search(r"serving .* on (http://\S+)/v1", log.read_text())) is None:
                assert process.poll() is None and time.monotonic() < end, log.read_text()
                time.sleep(0.05)
            yield found[1]
        finally:
            process.terminate()


@pytest.mark.torch
@pytest.mark.model
def test_without_a_compiler_it_serves_on_torch_and_warns_once(
    wheel_without_compiler: Path, smollm2_gguf: Path, tmp_path: Path
) -> None:
    """In an environment that has every other package from this one."""
    venv.create(tmp_path / "venv", symlinks=True)
    python = tmp_path / "venv" / "bin" / "python"
    version = f"python{sys.version_info.major}.{sys.version_info.minor}"
    packages = tmp_path / "venv" / "lib" / version / "site-packages"
    zipfile.ZipFile(wheel_without_compiler).extractall(packages)
    (packages / "others.pth").write_text(sysconfig.get_path("purelib"))
    with serving(python, tmp_path / "log") as url:
        body = {"messages": [{"role": "user", "content": "Name the capital of France."}], "temperature": 0}
        answer = httpx.post(f"{url}/v1/chat/completions", json=body, timeout=120).json()
    assert "Paris" in answer["choices"][0]["message"]["content"]
    log = (tmp_path / "log").read_text()
    warnings = [line for line in log.splitlines() if "no native kernels" in line]
    assert len(warnings) == 1 and "WARNING" in warnings[0] and "install a C++17 compiler" in warnings[0]
    assert "(PyTorch)" in log
