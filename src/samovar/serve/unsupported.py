"""Fields that would change the answer but cannot be honoured yet are refused by name: ignoring them would be a lie."""

from __future__ import annotations

from samovar.base.errors import InvalidField
from samovar.base.shown import shown
from samovar.serve.bodies import Body, ChatBody, CompletionBody, GenerationBody, NotYet


def refuse_unsupported(body: Body) -> None:
    """Raises InvalidField naming the first field that asks for something not implemented."""
    for name, field in type(body).model_fields.items():
        if any(isinstance(mark, NotYet) and not mark.takes(getattr(body, name)) for mark in field.metadata):
            raise _not_yet(name)
    if isinstance(body, GenerationBody):
        _refuse_generation(body)
    if isinstance(body, ChatBody):
        _refuse_chat(body)
    if isinstance(body, CompletionBody) and body.suffix:
        raise _not_yet("suffix", "inserting between a prompt and a suffix")


def _refuse_generation(body: GenerationBody) -> None:
    if body.best_of is not None and body.best_of != (body.n or 1):
        raise _not_yet(
            "best_of", f"best_of {shown(body.best_of)} with n {shown(body.n or 1)}; leave it out or make it equal to n"
        )


def _refuse_chat(body: ChatBody) -> None:
    if body.modalities is not None and body.modalities != ["text"]:
        raise _not_yet("modalities", f"{shown(body.modalities)}; only ['text'] is")


def _not_yet(name: str, what: str = "") -> InvalidField:
    return InvalidField(f"{name}: not supported yet{': ' + what if what else ''}.", param=name)
