"""What ships loads, says where it comes from, and is installed; a user's own file is read as strictly."""

from __future__ import annotations

from importlib import resources
from pathlib import Path
import re
import tomllib

import pytest

from samovar.base.errors import ConfigError
from samovar.spec.catalog import known, load_device, load_kernels, load_model, open_table

KINDS = ("devices", "models", "kernels", "steps", "measured")


def text_of(kind: str, name: str) -> str:
    return resources.files("samovar.spec").joinpath("data", kind, f"{name}.toml").read_text()


def written(folder: Path, kind: str, name: str, *changes: tuple[str, str]) -> str:
    """A copy of a file that ships, with a line's value replaced, or with a line more; its path."""
    text = text_of(kind, name)
    for key, value in changes:
        line = re.compile(rf"^{re.escape(key)} = .*$", re.M)
        text = line.sub(f"{key} = {value}", text, count=1) if line.search(text) else f"{key} = {value}\n{text}"
    path = folder / "mine.toml"
    path.write_text(text)
    return str(path)


@pytest.mark.parametrize(("kind", "name"), [(kind, name) for kind in KINDS for name in known(kind)])
def test_every_file_says_where_its_figures_come_from(kind: str, name: str) -> None:
    data = tomllib.loads(text_of(kind, name))
    assert len(data["source"]) > 10 and str(data["date"])[:2] == "20"
    assert data["name"].lower() == name or (kind == "models" and data["name"].lower().startswith(name))


def test_devices() -> None:
    assert set(known("devices")) == {"b200", "b300", "gb10", "gb200", "gb300", "h200", "mi355x"}
    for name in known("devices"):
        device = load_device(name)
        load_kernels(device.kernels)
        assert device.memory_bytes > 2**36 and device.flops["bf16"] > 1e14
        assert 0.5e-6 < device.link("ssd").latency_s < 1e-3


def test_machines_hold_eight_devices_unless_their_file_says_otherwise() -> None:
    sizes = {name: load_device(name).devices_per_machine for name in known("devices")}
    assert {name: size for name, size in sizes.items() if size != 8} == {"gb200": 4, "gb300": 4, "gb10": 1}


def test_names_in_any_case() -> None:
    assert load_device("B200") == load_device("b200")
    assert load_model("Kimi-K2.6").name == "Kimi-K2.6"


@pytest.mark.parametrize(
    ("load", "kind"), [(load_device, "device"), (load_model, "model"), (load_kernels, "kernel file")]
)
def test_unknown_names(load: object, kind: str) -> None:
    assert callable(load)
    with pytest.raises(ConfigError, match=rf"unknown {kind} 'h800'; known: .*; or give the path of a .toml file"):
        load("h800")


def test_paths_that_cannot_be_read(tmp_path: Path) -> None:
    with pytest.raises(ConfigError, match=r"cannot read .*none.toml: No such file"):
        load_device(str(tmp_path / "none.toml"))
    (tmp_path / "latin.toml").write_bytes(b'name = "\xe9"')
    with pytest.raises(ConfigError, match="not UTF-8"):
        load_device(str(tmp_path / "latin.toml"))


@pytest.mark.parametrize(
    ("key", "value", "message"),
    [
        ("memory_bytes", "0", "field memory_bytes is 0; it must be at least 1"),
        ("memory_bytes", "180.5e9", "field memory_bytes is 180500000000.0; it must be an integer"),
        (
            "reserved_bytes",
            "200_000_000_000",
            "field reserved_bytes is 200000000000; it must be less than memory_bytes",
        ),
        ("memory_bytes_per_s", "-7e12", "field memory_bytes_per_s is -7e12"),
        ("bf16", "0", "field flops.bf16 is 0; it must be a finite number more than 0"),
        ("ranks", "0", "field scale_up.ranks is 0; it must be at least 1"),
        ("in_bytes_per_s", "inf", "field links.host.in_bytes_per_s is inf"),
        ("latency_s", "-1e-6", "field links.host.latency_s is -1e-06; it must be 0 or more seconds"),
        ("hbm_bytes", "1", "unknown field hbm_bytes; known here: collective_bytes, date"),
        ("date", "5", "field date is 5; it must be a date"),
    ],
)
def test_devices_that_cannot_be(tmp_path: Path, key: str, value: str, message: str) -> None:
    path = written(tmp_path, "devices", "b200", (key, value))
    with pytest.raises(ConfigError) as raised:
        load_device(path)
    assert (
        raised.value.message.startswith(path) and message.replace("-7e12", "-7000000000000.0") in raised.value.message
    )


