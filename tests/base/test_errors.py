"""The error tree as a whole: what every class must carry, and the way across a process border."""

from __future__ import annotations

from collections.abc import Iterator
import inspect
import re

from hypothesis import given
from hypothesis import strategies as st
import msgspec
import pytest

from samovar.base import errors
from samovar.base.errors import SamovarError, error_classes
from samovar.core.events import ErrorInfo, FinishReason, Output


def walk(cls: type[SamovarError]) -> Iterator[type[SamovarError]]:
    yield cls
    for child in cls.__subclasses__():
        yield from walk(child)


TREE = [cls for cls in walk(SamovarError) if cls.__module__ == errors.__name__]
EACH = pytest.mark.parametrize("cls", TREE, ids=lambda cls: cls.__name__)


@EACH
def test_each_class_says_status_code_and_whether_to_retry(cls: type[SamovarError]) -> None:
    assert isinstance(cls.status, int) and 400 <= cls.status <= 599
    assert isinstance(cls.retryable, bool)
    assert re.fullmatch(r"[a-z]+(_[a-z]+)*", cls.code)
    assert "code" in vars(cls), "a class without a code of its own would come back as its parent"


@EACH
def test_what_a_client_got_wrong_is_4xx_and_stays_wrong(cls: type[SamovarError]) -> None:
    if issubclass(cls, errors.RequestError):
        assert cls.status < 500 and not cls.retryable
    if issubclass(cls, errors.ConfigError):
        assert cls.status == 500 and not cls.retryable
    if cls.retryable:
        assert cls.status in (429, 500, 503)


@EACH
def test_a_child_keeps_its_parents_nature(cls: type[SamovarError]) -> None:
    for parent in cls.__mro__[1:]:
        if parent is not SamovarError and isinstance(parent, type) and issubclass(parent, SamovarError):
            assert cls.retryable is parent.retryable
            assert cls.status // 100 == parent.status // 100


def test_codes_are_unique_and_lead_back_to_their_class() -> None:
    assert len({cls.code for cls in TREE}) == len(TREE)
    assert {code: cls for code, cls in error_classes().items() if cls in TREE} == {cls.code: cls for cls in TREE}


def test_the_tree_lives_in_one_module_and_is_drawn_there() -> None:
    defined = {cls for _, cls in inspect.getmembers(errors, inspect.isclass) if issubclass(cls, Exception)}
    assert defined == set(TREE), "an error that is no SamovarError"
    drawing = errors.__doc__ or ""
    for cls in TREE:
        assert re.search(rf"\b{cls.__name__}\b", drawing), f"{cls.__name__} is not in the drawing"
    depth = {name: len(rails) // 4 for rails, name in re.findall(r"^ {4}([│ ]*[├└]── )(\w+)", drawing, re.MULTILINE)}
    depth["SamovarError"] = 0
    assert depth == {cls.__name__: len(cls.__mro__) - len(SamovarError.__mro__) for cls in TREE}


@given(
    cls=st.sampled_from(TREE),
    message=st.text(),
    param=st.none() | st.text(),
    retry_after_s=st.none() | st.floats(0, 1e6),
)
def test_an_error_crosses_a_process_border_as_itself(
    cls: type[SamovarError], message: str, param: str | None, retry_after_s: float | None
) -> None:
    sent = Output(
        1, finish=FinishReason.ERROR, error=ErrorInfo.of(cls(message, param=param, retry_after_s=retry_after_s))
    )
    received = msgspec.msgpack.decode(msgspec.msgpack.encode(sent), type=Output)
    assert received.error is not None
    error = received.error.exception()
    assert type(error) is cls and str(error) == message == error.message
    assert (error.param, error.retry_after_s) == (param, retry_after_s)


def test_a_code_that_nobody_knows_is_an_internal_error() -> None:
    error = ErrorInfo("from_the_future", "what", "field", 2.0).exception()
    assert type(error) is SamovarError and (error.status, error.param, error.retry_after_s) == (500, "field", 2.0)
