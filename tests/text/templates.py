"""Small chat templates, each with one habit that published templates have."""

from __future__ import annotations

PLAIN = (
    "{%- for m in messages %}<{{ m.role }}>{{ m['content'] + '' }}</{{ m.role }}>{% endfor %}"
    "{% if add_generation_prompt %}<assistant>{% endif %}"
)
# Gemma, Mistral: raises unless user and assistant take turns, knows no system message.
ALTERNATING = (
    "{%- for m in messages %}"
    "{% if (m.role == 'user') != (loop.index0 % 2 == 0) %}"
    "{{ raise_exception('roles must alternate user/assistant') }}{% endif %}"
    "[{{ m.role }}]{{ m.content | trim }}{% endfor %}{% if add_generation_prompt %}[model]{% endif %}"
)
# Keeps the last of several system messages only.
LAST_SYSTEM = (
    "{%- set ns = namespace(system='') %}{% for m in messages if m.role == 'system' %}"
    "{% set ns.system = m.content %}{% endfor %}{{ ns.system }}"
    "{% for m in messages if m.role != 'system' %}|{{ m.content }}{% endfor %}"
)
# Qwen: tools as JSON, arguments as an object.
TOOLS = (
    "{%- for t in tools or [] %}{{ t | tojson }}\n{% endfor %}"
    "{%- for m in messages %}<{{ m.role }}>{{ m.content }}"
    "{% for c in m.tool_calls or [] %}<call>{{ c.function.name }}({{ c.function.arguments | tojson }}){% endfor %}"
    "{% endfor %}"
)
# DeepSeek-V3: calls only beside null content, arguments concatenated as text.
NULL_AND_TEXT = (
    "{%- for m in messages %}{% if m.role == 'assistant' and m.content is none %}"
    "{% for c in m.tool_calls %}{{ '<call>' + c.function.name + c.function.arguments }}{% endfor %}"
    "{% else %}<{{ m.role }}>{{ m.content }}{% endif %}{% endfor %}"
)
# Arguments printed as they are, so text is wanted.
RAW = (
    "{%- for m in messages %}<{{ m.role }}>{{ m.content }}"
    "{% for c in m.tool_calls or [] %}{{ c.function.name }} {{ c.function.arguments }}{% endfor %}{% endfor %}"
)
# Escapes whatever it gets a second time: no form is right.
ESCAPING = (
    "{%- for m in messages %}<{{ m.role }}>{{ m.content }}{% for c in m.tool_calls or [] %}"
    "{{ c.function.name }} {{ (c.function.arguments ~ '') | tojson }}{% endfor %}{% endfor %}"
)
# Qwen3-Coder: arguments item by item.
ITEMS = (
    "{%- for m in messages %}<{{ m.role }}>{{ m.content }}{% for c in m.tool_calls or [] %}<{{ c.function.name }}>"
    "{% for k, v in c.function.arguments | items %}<{{ k }}>{{ v }}{% endfor %}{% endfor %}{% endfor %}"
)