@pytest.mark.parametrize(
    ("key", "value", "message"),
    [
        ("kind", '"linear"', "field attention[0].kind is 'linear'; it must be one of compressed, gqa, mla"),
        ("kv_heads", "5", "field attention[0].kv_heads is 5; it must be a divisor of heads, 64"),
        ("top_k", "129", "field moe.top_k is 129; it must be at most experts, 128"),
        ("layers", "93", "it must be of as many layers as dense and moe together: 93, not 94"),
        ("top_k", "0", "field moe.top_k is 0; it must be at least 1"),
        ("attention", '"int3"', "field formats.attention is 'int3'; it must be one of"),
        ("kv_format", '"fp6"', "field kv_format is 'fp6'"),
        ("experts_per_token", "8", "unknown field experts_per_token"),
    ],
)
def test_models_that_cannot_be(tmp_path: Path, key: str, value: str, message: str) -> None:
    path = written(tmp_path, "models", "qwen3-235b", (key, value))
    with pytest.raises(ConfigError) as raised:
        load_model(path)
    assert raised.value.message.startswith(path) and message in raised.value.message


@pytest.mark.parametrize(
    ("key", "value", "message"),
    [
        ("index_topk", "0", "field attention[0].index_topk is 0; it must be at least 1"),
        ("index_heads", "64\nratio = 0", "not TOML"),
        ("kv_format", '"bf16"', "it must be fp8, as compressed attention keeps its records"),
        ("o_groups", "15", "field attention[0].o_groups is 15; it must be a divisor of heads x head_dim, 65536"),
    ],
)
def test_compressed_models_that_cannot_be(tmp_path: Path, key: str, value: str, message: str) -> None:
    path = written(tmp_path, "models", "deepseek-v4-pro", (key, value))
    with pytest.raises(ConfigError) as raised:
        load_model(path)
    assert message in raised.value.message


def test_an_index_needs_all_its_parts(tmp_path: Path) -> None:
    text = text_of("models", "deepseek-v4-pro").replace("index_topk = 1024\n", "")
    (tmp_path / "m.toml").write_text(text)
    with pytest.raises(ConfigError, match="an index needs ratio, index_heads, index_head_dim, index_topk"):
        load_model(str(tmp_path / "m.toml"))


@pytest.mark.parametrize(
    ("key", "value", "message"),
    [
        ("memory", "1.2", "field products.bf16.memory is 1.2; it must be at most 1"),
        ("floor_s", "2.5e3", "field products.bf16.floor_s is 2500.0; it must be at most 60"),
        ("points", "[[0, 5e-6], [1e6, 4e-6]]", "bytes rising and seconds not falling"),
        ("points", "[[0, 5e-6]]", "two or more rows"),
        ("expert_imbalance", "0.5", "field expert_imbalance is 0.5"),
        ("max_rows", "0", "field mono.max_rows is 0; it must be at least 1"),
        ("launch_s", "1", "unknown field launch_s"),
    ],
)
def test_kernel_figures_that_cannot_be(tmp_path: Path, key: str, value: str, message: str) -> None:
    path = written(tmp_path, "kernels", "blackwell", (key, value))
    with pytest.raises(ConfigError) as raised:
        load_kernels(path)
    assert message in raised.value.message


def test_figures_over_those_of_another_file(tmp_path: Path) -> None:
    base, mine = load_kernels("blackwell"), load_kernels("cdna4")
    assert mine.products["fp8"].floor_s == 3.5e-6 and mine.products["fp8"].memory == base.products["fp8"].memory
    path = tmp_path / "own.toml"
    path.write_text('name = "own"\nbased_on = "cdna4"\ndate = 2026-01-01\nsource = "a test"\n')
    with pytest.raises(ConfigError, match=r"field based_on is 'cdna4'; it must be one of blackwell$"):
        load_kernels(str(path))
    path.write_text('name = "own"\nbased_on = "blackwell"\ndate = 2026-01-01\nsource = "a test"\n[step]\nsink_s = 1\n')
    with pytest.raises(ConfigError, match=r"own.toml \(over kernels/blackwell.toml\): unknown field step.sink_s"):
        load_kernels(str(path))


def test_a_device_names_its_figures_relative_to_itself(tmp_path: Path) -> None:
    (tmp_path / "k.toml").write_text('name = "k"\nbased_on = "blackwell"\ndate = 2026-01-01\nsource = "a test"\n')
    device = load_device(written(tmp_path, "devices", "b200", ("kernels", '"k.toml"')))
    assert load_kernels(device.kernels).name == "k"


def test_links_are_asked_for_by_name() -> None:
    with pytest.raises(ConfigError, match=r"device GB10 has no \[links.host\]; it has ssd, rdma"):
        load_device("gb10").link("host")


def test_measured_steps_open() -> None:
    assert open_table("steps", "glm-5.3-flash-4xgb10-dcp4").rows("rows", 4)[0][3] == 0.25
