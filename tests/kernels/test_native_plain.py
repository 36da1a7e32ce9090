"""The kernels' plain C++ tests still compile and pass: nothing else builds them between releases."""

from __future__ import annotations

from pathlib import Path
import shutil
import subprocess

import pytest

ROOT = Path(__file__).parents[2]
SOURCES = ("src/samovar/kernels/cpu/native", "src/samovar/pool/native")


@pytest.mark.slow
@pytest.mark.skipif(shutil.which("cmake") is None or shutil.which("c++") is None, reason="needs cmake and a compiler")
def test_the_plain_tests_pass(tmp_path: Path) -> None:
    def run(*command: str) -> None:
        done = subprocess.run(command, capture_output=True, text=True)
        assert done.returncode == 0, f"{' '.join(command)}\n{done.stdout[-4000:]}\n{done.stderr[-4000:]}"

    options = (
        "-DSAMOVAR_PYTHON=OFF",
        "-DSAMOVAR_TESTS=ON",
        "-DCMAKE_BUILD_TYPE=Checked",
        "-DCMAKE_CXX_FLAGS_CHECKED=-O1",
    )
    run("cmake", "-S", str(ROOT), "-B", str(tmp_path), *options)
    run("cmake", "--build", str(tmp_path), "--parallel", "2")
    for source in SOURCES:
        run("ctest", "--test-dir", str(tmp_path / source), "--output-on-failure")
