"""Constrained sampling: masks and how they meet the other parameters; the same tokens however they come about."""

from __future__ import annotations

from collections.abc import Iterator
import json
import random

from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
import jsonschema_rs
from llguidance import LLTokenizer, TokenizerWrapper
import numpy as np
import pytest

pytest.importorskip("torch")
from tests.runner.conftest import VOCAB, Tiny
from tests.runner.test_local import BLOCK, chunk, start
from tests.runner.test_sampler import params
import torch

from samovar.base.ids import RequestId
from samovar.base.keys import pack_tokens, root_key
from samovar.core.calls import Call
from samovar.core.config import EngineConfig
from samovar.core.events import FinishReason
from samovar.core.plan import StepPlan
from samovar.core.replay import Recorder, replay
from samovar.core.request import Request
from samovar.core.sampling import SamplingParams
from samovar.kernels.cpu.native_library import native_library
from samovar.models.checkpoint import open_folder
from samovar.models.llama import LlamaModel
from samovar.models.load import load_model, new_cache
from samovar.policy.lru import LRU
from samovar.runner.grammar import Masks
from samovar.runner.local import LocalRunner
from samovar.runner.native_draw import drawing
from samovar.runner.sampler import DrawMany, SamplingRow, sample
from samovar.runner.token_mask import MaskBuffers, TokenMask
from samovar.text.grammar.body import grammar_of
from samovar.text.grammar.compiler import GrammarCompiler
from samovar.text.grammar.schema import json_schema
from samovar.text.grammar.vocabulary import Vocabulary

pytestmark = pytest.mark.torch

EOS = (100, 99)


class Bytes:
    """Tokens 0 to 94 are the printable characters from the space on, then newline, '": ', 'ab' and two end tokens."""

    eos_token_id = EOS[0]
    bos_token_id = None
    tokens = (*(bytes([32 + i]) for i in range(95)), b"\n", b'": ', b"ab", b"", b"<end>", b"<eos>")
    special_token_ids = (99, 100)

    def __call__(self, text: str) -> list[int]:
        return [95 if char == "\n" else ord(char) - 32 for char in text]


def ids(text: str) -> list[int]:
    return Bytes()(text)


def text_of(tokens: list[int]) -> str:
    return b"".join(Bytes.tokens[token] for token in tokens if token not in EOS).decode()


def load() -> Vocabulary:
    assert len(Bytes.tokens) == VOCAB
    return Vocabulary(LLTokenizer(TokenizerWrapper(Bytes()), n_vocab=VOCAB, eos_token=list(EOS)), VOCAB, EOS)


@pytest.fixture(scope="module")
def compiler() -> GrammarCompiler:
    return GrammarCompiler(load)


@pytest.fixture(scope="module")
def masks(compiler: GrammarCompiler) -> Iterator[Masks]:
    masks = Masks(compiler, VOCAB)
    yield masks
    masks.close()


def masks_of(masks: Masks, rows: dict[int, dict[str, object]], output: str | list[int] = "") -> dict[int, TokenMask]:
    """Those of one step; the next call's take their place."""
    tokens = np.array(ids(output) if isinstance(output, str) else output, dtype=np.int32)
    return masks.start([(row, masks.begin(params(**values)), tokens) for row, values in rows.items()]).result()


def mask_of(masks: Masks, output: str | list[int], **values: object) -> TokenMask:
    return masks_of(masks, {7: values}, output)[7]


def allowed(masks: Masks, output: str | list[int], **values: object) -> set[str | int]:
    """Texts of the tokens that may come next; end tokens and those of no text by their ids."""
    mask = mask_of(masks, output, **values)
    assert mask.fault is None
    found = np.flatnonzero(~mask.forbidden()).tolist()
    assert found == [token for token in range(VOCAB) if mask.allows(token)]
    return {token if token in (98, *EOS) else text_of([token]) for token in found}


AB = 'start: "ab" | "abc"'
STOPS = {"stop_token_ids": EOS}


def test_only_what_the_grammar_allows(masks: Masks) -> None:
    """What is forced, in the tokens it is spelled with."""
    assert allowed(masks, "", grammar=AB, **STOPS) == {"a"}
    assert allowed(masks, "", grammar="start: /[a-c]+/", **STOPS) == {"a", "b", "c", "ab"}
    assert allowed(masks, "ab", grammar=AB, **STOPS) == {"c", *EOS}


