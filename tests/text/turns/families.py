"""The habits of well-known families' chat templates, in small, and a vocabulary with their tokens."""

from __future__ import annotations

from dataclasses import dataclass

import tokenizers
from tokenizers import AddedToken, decoders

from samovar.text.template import ChatTemplate
from samovar.text.tokenizer import SpecialTokens, Tokenizer
from tests.text.vocabularies import _trained


@dataclass(frozen=True)
class Family:
    source: str
    tokens: tuple[str, ...]
    ends: tuple[str, ...]
    begin: str = ""
    call: str = '<tool_call>\n{"name":"measure", "arguments": {"b":1,"a": "x"}}\n</tool_call>'
    """As its model would write it, in a spelling that its template has not."""

    def tokenizer(self) -> Tokenizer:
        backend = tokenizers.Tokenizer.from_str(_trained().to_str())
        backend.decoder = decoders.ByteLevel()
        backend.add_special_tokens([AddedToken(token, special=True, normalized=False) for token in self.tokens])
        ends = tuple(backend.token_to_id(token) for token in self.ends)
        return Tokenizer(backend, SpecialTokens({"bos_token": self.begin, "eos_token": self.ends[0]}, ends))

    def template(self, tokenizer: Tokenizer) -> ChatTemplate:
        return ChatTemplate({"default": self.source}, tokenizer.special_tokens)


