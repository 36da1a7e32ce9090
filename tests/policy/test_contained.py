"""A policy of somebody else's, with every fault it can have: told once, and misses are all it costs."""

from __future__ import annotations

from math import nan
from typing import Any

import pytest

from samovar.core.config import EngineConfig
from samovar.core.engine import Engine
from samovar.policy.contained import Contained
from samovar.policy.hints import Hint, HintAnswer
from samovar.policy.lru import LRU
from samovar.policy.retention import Leaf, Outlook, RetentionPolicy, TurnEnd, TurnStart
from tests.core.helpers import Bench, make_request
from tests.core.oracle_runner import expected_output

LEAF = Leaf(1, 0, 5.0, "s")


def faulty(method: str, what: Any) -> RetentionPolicy:
    """Does what LRU does, but for one method, which does `what`."""

    def broken(self: LRU, *args: object) -> object:
        if isinstance(what, BaseException):
            raise what
        return what

    made: RetentionPolicy = type("Faulty", (LRU,), {method: broken})()
    return made


FAULTS = [
    *(
        (method, RuntimeError("boom"))
        for method in ("value", "turn_started", "turn_ended", "outcome", "hinted", "outlook")
    ),
    ("value", SystemExit(3)),
    ("value", None),
    ("value", nan),
    ("value", "12"),
    ("hinted", None),
    ("hinted", HintAnswer("retain", "applied", 7)),  # type: ignore[arg-type]
    ("outlook", "soon"),
    ("outlook", Outlook(return_in_s="soon")),  # type: ignore[arg-type]
]


def calls(policy: Contained) -> list[object]:
    policy.turn_started(TurnStart("s"), 1.0)
    policy.turn_ended(TurnEnd("s"), 2.0)
    policy.outcome("s", "stop", (), 2.0)
    return [policy.value(LEAF, 3.0), policy.hinted("s", Hint("retain", seconds=5.0), 3.0), policy.outlook("s", 3.0)]


@pytest.mark.parametrize(("method", "what"), FAULTS)
def test_a_fault_is_told_once_and_then_it_is_lru(method: str, what: object) -> None:
    told: list[str] = []
    policy = Contained(faulty(method, what), "theirs", told.append)
    assert calls(policy) == calls(Contained(LRU(), "fine", told.append)) == calls(policy)
    assert len(told) == 1 and policy.failed
    assert "'theirs'" in told[0] and method in told[0]


def test_the_user_can_still_interrupt() -> None:
    with pytest.raises(KeyboardInterrupt):
        calls(Contained(faulty("value", KeyboardInterrupt()), "theirs", lambda text: None))


def test_odd_names_and_samples() -> None:
    for name in ("", "a\nb", "x" * 65):
        assert Contained(LRU(name=name), "theirs", print).name == "theirs"
    assert Contained(LRU(sample=-3), "theirs", print).sample == 1


@pytest.mark.parametrize(("method", "what"), FAULTS)
def test_an_engine_goes_on(method: str, what: object) -> None:
    """Evictions, hints, reports: the same answers as ever."""
    config = EngineConfig(num_blocks=24, max_model_len=384)
    engine = Engine(config, Contained(faulty(method, what), "theirs", lambda text: None))
    bench = Bench(engine=engine, num_blocks=24)
    for number in range(12):
        prompt = [(number * 7 + i) % 50 for i in range(150)]
        bench.submit(make_request(number, prompt, 3, session_id=f"s{number % 3}", hints=(Hint("retain", seconds=9.0),)))
        bench.drain()
        engine.hint("", f"s{number % 3}", (Hint("demote"),), bench.now)
        engine.outcome(number, "stop", (), bench.now)
        engine.cache_report(bench.now)
        assert bench.tokens[number] == expected_output(prompt, 3)
    engine.check()
