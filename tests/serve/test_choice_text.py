"""One choice: the text does not depend on how the engine's tokens were grouped."""

from __future__ import annotations

from hypothesis import given, settings
from hypothesis import strategies as st

from samovar.core.events import FinishReason, Output
from samovar.core.plan import TokenLogprobs
from samovar.serve.choice_text import ChoiceText, Delta, TextOptions
from samovar.serve.job import joined
from tests.serve.conftest import END, EXTRA, ids

TEXTS = st.text(alphabet="ab😀ö", max_size=12)


def read(tokenizer, options: TextOptions, outputs: list[Output], together: int) -> tuple[Delta, int]:
    """Pushes outputs `together` at a time; the joined pieces, and the tokens counted."""
    text, pieces = ChoiceText(tokenizer, options), []
    for at in range(0, len(outputs), together):
        if text.finished:
            break
        piece = text.push(outputs[at : at + together])
        if piece is not None:
            pieces.append(piece)
    assert text.finished
    assert [p.finish_reason is None for p in pieces] == [True] * (len(pieces) - 1) + [False]
    assert all(piece.text for piece in pieces[:-1])
    return joined(pieces), text.num_tokens


@settings(max_examples=150, deadline=None)
@given(
    parts=st.lists(TEXTS, min_size=1, max_size=5),
    cuts=st.lists(st.integers(1, 6), min_size=1, max_size=5),
    together=st.integers(1, 5),
    stops=st.lists(st.sampled_from(["ab", "ba", "😀", "öa", "aab"]), max_size=2, unique=True),
    include=st.booleans(),
    ends=st.booleans(),
    logprobs=st.booleans(),
)
def test_cuts_do_not_matter(tokenizer, parts, cuts, together, stops, include, ends, logprobs) -> None:
    tokens = [token for part in parts for token in (*ids(part), EXTRA)] + ([END] if ends else [])
    outputs, at = [], 0
    while at < len(tokens):
        size = cuts[len(outputs) % len(cuts)]
        group = tuple(tokens[at : at + size])
        at += size
        last = at >= len(tokens)
        infos = tuple(TokenLogprobs(-float(token)) for token in group) if logprobs else ()
        reason = (FinishReason.STOP if ends else FinishReason.LENGTH) if last else None
        outputs.append(Output(1, group, infos, reason, END if last and ends else None))
    options = TextOptions(stops=tuple(stops), include_stop=include, eos_ids=(END,), logprobs=0 if logprobs else -1)
    whole, count = read(tokenizer, options, outputs, together)

    text = "".join(parts)
    found = [(text.find(stop) + len(stop), -len(stop), stop) for stop in stops if stop in text]
    if not found:
        assert whole.text == text and count == len(tokens)
        assert whole.finish_reason == ("stop" if ends else "length") and whole.stop_reason is None
    else:
        end, _, stop = min(found)
        assert whole.text == (text[:end] if include else text[: end - len(stop)])
        assert (whole.finish_reason, whole.stop_reason) == ("stop", stop)
        assert tokenizer.decode(tokens[:count]) == text[:end] and tokens[count - 1] != EXTRA
    assert list(whole.token_ids) == tokens[:count]
    if logprobs:
        hidden = ends and not found and not include
        assert [info.logprob for info in whole.logprobs] == [-float(t) for t in tokens[: count - hidden]]
        assert all(info.offset <= len(text) for info in whole.logprobs)
    assert whole.logprobs or not logprobs or count - (ends and not include) == 0