def test_a_complete_answer_ends_by_the_requests_own_stop_tokens(masks: Masks) -> None:
    assert allowed(masks, "abc", grammar=AB, **STOPS) == set(EOS)
    assert allowed(masks, "abc", grammar=AB, stop_token_ids=(99,)) == {99}
    assert allowed(masks, "abc", grammar=AB, stop_token_ids=(*EOS, ids("x")[0])) == {*EOS, "x"}
    assert allowed(masks, "a", grammar=AB, stop_token_ids=(*EOS, ids("x")[0])) == {"b"}


def test_without_stop_tokens_only_a_complete_answer_takes_end_tokens_and_then_no_other(masks: Masks) -> None:
    """ignore_eos: the answer goes on as long as it can, and is then filled."""
    assert allowed(masks, "ab", grammar=AB) == {"c"}
    assert allowed(masks, "abc", grammar=AB) == set(EOS)
    assert allowed(masks, [*ids("abc"), 100, 99, 100], grammar=AB) == set(EOS)


def test_min_tokens_keeps_the_end_out_as_long_as_there_is_a_choice(masks: Masks) -> None:
    assert allowed(masks, "ab", grammar=AB, min_tokens=5, **STOPS) == {"c"}
    assert allowed(masks, "abc", grammar=AB, min_tokens=5, **STOPS) == set(EOS)
    x = {"stop_token_ids": (*EOS, ids("x")[0]), "grammar": "start: /[xy]+/", "min_tokens": 2}
    assert allowed(masks, "y", **x) == {"y"} and allowed(masks, "yy", **x) == {"x", "y", *EOS}
    forced = {**x, "grammar": 'start: "xy"'}
    assert allowed(masks, "", **forced) == {"x"}


def test_a_grammar_at_fault_is_a_fault_of_its_row(masks: Masks) -> None:
    for output, grammar, words in (
        ("zz", AB, "cannot go on"),
        ([100], AB, "cannot go on"),
        ("abcx", AB, "cannot go on"),
        ("", "start: nowhere", "cannot be used"),
        ("", "start: a\na: a", "cannot be used"),
    ):
        mask = mask_of(masks, output, grammar=grammar, **STOPS)
        assert mask.fault is not None and words in mask.fault


def test_masks_follow_the_output_also_when_it_is_replaced(masks: Masks) -> None:
    made = masks.begin(params(grammar="start: /[a-c]*/ | /[d-f]*/", **STOPS))

    def after(output: str) -> set[str]:
        mask = masks.start([(0, made, np.array(ids(output), dtype=np.int32))]).result()[0]
        return {text_of([t]) for t in np.flatnonzero(~mask.forbidden()).tolist()} - {""}

    assert after("a") == after("abc") == {"a", "b", "c", "ab"}
    assert after("") == {"a", "b", "c", "d", "e", "f", "ab"}
    assert after("d") == after("de") == {"d", "e", "f"}


def test_buffers_grow_and_hold_any_vocabulary() -> None:
    buffers = MaskBuffers(45)
    for rows in (1, 3, 2):
        buffers.reserve(rows)
        for row in range(rows):
            mask = TokenMask(buffers, row)
            buffers.bits[row] = 0
            mask.put((0, 31, 44), True)
            mask.put((31,), False)
            mask.expand()
            assert buffers.floats[row, :45].nonzero()[0].tolist() == [i for i in range(45) if i not in (0, 44)]
            logits = np.linspace(-3, 3, 45, dtype=np.float32)
            assert mask.any() and mask.best(logits) == 44


def some_rows(seed: int, rows: int) -> torch.Tensor:
    return torch.randn(rows, VOCAB, generator=torch.Generator().manual_seed(seed)) * 3


def reference_draw(logits: torch.Tensor, rows: list[int], p: list[SamplingParams], numbers: list[float]) -> list[int]:
    """Inverse CDF of the softmax: what a native kernel does with these parameters."""
    tokens = []
    for row, one, u in zip(rows, p, numbers, strict=True):
        weights = torch.softmax(logits[row].double() / one.temperature, -1).numpy()
        tokens.append(int(np.searchsorted(np.cumsum(weights), u * weights.sum(), side="right")))
    return tokens


