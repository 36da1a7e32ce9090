"""Complaints name the file, the field, its value and what it must be; nothing is silently ignored."""

from __future__ import annotations

from collections.abc import Callable

import pytest

from samovar.base.errors import ConfigError
from samovar.spec.toml_table import TomlTable


def table(text: str) -> TomlTable:
    return TomlTable.parse(text, "my.toml")


@pytest.mark.parametrize(
    ("text", "read", "message"),
    [
        ("x = 1", lambda t: t.number("y"), "my.toml: field y is missing; it must be a number"),
        ("x = true", lambda t: t.number("x"), "my.toml: field x is True; it must be a number"),
        ("x = nan", lambda t: t.number("x"), "my.toml: field x is nan; it must be a finite number"),
        ("x = 0", lambda t: t.positive("x"), "my.toml: field x is 0; it must be a finite number more than 0"),
        ("x = -2", lambda t: t.duration_s("x"), "my.toml: field x is -2; it must be 0 or more seconds"),
        ("x = 2500", lambda t: t.duration_s("x"), "my.toml: field x is 2500; it must be at most 60"),
        ("x = 1.5", lambda t: t.fraction("x"), "my.toml: field x is 1.5; it must be at most 1"),
        ("x = 1.5", lambda t: t.integer("x"), "my.toml: field x is 1.5; it must be an integer"),
        ("x = 0", lambda t: t.integer("x"), "my.toml: field x is 0; it must be at least 1"),
        ("x = 1", lambda t: t.flag("x"), "my.toml: field x is 1; it must be true or false"),
        ("x = ''", lambda t: t.text("x"), "my.toml: field x is ''; it must be a string"),
        ("x = 'c'", lambda t: t.text("x", choices=("b", "a")), "my.toml: field x is 'c'; it must be one of a, b"),
        ("x = 7", lambda t: t.day("x"), "my.toml: field x is 7; it must be a date"),
        ("x = [[1, 2], [3]]", lambda t: t.rows("x", 2), "it must be a list of rows of 2 numbers, each 0 or more"),
        ("x = [[1, -2]]", lambda t: t.rows("x", 2), "my.toml: field x is [[1, -2]]; it must be a list of rows"),
        ("x = 3", lambda t: t.table("x"), "my.toml: field x is 3; it must be a table"),
        ("x = []", lambda t: t.tables("x"), "my.toml: field x is []; it must be an array of tables"),
        ("[a]\nx = 3", lambda t: t.table("a").text("x"), "my.toml: field a.x is 3; it must be a string"),
        ("[[a]]\n[[a]]\nx = 3", lambda t: t.tables("a")[1].text("x"), "my.toml: field a[1].x is 3"),
    ],
)
def test_what_is_wrong_is_said(text: str, read: Callable[[TomlTable], object], message: str) -> None:
    with pytest.raises(ConfigError) as raised:
        read(table(text))
    assert message in raised.value.message


def test_what_is_not_toml() -> None:
    with pytest.raises(ConfigError, match=r"^my.toml: not TOML: .*line 1"):
        table("x = = 1")


def test_unknown_fields_are_named_at_any_depth() -> None:
    found = table("x = 1\n[a]\ny = 2\nz = 3")
    found.integer("x")
    with pytest.raises(ConfigError, match=r"^my.toml: unknown field a; known here: x$"):
        found.done()
    found.table("a").integer("y")
    expected = r"^my.toml: unknown field a.z; known here: y \(fields of the top level stand before"
    with pytest.raises(ConfigError, match=expected):
        found.done()


def test_long_values_are_cut() -> None:
    with pytest.raises(ConfigError) as raised:
        table(f"x = '{'y' * 500}'").number("x")
    assert len(raised.value.message) < 140


def test_defaults_and_dates() -> None:
    found = table("d = 2026-08-01\nx = [1, 2]")
    assert (found.number("a", 2.5), found.integer("b", 0), found.flag("c", True)) == (2.5, 0, True)
    assert found.day("d") == "2026-08-01"
    with pytest.raises(ConfigError, match="unknown field x"):
        found.done()


def test_a_table_over_another() -> None:
    base = table("x = 1\ny = [1]\n[a]\np = 1\nq = 2\n[b]\nr = 1")
    over = TomlTable.parse("y = [2, 3]\n[a]\nq = 5\n[c]\ns = 1", "mine.toml").over(base)
    assert over.where == "mine.toml (over my.toml)"
    assert over.integer("x") == 1 and over.has("b") and over.has("c")
    assert (over.table("a").integer("p"), over.table("a").integer("q")) == (1, 5)
    with pytest.raises(ConfigError, match=r"field y is \[2, 3\]"):
        over.integer("y")