# Calls are shown without the text beside them; tools stand in the first question.
LLAMA3 = Family(
    "{{- bos_token }}{% set ns = namespace(first=true) %}{% for m in messages %}"
    "{{- '<|start_header_id|>' + ('ipython' if m.role == 'tool' else m.role) + '<|end_header_id|>\\n\\n' }}"
    "{%- if m.role == 'user' and ns.first and tools %}{% set ns.first = false %}"
    'Call functions as {"name": .., "parameters": ..}.{% for t in tools %}\n{{ t | tojson }}{% endfor %}\n{% endif %}'
    "{%- if m.tool_calls %}{% if m.tool_calls | length > 1 %}{{ raise_exception('one call at a time') }}{% endif %}"
    "{%- set c = m.tool_calls[0].function %}"
    "{{- '{\"name\": \"' + c.name + '\", \"parameters\": ' }}{{ c.arguments | tojson }}{{ '}' }}"
    "{%- else %}{{ m.content | trim }}{% endif %}{{ '<|eot_id|>' }}{% endfor %}"
    "{%- if add_generation_prompt %}{{ '<|start_header_id|>assistant<|end_header_id|>\\n\\n' }}{% endif %}",
    ("<|begin_of_text|>", "<|start_header_id|>", "<|end_header_id|>", "<|eot_id|>", "<|eom_id|>"),
    ("<|eot_id|>", "<|eom_id|>"),
    "<|begin_of_text|>",
    '{"name":"measure","parameters":{"b":1,"a":"x"}}',
)
# No header for answers, a blank before each; roles take turns; ids of nine characters; system joins the last question.
MISTRAL = Family(
    "{%- if messages[0].role == 'system' %}{% set system = messages[0].content %}{% set rest = messages[1:] %}"
    "{%- else %}{% set rest = messages %}{% endif %}{% set ns = namespace(turn=0) %}{{ bos_token }}"
    "{%- for m in rest %}{% if m.role in ('user', 'assistant') and not m.tool_calls %}"
    "{%- if (m.role == 'user') != (ns.turn % 2 == 0) %}{{ raise_exception('roles must alternate') }}{% endif %}"
    "{%- set ns.turn = ns.turn + 1 %}{% endif %}{% endfor %}"
    "{%- for m in rest %}{% if m.role == 'user' %}"
    "{%- if tools and loop.first %}[AVAILABLE_TOOLS] {{ tools | tojson }}[/AVAILABLE_TOOLS]{% endif %}"
    "[INST] {% if loop.first and system is defined %}{{ system + '\\n\\n' }}{% endif %}{{ m.content }}[/INST]"
    "{%- elif m.tool_calls %}[TOOL_CALLS] [{% for c in m.tool_calls %}"
    "{%- if c.id | length != 9 %}{{ raise_exception('ids have nine characters') }}{% endif %}"
    '{"name": "{{ c.function.name }}", "arguments": {{ c.function.arguments | tojson }}, "id": "{{ c.id }}"}'
    "{{- ', ' if not loop.last }}{% endfor %}]</s>"
    "{%- elif m.role == 'tool' %}{% if m.tool_call_id | length != 9 %}{{ raise_exception('nine') }}{% endif %}"
    "[TOOL_RESULTS] {{ m.content }}[/TOOL_RESULTS]"
    "{%- elif m.role == 'assistant' %}{{ ' ' + m.content | trim + '</s>' }}"
    "{%- else %}{{ raise_exception('unknown role') }}{% endif %}{% endfor %}",
    ("<s>", "</s>", "[INST]", "[/INST]", "[TOOL_CALLS]", "[AVAILABLE_TOOLS]", "[/AVAILABLE_TOOLS]",
     "[TOOL_RESULTS]", "[/TOOL_RESULTS]"),
    ("</s>",),
    "<s>",
    '[TOOL_CALLS][{"name":"measure","arguments":{"b":1,"a":"x"}}]',
)  # fmt: skip
# Calls show only beside null content, arguments as text; what follows results depends on them.
DEEPSEEK = Family(
    "{{- bos_token }}{% set ns = namespace(results=false) %}"
    "{%- if tools %}{{ tools | tojson }}{% endif %}"
    "{%- for m in messages %}{% if m.role == 'system' %}{{ m.content }}{% endif %}{% endfor %}"
    "{%- for m in messages %}"
    "{%- if m.role == 'user' %}{% set ns.results = false %}<｜User｜>{{ m.content }}<｜Assistant｜>"
    "{%- elif m.role == 'assistant' and m.content is none %}{% set ns.results = false %}<｜calls｜>"
    "{%- for c in m.tool_calls %}<｜call｜>{{ c.function.name + '<｜sep｜>' + c.function.arguments }}<｜/call｜>"
    "{%- endfor %}<｜/calls｜><｜end｜>"
    "{%- elif m.role == 'assistant' %}{{ '<｜/outputs｜>' if ns.results }}{% set ns.results = false %}"
    "{{- m.content.split('</think>')[-1] + '<｜end｜>' }}"
    "{%- elif m.role == 'tool' %}{{ '' if ns.results else '<｜outputs｜>' }}{% set ns.results = true %}"
    "<｜output｜>{{ m.content }}<｜/output｜>{% endif %}{% endfor %}"
    "{%- if ns.results %}<｜/outputs｜>{% endif %}",
    ("<｜begin｜>", "<｜end｜>", "<｜User｜>", "<｜Assistant｜>", "<｜calls｜>", "<｜call｜>", "<｜sep｜>",
     "<｜/call｜>", "<｜/calls｜>", "<｜outputs｜>", "<｜output｜>", "<｜/output｜>", "<｜/outputs｜>"),
    ("<｜end｜>",),
    "<｜begin｜>",
    '<｜calls｜><｜call｜>measure<｜sep｜>{"b":1,"a":"x"}<｜/call｜><｜/calls｜>',
)  # fmt: skip
# Nothing ends an answer but the next role's token.
GLM = Family(
    "[gMASK]{% if tools %}<|system|>\n{{ tools | tojson }}{% endif %}"
    "{%- for m in messages %}{% if m.role == 'assistant' %}<|assistant|>\n"
    "{%- if m.reasoning_content %}<think>{{ m.reasoning_content | trim }}</think>\n"
    "{%- else %}<think></think>\n{% endif %}"
    "{{- m.content | trim }}{% for c in m.tool_calls or [] %}\n<tool_call>{{ c.function.name }}"
    "{%- for k, v in c.function.arguments | items %}\n<arg_key>{{ k }}</arg_key>\n<arg_value>{{ v }}</arg_value>"
    "{%- endfor %}\n</tool_call>{% endfor %}"
    "{%- elif m.role == 'tool' %}<|observation|>\n{{ m.content }}"
    "{%- else %}<|{{ m.role }}|>\n{{ m.content }}{% endif %}{% endfor %}"
    "{%- if add_generation_prompt %}<|assistant|>\n{% if enable_thinking is defined and not enable_thinking %}"
    "<think></think>\n{% endif %}{% endif %}",
    ("[gMASK]", "<|system|>", "<|user|>", "<|assistant|>", "<|observation|>", "<|endoftext|>"),
    ("<|endoftext|>", "<|user|>", "<|observation|>"),
    call="<tool_call>measure\n<arg_key>b</arg_key><arg_value>1</arg_value>\n</tool_call>",
)
FAMILIES = {"llama3": LLAMA3, "mistral": MISTRAL, "deepseek": DEEPSEEK, "glm": GLM}
