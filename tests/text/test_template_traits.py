"""What the probe finds out about templates with different habits."""

from __future__ import annotations

import pytest

from samovar.text.template import ChatTemplate
from samovar.text.template_traits import TemplateTraits
from tests.text import templates


@pytest.mark.parametrize(
    ("source", "traits"),
    [
        (templates.PLAIN, TemplateTraits(supports_system=True)),
        (templates.ALTERNATING, TemplateTraits(merged_roles=frozenset({"user", "assistant"}))),
        (templates.LAST_SYSTEM, TemplateTraits(merged_roles=frozenset({"system"}), supports_system=True)),
        (templates.TOOLS, TemplateTraits(supports_system=True, supports_tools=True, supports_tool_calls=True)),
        (
            templates.NULL_AND_TEXT,
            TemplateTraits(
                string_arguments=True, null_content_with_calls=True, supports_system=True, supports_tool_calls=True
            ),
        ),
        (templates.ITEMS, TemplateTraits(supports_system=True, supports_tool_calls=True)),
        (templates.RAW, TemplateTraits(string_arguments=True, supports_system=True, supports_tool_calls=True)),
        (templates.ESCAPING, TemplateTraits(supports_system=True)),
        ("{{ messages[0].nothing.at.all }}", TemplateTraits()),
    ],
    ids=["plain", "alternating", "last system", "tools", "null and text", "items", "raw", "escaping", "broken"],
)
def test_traits(source: str, traits: TemplateTraits) -> None:
    assert ChatTemplate({"default": source}, {}).traits == traits
