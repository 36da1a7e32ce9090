"""The tools that the Messages API defines but the client executes: it names only a type, the model needs a definition.

Source: the public documentation of the bash, text editor and memory tools, in own words.
"""

from __future__ import annotations

from collections.abc import Mapping
import re
from typing import Any

from samovar.serve.conversation import Tool

_DATED = re.compile(r"(bash|text_editor|memory)_[0-9]{8}")


def _string(description: str) -> dict[str, Any]:
    return {"type": "string", "description": description}


_LINES = {"type": "array", "items": {"type": "integer"}, "description": "First and last line, from 1; -1 is the end."}


def _commands(*names: str) -> dict[str, Any]:
    return {"type": "string", "enum": list(names), "description": "What to do."}


_BASH = {
    "type": "object",
    "properties": {
        "command": _string("The command to run. Required unless the shell is restarted."),
        "restart": {"type": "boolean", "description": "true restarts the shell instead."},
    },
}
_EDITOR = {
    "type": "object",
    "properties": {
        "command": _commands("view", "create", "str_replace", "insert"),
        "path": _string("Path of the file or folder."),
        "view_range": {**_LINES, "description": f"For view of a file. {_LINES['description']}"},
        "file_text": _string("For create: the whole text of the file."),
        "old_str": _string("For str_replace: the text to replace, which must occur exactly once."),
        "new_str": _string("For str_replace: the text to put there."),
        "insert_line": {"type": "integer", "description": "For insert: the line after which to insert; 0 is the top."},
        "insert_text": _string("For insert: the text to insert."),
    },
    "required": ["command", "path"],
}
_MEMORY = {
    "type": "object",
    "properties": {
        "command": _commands("view", "create", "str_replace", "insert", "delete", "rename"),
        "path": _string("Path below /memories."),
        "view_range": {**_LINES, "description": f"For view of a file. {_LINES['description']}"},
        "file_text": _string("For create: the whole text of the file."),
        "old_str": _string("For str_replace: the text to replace, which must occur exactly once."),
        "new_str": _string("For str_replace: the text to put there."),
        "insert_line": {"type": "integer", "description": "For insert: the line after which to insert; 0 is the top."},
        "insert_text": _string("For insert: the text to insert."),
        "old_path": _string("For rename: the present path."),
        "new_path": _string("For rename: the path to have."),
    },
    "required": ["command"],
}
_DEFINITIONS: Mapping[str, tuple[str, Mapping[str, Any]]] = {
    "bash": ("Runs commands in a shell that keeps its state between calls.", _BASH),
    "text_editor": ("Views, creates and edits files.", _EDITOR),
    "memory": ("Reads and writes a folder of notes that outlives the conversation.", _MEMORY),
}


def client_tool(kind: str, name: str) -> Tool | None:
    """The tool of a type such as `bash_20250124`, under the name that the client calls it; None for any other type."""
    found = _DATED.fullmatch(kind)
    if found is None:
        return None
    description, parameters = _DEFINITIONS[found[1]]
    return Tool(name, description, parameters)
