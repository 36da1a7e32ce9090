"""What the probe finds out about templates with different habits."""

from __future__ import annotations

import pytest

from samovar.text.template import ChatTemplate
from samovar.text.template_traits import TemplateTraits
from tests.text import templates


@pytest.mark.parametrize(
    ("source", "traits"),
    [
        (templates.PLAIN, TemplateTraits()),
        (templates.ALTERNATING, TemplateTraits(merged_roles=frozenset({"user", "assistant"}), system="nowhere")),
        (templates.LAST_SYSTEM, TemplateTraits(merged_roles=frozenset({"system"}), system="head")),
        (templates.TOOLS, TemplateTraits(reads_tools=True)),
        (
            templates.NULL_AND_TEXT,
            TemplateTraits(string_arguments=True, null_content_with_calls=True),
        ),
        (templates.ITEMS, TemplateTraits()),
        (templates.RAW, TemplateTraits(string_arguments=True)),
        (templates.ESCAPING, TemplateTraits()),
        ("{{ messages[0].nothing.at.all }}", TemplateTraits()),
    ],
    ids=["plain", "alternating", "last system", "tools", "null and text", "items", "raw", "escaping", "broken"],
)
def test_traits(source: str, traits: TemplateTraits) -> None:
    assert ChatTemplate({"default": source}, {})._traits["default"] == traits
