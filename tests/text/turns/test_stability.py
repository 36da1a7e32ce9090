"""Templates that keep the prefix pass; of one that breaks it, the place is named."""

from __future__ import annotations

import pytest

from samovar.text.checkpoint import TextParts
from samovar.text.template import ChatTemplate
from samovar.text.turns.reader import TurnReader
from samovar.text.turns.stability import Break, find_break
from tests.text.turns.conversations import ALTERNATING, CHATML, THINKING, WITHOUT_TOKENS

pytestmark = pytest.mark.model

COUNTING = "<|im_start|>system\n{{ messages | length }} messages<|im_end|>\n" + CHATML
NO_HEADER = (
    "{% for m in messages %}{% if m.role == 'assistant' %}{{ m.content.split('</think>')[-1] | trim }}<|im_end|>"
    "{% else %}[{{ m.role }}] {{ m.content }}{% endif %}{% endfor %}"
)
# Puts what is said last to the front of all.
REMINDING = "<|im_start|>note\n{{ messages[-1].content }}<|im_end|>\n" + CHATML


def tried(parts: TextParts, source: str) -> Break | None:
    template = ChatTemplate({"default": source}, parts.tokenizer.special_tokens)
    return find_break(parts.tokenizer, lambda: TurnReader(parts.tokenizer, template))


@pytest.mark.parametrize("source", [CHATML, THINKING, ALTERNATING], ids=["chatml", "thinking", "alternating"])
def test_stable(smollm2: TextParts, source: str) -> None:
    assert tried(smollm2, source) is None


def test_the_checkpoint_s_own(smollm2: TextParts) -> None:
    assert smollm2.template is not None
    assert tried(smollm2, smollm2.template.source(with_tools=False)) is None


def test_a_template_that_counts(smollm2: TextParts) -> None:
    found = tried(smollm2, COUNTING)
    assert found is not None and found.when == "when an answer has become history"
    encode = smollm2.tokenizer.encode
    assert found.token == len(encode("<|im_start|>system\n")) and found.before.startswith("2 messages")
    assert found.now.startswith("4 messages")
    assert f"token {found.token} of {found.of}" in str(found) and "2 messages" in str(found)


def test_a_template_that_repeats_the_end_at_the_front(smollm2: TextParts) -> None:
    found = tried(smollm2, REMINDING)
    assert found is not None and found.token < 10 and found.before.startswith("How warm") and "And?" in found.now


def test_reasoning_that_cannot_be_put_back(smollm2: TextParts) -> None:
    found = tried(smollm2, NO_HEADER)
    assert found is not None and found.when == "when the model has reasoned"
    assert found.before.startswith("<think>") and found.now.startswith("Pour it.")


def test_a_template_that_marks_no_ends(smollm2: TextParts) -> None:
    """What follows an answer is merged into its last token."""
    found = tried(smollm2, WITHOUT_TOKENS)
    assert found is not None and found.when == "when an answer has become history"
    assert smollm2.tokenizer.decode(smollm2.tokenizer.encode(found.before)) == found.before == " Quite warm."
    assert found.now.startswith(" Quite warm.\n###") and found.token == found.of - 5
