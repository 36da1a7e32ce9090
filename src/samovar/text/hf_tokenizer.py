"""A tokenizer from a Hugging Face folder: tokenizer.json, with tokenizer_config.json, special_tokens_map.json and
generation_config.json beside it where they exist."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
import json
from pathlib import Path
from typing import Any

import tokenizers
from tokenizers import AddedToken

from samovar.base.errors import CheckpointError
from samovar.text.tokenizer import SpecialTokens, Tokenizer, post_processor_ids

_ROLES = ("bos_token", "eos_token", "unk_token", "sep_token", "pad_token", "cls_token", "mask_token")


def load_hf(folder: Path) -> Tokenizer:
    """Raises CheckpointError, naming the file, when one is missing or malformed."""
    backend = _backend(folder / "tokenizer.json")
    config = read_json(folder / "tokenizer_config.json")
    roles = {**_named(read_json(folder / "special_tokens_map.json")), **_named(config)}
    _complete(backend, config, roles, folder / "tokenizer_config.json")
    prefix, suffix = _affixes(backend, config, roles)
    special = SpecialTokens(
        named=roles,
        eos_ids=_eos_ids(backend, roles, folder),
        prefix_ids=prefix,
        suffix_ids=suffix,
    )
    return Tokenizer(backend, special)


def read_json(path: Path) -> dict[str, Any]:
    """An optional JSON object: {} when the file is not there."""
    try:
        value = json.loads(path.read_text(encoding="utf-8"))
    except FileNotFoundError:
        return {}
    except (OSError, ValueError) as error:
        raise CheckpointError(f"{path}: not readable as JSON: {error}") from error
    if not isinstance(value, dict):
        raise CheckpointError(f"{path}: holds a {type(value).__name__}, expected an object")
    return value


def _backend(path: Path) -> tokenizers.Tokenizer:
    if not path.is_file():
        raise CheckpointError(f"{path}: no such file; a checkpoint folder needs tokenizer.json")
    try:
        return tokenizers.Tokenizer.from_file(str(path))
    except Exception as error:  # the library raises plain Exception for everything
        raise CheckpointError(f"{path}: not a readable tokenizer: {error}") from error


def _named(source: Mapping[str, Any]) -> dict[str, str]:
    """Special tokens by role; each is given as a string or as an AddedToken object."""
    found: dict[str, str] = {}
    for role in _ROLES:
        value = source.get(role)
        if isinstance(value, Mapping):
            value = value.get("content")
        if isinstance(value, str):
            found[role] = value
    return found


def _complete(backend: tokenizers.Tokenizer, config: Mapping[str, Any], roles: Mapping[str, str], path: Path) -> None:
    """Adds what only tokenizer_config.json (at `path`) knows: tokens that tokenizer.json lacks, and which of its
    ordinary vocabulary are special."""
    declared = config.get("added_tokens_decoder", {})
    try:
        entries = [(int(token_id), entry, entry["content"]) for token_id, entry in declared.items()]
        entries.sort(key=lambda item: item[0])
    except (AttributeError, KeyError, TypeError, ValueError) as error:
        raise CheckpointError(f"{path}: added_tokens_decoder does not map ids to added tokens: {error!r}") from error
    for token_id, entry, content in entries:
        if backend.token_to_id(content) is not None:
            continue
        options = {key: bool(entry[key]) for key in ("single_word", "lstrip", "rstrip", "normalized") if key in entry}
        backend.add_tokens([AddedToken(content, special=bool(entry.get("special", False)), **options)])
        got = backend.token_to_id(content)
        if got != token_id:
            raise CheckpointError(
                f"{path}: token {content!r} should have id {token_id}, tokenizer.json leaves {got} for it"
            )
    added = {token.content for token in backend.get_added_tokens_decoder().values()}
    # A token outside the vocabulary would get an id that the model has no embedding for.
    missing = [t for t in dict.fromkeys(roles.values()) if t not in added and backend.token_to_id(t) is not None]
    backend.add_special_tokens([AddedToken(token, special=True, normalized=False) for token in missing])


def _affixes(
    backend: tokenizers.Tokenizer, config: Mapping[str, Any], roles: Mapping[str, str]
) -> tuple[tuple[int, ...], tuple[int, ...]]:
    """What goes before and after a text. `add_bos_token` and `add_eos_token`, where a checkpoint gives them, overrule
    its tokenizer.json."""
    prefix, suffix = post_processor_ids(backend)
    for flag, role in (("add_bos_token", "bos_token"), ("add_eos_token", "eos_token")):
        wanted = config.get(flag)
        token_id = backend.token_to_id(roles[role]) if role in roles else None
        if not isinstance(wanted, bool) or token_id is None:
            continue
        if role == "bos_token":
            rest = tuple(other for other in prefix if other != token_id)
            prefix = (token_id, *rest) if wanted else rest
        else:
            rest = tuple(other for other in suffix if other != token_id)
            suffix = (*rest, token_id) if wanted else rest
    return prefix, suffix


def _eos_ids(backend: tokenizers.Tokenizer, roles: Mapping[str, str], folder: Path) -> tuple[int, ...]:
    own = backend.token_to_id(roles["eos_token"]) if "eos_token" in roles else None
    path = folder / "generation_config.json"
    generation = read_json(path).get("eos_token_id")
    listed = generation if isinstance(generation, list) else [] if generation is None else [generation]
    if not all(type(token_id) is int and token_id >= 0 for token_id in listed):
        raise CheckpointError(f"{path}: eos_token_id is {generation!r}, expected a token id or a list of them")
    return _distinct([*([] if own is None else [own]), *listed])


def _distinct(ids: Iterable[int]) -> tuple[int, ...]:
    return tuple(dict.fromkeys(ids))