MIXTURE = st.fixed_dictionaries(
    {
        "temperature": st.sampled_from([0.0, 0.7, 2.0]),
        "top_p": st.sampled_from([1.0, 0.5]),
        "top_k": st.sampled_from([0, 3]),
        "seed": st.integers(0, 1000),
        "logprobs": st.sampled_from([-1, 2]),
        "logit_bias": st.sampled_from([(), ((60, 100.0),), ((65, -100.0), (66, -100.0), (67, -100.0))]),
    }
)


@settings(max_examples=100, deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(
    rows=st.lists(st.tuples(MIXTURE, st.booleans()), min_size=1, max_size=6),
    seed=st.integers(0, 99),
    native=st.booleans(),
)
def test_constrained_rows_obey_and_disturb_nobody(
    masks: Masks, rows: list[tuple[dict[str, object], bool]], seed: int, native: bool
) -> None:
    draw_many: DrawMany | None = None
    if native:
        draw_many = reference_draw
        rows = [({**values, "top_p": 1.0, "top_k": 0}, constrained) for values, constrained in rows]
    bound = {i: {"grammar": "start: /[a-c]+/", **values} for i, (values, constrained) in enumerate(rows) if constrained}
    samples = [SamplingRow(RequestId(i), params(**values), i) for i, (values, _) in enumerate(rows)]
    logits = some_rows(seed, len(rows))
    before = logits.clone()
    together = sample(logits, samples, draw_many=draw_many, masks=masks_of(masks, bound))
    free = sample(logits, samples, draw_many=draw_many)
    assert torch.equal(before, logits) and not together.faults
    for i in range(len(rows)):
        own = masks_of(masks, {0: bound[i]}) if i in bound else {}
        alone = sample(logits[i : i + 1], samples[i : i + 1], draw_many=draw_many, masks=own)
        assert alone.tokens[0] == together.tokens[i] and alone.logprobs[0] == together.logprobs[i]
        if i in bound:
            assert text_of([together.tokens[i]]) in ("a", "b", "c", "ab")  # type: ignore[list-item]
        else:
            assert together.tokens[i] == free.tokens[i]


def test_a_greedy_choice_is_the_best_allowed_one(masks: Masks) -> None:
    mask = mask_of(masks, "", grammar="start: /[a-c]+/")
    logits = some_rows(4, 1)
    row = SamplingRow(RequestId(0), params(temperature=0), 0)
    candidates = [token for token in range(VOCAB) if mask.allows(token)]
    expected = max(candidates, key=lambda token: float(logits[0, token]))
    assert sample(logits, [row], masks={0: mask}).tokens == [expected] != sample(logits, [row]).tokens


@pytest.mark.parametrize("draw_many", [None, reference_draw], ids=["numpy", "many"])
def test_draws_follow_the_distribution_of_what_is_allowed(masks: Masks, draw_many: DrawMany | None) -> None:
    """Also where a first draw, from everything, decides unless it is not allowed."""
    mask = mask_of(masks, "", grammar="start: /[a-f]+/")
    logits = some_rows(8, 1)
    logits[0, ids("abcdef")] += 5
    probabilities = torch.softmax(logits[0].double(), -1).numpy() * ~mask.forbidden()
    probabilities /= probabilities.sum()
    assert 0.2 < torch.softmax(logits[0].double(), -1).numpy()[~mask.forbidden()].sum() < 0.8
    n = 3000
    tokens = []
    for i in range(n):
        mask._expanded = False  # the same bits for a row of its own
        row = SamplingRow(RequestId(i), params(seed=5), i)
        tokens += sample(logits, [row], draw_many=draw_many, masks={0: mask}).tokens
    found = np.bincount(np.array(tokens), minlength=VOCAB)
    assert (np.abs(found - n * probabilities) <= 5 * np.sqrt(n * probabilities * (1 - probabilities)) + 1e-9).all()


def test_a_draw_that_takes_a_forbidden_token_is_made_again(masks: Masks) -> None:
    """As a native kernel does when its number is 0."""
    mask = mask_of(masks, "", grammar="start: /[a-c]+/", top_k=VOCAB - 1)
    row = SamplingRow(RequestId(0), params(seed=3, top_k=VOCAB - 1), 0)

    def first(logits: torch.Tensor, rows: list[int], p: list[SamplingParams], numbers: list[float]) -> list[int]:
        forbidden = torch.tensor(mask.forbidden())
        weights = torch.softmax(logits[rows[0]].double(), -1)
        assert 0 < float(weights[forbidden].sum()) < 2.0**-53
        return [int(forbidden.nonzero()[0])]

    drawn = sample(some_rows(3, 1), [row], draw_many=first, masks={0: mask}).tokens
    assert drawn == sample(some_rows(3, 1), [row], masks={0: mask}).tokens and mask.allows(drawn[0] or 0)


def test_native_draws_of_constrained_rows(masks: Masks) -> None:
    """Rows of the buffers are wider than this vocabulary; what comes is allowed, and the same alone and together."""
    library = native_library()
    if library is None:
        pytest.skip("this installation has no native kernels")
    from samovar.kernels.cpu.native_ops import native_ops  # there only where a compiler was

    ops = native_ops(library.choose("auto"), 2)
    assert ops.draw is not None
    bound = {i: {"grammar": "start: /[a-c]+/", "top_k": i % 3} for i in range(6)}
    rows = [SamplingRow(RequestId(i), params(seed=i, top_k=i % 3), i) for i in range(6)]
    logits = some_rows(9, 6)
    together = sample(logits, rows, draw_many=drawing(ops.draw), masks=masks_of(masks, bound)).tokens
    for i in range(6):
        own = masks_of(masks, {0: bound[i]})
        assert own[0].allows(together[i] or 0)
        assert sample(logits[i : i + 1], rows[i : i + 1], draw_many=drawing(ops.draw), masks=own).tokens == [
            together[i]
        ]


def test_penalties_cannot_lift_a_mask_nor_empty_it(masks: Masks) -> None:
    b = ids("b")[0]
    for values in ({"logit_bias": ((5, 100.0), (b, -100.0))}, {"logit_bias": ((5, 1e30),)}):
        for temperature in (0.0, 1.0, 1.9):
            mask = mask_of(masks, "", grammar='start: "b"')
            row = SamplingRow(RequestId(0), params(temperature=temperature, **values), 0)
            assert sample(some_rows(1, 1), [row], masks={0: mask}).tokens == [b]


def test_faults_are_their_rows_alone(masks: Masks) -> None:
    bad = masks_of(masks, {1: {"grammar": "start: nowhere"}})[1]
    rows = [SamplingRow(RequestId(i), params(temperature=0), 0) for i in range(3)]
    logits = some_rows(2, 3)
    result = sample(logits, rows, masks={1: bad})
    assert result.faults == {1: bad.fault} and result.tokens == [int(logits[0].argmax()), None, int(logits[2].argmax())]


@pytest.fixture(scope="module")
def model(tiny: Tiny) -> LlamaModel:
    return load_model(open_folder(tiny.folder), "float32")


SCHEMA = {
    "type": "object",
    "properties": {
        "a": {"type": "string", "maxLength": 12},
        "n": {"type": "integer", "minimum": 0, "maximum": 99},
        "kind": {"enum": ["x", "yy", 3]},
        "list": {"type": "array", "items": {"type": "boolean"}, "maxItems": 3},
    },
    "required": ["a", "n", "kind", "list"],
    "additionalProperties": False,
}
GRAMMAR = grammar_of(json_schema(SCHEMA, strict=True, param="schema"), {}).text


class Lab:
    """The tiny model behind a core; every run gets fresh ones."""

    def __init__(self, model: LlamaModel, compiler: GrammarCompiler) -> None:
        self.model, self.compiler = model, compiler
        self.preemptions = 0
        self.calls: list[Call] = []

    def run(self, requests: list[Request], *, at_once: bool = True, **config: object) -> dict[int, list[int]]:
        settings: dict[str, object] = {"num_blocks": 512, "block_tokens": BLOCK, "max_model_len": 128, **config}
        self.calls = []
        core = Recorder(EngineConfig(**settings), LRU(), sink=self.calls.append)  # type: ignore[arg-type]
        cache = new_cache(self.model.spec, core.config.num_blocks, BLOCK, "float32")
        runner = LocalRunner(self.model, cache, compiler=self.compiler)
        tokens: dict[int, list[int]] = {request.id: [] for request in requests}
        self.errors: dict[int, str] = {}
        self.finishes: dict[int, FinishReason] = {}
        waiting, flight, now = list(requests), [], 0.0
        try:
            while waiting or core.has_work:
                while waiting and (at_once or not core.has_work):
                    assert core.submit(waiting.pop(0), now).error is None
                while (plan := core.plan(now)) is not None:
                    flight.append((plan.step, runner.submit(plan)))
                now += 1.0
                if flight:
                    step, ticket = flight.pop(0)
                    for output in core.apply(step, ticket.result(), now):
                        tokens[output.request_id] += output.token_ids
                        if output.finish is not None:
                            self.finishes[output.request_id] = output.finish
                        if output.error is not None:
                            self.errors[output.request_id] = output.error.message
            core.check()
        finally:
            runner.close()
        self.header = core.header
        self.preemptions = core.stats().preemptions
        return tokens


@pytest.fixture(scope="module")
def lab(model: LlamaModel, compiler: GrammarCompiler) -> Lab:
    return Lab(model, compiler)


def requests(count: int, max_tokens: int = 90) -> list[Request]:
    """Constrained and free ones by turns, greedy and random, of different lengths."""
    made = []
    for i in range(count):
        sampling = SamplingParams(
            max_tokens,
            stop_token_ids=EOS,
            temperature=(0.0, 1.0, 1.5)[i % 3],
            seed=i,
            frequency_penalty=0.5 if i % 4 == 1 else 0.0,
            grammar=GRAMMAR if i % 2 == 0 else "",
        )
        prompt = [(7 * i + 3 * j) % 95 for j in range(5 + i)]
        made.append(Request(RequestId(i), pack_tokens(prompt), sampling, root_key(b"lab")))
    return made


def test_the_same_tokens_alone_together_preempted_and_at_both_depths(lab: Lab) -> None:
    wanted = lab.run(requests(10), at_once=False, depth=1)
    assert not lab.errors
    whole = 0
    for i in range(0, 10, 2):
        if lab.finishes[i] is FinishReason.STOP:
            whole += 1
            assert jsonschema_rs.is_valid(SCHEMA, json.loads(text_of(wanted[i])))
    assert whole >= 2
    for depth in (1, 2):
        assert lab.run(requests(10), depth=depth) == wanted and lab.preemptions == 0
        assert lab.run(requests(10), depth=depth, num_blocks=48) == wanted
        assert lab.preemptions > 0 and not lab.errors


def test_a_log_with_grammars_replays(lab: Lab) -> None:
    lab.run(requests(6), num_blocks=48, depth=2)
    assert replay(lab.header, lab.calls, LRU()) > 50


def test_the_end_wins_over_min_tokens(lab: Lab) -> None:
    sampling = SamplingParams(50, min_tokens=40, stop_token_ids=EOS, temperature=1.0, seed=1, grammar='start: "abab"')
    request = Request(RequestId(0), pack_tokens([1, 2, 3]), sampling, root_key(b"lab"))
    tokens = lab.run([request])[0]
    assert text_of(tokens) == "abab" and tokens[-1] in EOS and len([t for t in tokens if t in EOS]) == 1
    assert lab.finishes[0] is FinishReason.STOP


def test_an_ignored_end_fills_up_to_max_tokens(lab: Lab) -> None:
    sampling = SamplingParams(12, temperature=1.0, seed=1, grammar='start: "abab"')
    request = Request(RequestId(0), pack_tokens([1, 2, 3]), sampling, root_key(b"lab"))
    tokens = lab.run([request], depth=2)[0]
    assert text_of(tokens) == "abab" and len(tokens) == 12 and lab.finishes[0] is FinishReason.LENGTH


def test_a_request_whose_grammar_fails_ends_alone(lab: Lab) -> None:
    others = requests(4)
    alone = lab.run(requests(4), depth=2)
    bad = SamplingParams(20, stop_token_ids=EOS, grammar="start: nowhere")
    mixed = [*others[:2], Request(RequestId(9), pack_tokens([4, 5]), bad, root_key(b"lab")), *others[2:]]
    tokens = lab.run(mixed, depth=2)
    assert list(lab.errors) == [9] and {i: tokens[i] for i in range(4)} == alone


def test_a_resumed_request_is_fed_what_it_had_written(model: LlamaModel, compiler: GrammarCompiler) -> None:
    """Also when the step that would have sampled fails and runs again."""
    runner = LocalRunner(model, new_cache(model.spec, 64, BLOCK, "float32"), compiler=compiler)
    sampling = SamplingParams(50, temperature=0, grammar='start: "abcdefgh"')
    written = [1, 2, 3, *ids("abcd")]
    try:
        plan = StepPlan(0, (chunk(1, 0, 7, (1, 2)),), (start(1, written, sampling, 3),))
        assert runner.submit(plan).result().tokens == ((ids("e")[0],),)
        again = StepPlan(1, (chunk(1, 6, 7),))
        assert runner.submit(again).result().tokens == ((ids("e")[0],),)
        further = [
            StepPlan(2 + n, (chunk(1, 7 + n, 8 + n, (3,) if n == 1 else (), sampled_in=1 + n),)) for n in range(2)
        ]
        assert [ticket.result().tokens[0] for ticket in map(runner.submit, further)] == [(ids("f")[0],), (ids("g")[0],)]
        back = StepPlan(4, (chunk(1, 7, 8),))
        assert runner.submit(back).result().tokens == ((ids("f")[0],),)
    finally:
        runner.close()


LEAF = st.one_of(
    st.fixed_dictionaries({"type": st.just("string"), "maxLength": st.integers(0, 8)}),
    st.fixed_dictionaries({"type": st.just("string"), "pattern": st.sampled_from(["^[a-f]{1,5}$", "^x-[0-9]{2}$"])}),
    st.fixed_dictionaries(
        {"type": st.just("integer"), "minimum": st.integers(-20, 5), "maximum": st.integers(5, 3000)}
    ),
    st.fixed_dictionaries({"type": st.just("number"), "minimum": st.just(0), "exclusiveMaximum": st.integers(1, 9)}),
    st.fixed_dictionaries(
        {
            "enum": st.lists(
                st.one_of(st.none(), st.booleans(), st.integers(0, 9), st.text('ab"\\/', max_size=4)), min_size=1
            )
        }
    ),
    st.sampled_from([{"type": "boolean"}, {"type": "null"}, {"type": ["integer", "null"]}, {"const": {"k": [1, "z"]}}]),
)


def _objects(inner: st.SearchStrategy[dict[str, object]]) -> st.SearchStrategy[dict[str, object]]:
    names = st.lists(st.sampled_from(["a", "b c", 'q"', "long_name", "x-y"]), unique=True, max_size=4)

    def build(properties: list[str], schemas: list[dict[str, object]], optional: list[bool]) -> dict[str, object]:
        return {
            "type": "object",
            "properties": dict(zip(properties, schemas, strict=False)),
            "required": [name for name, spare in zip(properties, optional, strict=False) if not spare],
            "additionalProperties": False,
        }

    flags = st.lists(st.booleans(), min_size=4, max_size=4)
    return st.builds(build, names, st.lists(inner, min_size=4, max_size=4), flags)


SCHEMAS = st.recursive(
    LEAF,
    lambda inner: st.one_of(
        _objects(inner),
        st.fixed_dictionaries({"type": st.just("array"), "items": inner, "maxItems": st.integers(0, 3)}),
        st.fixed_dictionaries({"anyOf": st.lists(inner, min_size=1, max_size=3)}),
    ),
    max_leaves=8,
)


@settings(max_examples=50, deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(schema=SCHEMAS, seed=st.integers(0, 2**32), temperature=st.sampled_from([0.0, 1.0]))
def test_random_logits_always_give_valid_json(
    masks: Masks, schema: dict[str, object], seed: int, temperature: float
) -> None:
    body = json_schema(schema, strict=True, param="schema")
    sampling = params(grammar=grammar_of(body, {}).text, temperature=temperature, seed=seed, stop_token_ids=EOS)
    made = masks.begin(sampling)
    generator = random.Random(seed)
    output: list[int] = []
    while not output or output[-1] not in EOS:
        # White space is as likely as anything else to a random model: bounded, but long.
        assert len(output) < 4000, text_of(output)
        bound = masks.start([(0, made, np.array(output, dtype=np.int32))]).result()
        logits = torch.tensor([[generator.gauss(0, 4) for _ in range(VOCAB)]])
        token = sample(logits, [SamplingRow(RequestId(0), sampling, len(output))], masks=bound).tokens[0]
        assert token is not None, bound[0].fault
        output.append(token)
    assert jsonschema_rs.is_valid(schema, json.loads(text_of(output))), text_of(output)
