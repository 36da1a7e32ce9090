"""docs/simulator.md shows what the model says now, misses included, and its examples work."""

from __future__ import annotations

from pathlib import Path
import re

import pytest

from samovar.sim.cost.layout import Layout
from samovar.sim.cost.roofline import CostModel
from samovar.sim.cost.shape import StepShape
from samovar.spec.catalog import known, load_device, load_model
from tests.sim.cost import kernel_rows, published_rows

TEXT = (Path(__file__).resolve().parents[3] / "docs" / "simulator.md").read_text()


@pytest.mark.parametrize("row", [*kernel_rows.all_rows(), *published_rows.all_rows()], ids=lambda row: row.line()[:60])
def test_every_row_stands_on_the_page(row: kernel_rows.KernelRow | published_rows.PublishedRow) -> None:
    assert row.line() in TEXT


def test_what_ships_is_named() -> None:
    for kind in ("devices", "models", "kernels", "steps"):
        for name in known(kind):
            assert f"`{name}`" in TEXT


def test_the_examples_device_is_one(tmp_path: Path) -> None:
    example = re.search(r"```toml\n(.*?)```", TEXT, re.S)
    assert example
    (tmp_path / "mine.toml").write_text(example[1])
    model = CostModel(load_model("smollm2-135m"), load_device(str(tmp_path / "mine.toml")), Layout())
    assert model.step_s([StepShape(1, 0)]).total_s == pytest.approx(96.5e6 / 31.7e9, rel=0.02)


def test_the_examples_code_runs() -> None:
    code = re.search(r"```python\n(.*?)```", TEXT, re.S)
    assert code
    names: dict[str, object] = {}
    exec(code[1], names)
    assert names["cost"].limit == "bandwidth" and names["tokens"] > 4e6  # type: ignore[attr-defined,operator]
