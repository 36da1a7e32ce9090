"""Which templates only ever append: read off their source, and true of what they write."""

from __future__ import annotations

from hypothesis import given
from hypothesis import strategies as st
import pytest

from samovar.text.template import ChatTemplate
from tests.text.turns.conversations import ALTERNATING, CHATML, THINKING
from tests.text.turns.families import FAMILIES

LOOP = "{%% for m in messages %%}%s{%% endfor %%}"
OPENING = "{% if add_generation_prompt %}<a>{% endif %}"
APPENDING = [
    CHATML,
    FAMILIES["glm"].source,
    LOOP % "{{ m.content }}",
    "{{ bos_token }}" + LOOP % "{{ m.content }}",
    "{% if messages[0].role == 'system' %}{% set s = messages[0].content %}{% endif %}"
    + LOOP % "{{ m.content }}{{ s }}",
    LOOP % "{% if loop.first and messages[0].role != 'system' %}x{% endif %}{{ m.content }}" + OPENING,
    LOOP % "{% if loop.index0 == 0 %}{{ bos_token }}{% endif %}{% set c = m.content | trim %}{{ c }}",
    LOOP % "{% if m.role == 'x' %}{{ raise_exception('no ' + m.role) }}{% endif %}{{ m.content.split('a')[-1] }}",
    LOOP % "{% for c in m.tool_calls or [] %}{{ c }}{% if not loop.last %}, {% endif %}{% endfor %}{{ m.content }}",
    LOOP % "{% for c in [] %}{% else %}{% if loop.first %}!{% endif %}{% endfor %}{{ m.content }}",
    LOOP % "{% for c in [1, 2] if not loop.first %}{{ loop.last }}{% endfor %}{{ m.content }}",
    LOOP % "{% if m.role == 'user' %}{% continue %}{% endif %}{{ m.content }}",
    "{% generation %}" + LOOP % "{{ m.content }}" + "{% endgeneration %}",
]
OTHERS = [
    THINKING,
    ALTERNATING,
    *(family.source for name, family in FAMILIES.items() if name != "glm"),
    "",
    "{{ messages[0].content }}",
    "{{ messages | length }}" + LOOP % "{{ m.content }}",
    "{{ messages[-1].content }}" + LOOP % "{{ m.content }}",
    LOOP % "{{ m.content }}{% if loop.last %}!{% endif %}",
    LOOP % "{{ loop.index }}{{ m.content }}",
    LOOP % "{{ loop.length }}{{ m.content }}",
    LOOP % "{{ messages[loop.index0 - 1].content }}",
    LOOP % "{{ loop.nextitem }}{{ m.content }}",
    LOOP % "{{ m.content }}{% if add_generation_prompt %}?{% endif %}",
    LOOP % "{% if loop.changed(m.role) %}{{ m.content }}{% endif %}",
    LOOP % "{% if m.role == 'x' %}{% break %}{% endif %}{{ m.content }}",
    LOOP % "{% for c in m.tool_calls %}{{ messages[1] }}{% endfor %}",
    LOOP % "{{ m.content }}{% for c in [] %}{% else %}{% if loop.last %}!{% endif %}{% endfor %}",
    LOOP % "{{ m.content }}{% for c in [1] if loop.last %}!{% endfor %}",
    "{% for m in messages if m.role == 'user' %}{{ m.content }}{% endfor %}",
    "{% for m in messages %}{{ m.content }}{% else %}none{% endfor %}",
    "{% for m in messages[1:] %}{{ m.content }}{% endfor %}",
    "{% for m in messages | reverse %}{{ m.content }}{% endfor %}",
    "{% for m in messages %}{{ m.content }}{% endfor %}{% for m in messages %}{{ m.role }}{% endfor %}",
    "{% set ns = namespace(n=0) %}" + LOOP % "{% set ns.n = ns.n + 1 %}{{ ns.n }}",
    LOOP % "{{ m.content }}" + "end",
    LOOP % "{{ m.content }}" + "{% if add_generation_prompt %}<a>{% else %}.{% endif %}",
    LOOP % "{{ m.content }}" + "{% if not add_generation_prompt %}.{% endif %}",
    LOOP % "{{ m.content }}{{ strftime_now('%H') }}",
    "{{ strftime_now('%H') }}" + LOOP % "{{ m.content }}",
    LOOP % "{{ ['a', 'b'] | random }}{{ m.content }}",
    "{% macro f(m) %}{{ messages[-1].content }}{{ m.content }}{% endmacro %}" + LOOP % "{{ f(m) }}",
    "{% set messages = [messages[0]] %}" + LOOP % "{{ m.content }}",
    "{% set c = cycler('a', 'b') %}" + LOOP % "{{ c.next() }}{{ m.content }}",
]
messages = st.lists(
    st.fixed_dictionaries(
        {"role": st.sampled_from(["user", "assistant", "system"]), "content": st.text("ab ", max_size=4)}
    ),
    min_size=1,
    max_size=6,
)


def made(source: str) -> ChatTemplate:
    return ChatTemplate({"default": source}, {"bos_token": "<s>"})


@pytest.mark.parametrize("source", APPENDING)
def test_appending(source: str) -> None:
    template = made(source)
    assert template.appends(with_tools=False)

    @given(messages, st.data(), st.booleans())
    def holds(said: list[dict[str, str]], data: st.DataObject, opened: bool) -> None:
        cut = data.draw(st.integers(1, len(said)))
        first, head = (template.write(part, add_generation_prompt=False) for part in (said[:1], said[:cut]))
        rest = template.write([said[0], *said[cut:]], add_generation_prompt=opened)
        assert rest.startswith(first)
        assert template.write(said, add_generation_prompt=opened) == head + rest[len(first) :]

    holds()


@pytest.mark.parametrize("source", OTHERS)
def test_not_certainly_appending(source: str) -> None:
    assert not made(source).appends(with_tools=False)


@pytest.mark.parametrize(
    "source", [source for source in OTHERS if "loop.last %}!" in source or "if loop.last" in source]
)
def test_the_loop_outside_is_seen_from_an_inner_one(source: str) -> None:
    """In its `else` and in its condition: so these do not append."""
    template = made(source)
    said = [{"role": "user", "content": content} for content in "abc"]
    head, rest = (template.write(part, add_generation_prompt=False) for part in (said[:2], [said[0], said[2]]))
    first = template.write(said[:1], add_generation_prompt=False)
    assert template.write(said, add_generation_prompt=False) != head + rest[len(first) :]
