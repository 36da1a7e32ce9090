"""Whether a chat template writes message after message, so that more messages only add to the text.

Read off the template itself, not tried out: a template may look at messages to come in ways that no trial shows. What
is not certain counts as no.
"""

from __future__ import annotations

from jinja2 import nodes

_STATEMENTS = (nodes.Output, nodes.If, nodes.For, nodes.Assign, nodes.Continue)
_FREE_FUNCTION = "raise_exception"
"""The others read a clock, keep state or are unknown."""
_IMPURE_FILTER = "random"
_RESERVED = ("messages", "loop", "add_generation_prompt")


def only_appends(tree: nodes.Template) -> bool:
    """True when, without a generation prompt, the text of [m0, *a, *b] is that of [m0, *a] followed by what [m0, *b]
    has behind [m0], for any m0, a and b and equal other variables: one loop over all messages whose body looks at the
    message, at the first of all and at whether it is that; nothing before or after it that looks at any other; nothing
    carried from one message to the next."""
    at = [place for place, node in enumerate(tree.body) if isinstance(node, nodes.For)]
    if len(at) != 1:
        return False
    loop = tree.body[at[0]]
    assert isinstance(loop, nodes.For)
    over_messages = (
        isinstance(loop.iter, nodes.Name)
        and loop.iter.name == "messages"
        and isinstance(loop.target, nodes.Name)
        and loop.target.name not in _RESERVED
        and not (loop.else_ or loop.recursive or loop.test)
    )
    before, after = tree.body[: at[0]], tree.body[at[0] + 1 :]
    return (
        over_messages
        and all(_harmless(node, in_loop=False) for node in before)
        and all(_harmless(node, in_loop=True) for node in loop.body)
        and all(_only_opens(node) for node in after)
    )


def _only_opens(node: nodes.Node) -> bool:
    """Writes nothing unless a generation prompt is wanted."""
    if isinstance(node, nodes.Output):
        return all(isinstance(part, nodes.TemplateData) and not part.data for part in node.nodes)
    return (
        isinstance(node, nodes.If)
        and isinstance(node.test, nodes.Name)
        and node.test.name == "add_generation_prompt"
        and not (node.elif_ or node.else_)
        and all(_harmless(child, in_loop=False) for child in node.body)
    )


def _harmless(node: nodes.Node, *, in_loop: bool) -> bool:
    """Looks at no message but the one at hand and the first, and changes nothing that outlives a message. `in_loop`:
    `loop` is that over messages, not one inside it."""
    if isinstance(node, nodes.Stmt) and not isinstance(node, _STATEMENTS):
        return False
    match node:
        case nodes.Name():
            return node.name not in _RESERVED
        case nodes.Getitem(node=nodes.Name(name="messages"), arg=nodes.Const(value=0)):
            return True
        case nodes.Getattr(node=nodes.Name(name="loop")):
            return not in_loop or node.attr == "first"
        case nodes.Compare(
            expr=nodes.Getattr(node=nodes.Name(name="loop"), attr="index0"),
            ops=[nodes.Operand(op="eq" | "ne", expr=nodes.Const(value=0))],
        ):
            return True
        case nodes.NSRef():
            return False
        case nodes.Call(node=nodes.Name(name=name)) if name != _FREE_FUNCTION:
            return False
        case nodes.Filter() if node.name == _IMPURE_FILTER:
            return False
        case nodes.For():
            # Only in the body `loop` is this one's; in its condition and its `else` it is still that outside.
            outside = [node.iter, *node.else_, *([node.test] if node.test else [])]
            return (
                not node.recursive
                and all(_harmless(child, in_loop=in_loop) for child in outside)
                and all(_harmless(child, in_loop=False) for child in (node.target, *node.body))
            )
        case _:
            return all(_harmless(child, in_loop=in_loop) for child in node.iter_child_nodes())
