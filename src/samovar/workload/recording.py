"""Records what a server is asked, as traces that can be analysed, replayed and shared.

Nothing of a prompt is written but its length and which of its blocks were seen before: block ids are numbers in order
of appearance, made anew for each session. They tell what repeats and nothing else, not even to someone who could guess
the text. Session ids of clients are not written either.
"""

from __future__ import annotations

from collections import OrderedDict
from dataclasses import dataclass, field
import logging
from pathlib import Path

from samovar.base.errors import ConfigError, SamovarError
from samovar.base.keys import KEY_BYTES
from samovar.workload.recording_journal import SUFFIX, JournalCall, JournalHead, encode_line, finish_journal

log = logging.getLogger(__name__)

BLOCK_TOKENS = 64
IDLE_S = 6 * 3600.0
"""A session that was silent for this long is complete; if it speaks again, that is another one."""
MAX_OPEN = 1000
PROBE_SESSION = "samovar-probe"
"""Calls under a session id that begins so are not recorded: they only ask what the server can do (`bench replay`)."""


@dataclass(frozen=True, slots=True)
class RecordedCall:
    """One finished call. `keys` are the prompt's block keys (`base.keys`), whose root must hold the tenant's domain."""

    tenant: str
    session_id: str
    """"" when the client names none: the call then belongs to the session whose prompt it continues."""
    parent_session_id: str
    keys: bytes
    input_tokens: int
    output_tokens: int
    start_s: float
    end_s: float
    model: str = ""
    stop: str = ""
    ttft_s: float | None = None


@dataclass(slots=True)
class _Tree:
    """A session that is being recorded: what must be remembered to number its blocks."""

    journal: Path
    first_s: float
    last_s: float
    numbers: dict[bytes, int] = field(default_factory=dict)
    streams: dict[str, int] = field(default_factory=dict)
    prompts: dict[int, list[int]] = field(default_factory=dict)
    tails: list[bytes] = field(default_factory=list)


class Recorder:
    """Owns `folder`'s journals. Not for several threads or processes at a time. A disk that fails ends the recording
    of the session concerned, with a line in the log, and nothing else."""

    def __init__(self, folder: Path, label: str, key_block_tokens: int) -> None:
        """`label` begins the ids of this run's sessions and should differ from run to run. `key_block_tokens`: what a
        block key covers. Journals that a crash left behind become session files. Raises ConfigError."""
        try:
            folder.mkdir(parents=True, exist_ok=True)
            left_behind = sorted(folder.glob(f"*{SUFFIX}"))
            probe = folder / f".{label}.probe"
            probe.write_bytes(b"")
            probe.unlink()
        except OSError as error:
            raise ConfigError(f"--record-trace {folder}: cannot write there: {error.strerror or error}") from None
        self._folder = folder
        self._label = label
        self._stride = BLOCK_TOKENS // key_block_tokens if BLOCK_TOKENS % key_block_tokens == 0 else 1
        self._block_tokens = self._stride * key_block_tokens
        self._trees: OrderedDict[tuple[str, str], _Tree] = OrderedDict()
        self._roots: dict[tuple[str, str], str] = {}
        self._tails: dict[bytes, tuple[str, str]] = {}
        self._made = 0
        for journal in left_behind:
            _finish(journal)

    def add(self, call: RecordedCall) -> None:
        """Writes the call down before it returns, unless it is a probe."""
        if call.session_id.startswith(PROBE_SESSION):
            return
        keys = [call.keys[at : at + KEY_BYTES] for at in range(0, len(call.keys), KEY_BYTES)]
        keys = keys[self._stride - 1 :: self._stride]
        self._close_idle(call.end_s)
        try:
            name, tree = self._tree(call, keys)
            self._write(tree, call, keys)
        except OSError as error:
            log.error("recording a session failed: %s", error)
            return
        tree.last_s = max(tree.last_s, call.end_s)
        self._trees.move_to_end(name)
        if keys:
            tree.tails.append(keys[-1])
            self._tails[keys[-1]] = name

    def close(self) -> None:
        """Turns every journal into its session file. The recorder is of no use afterwards."""
        while self._trees:
            self._finish_oldest()

    @property
    def num_open(self) -> int:
        return len(self._trees)

    def _tree(self, call: RecordedCall, keys: list[bytes]) -> tuple[tuple[str, str], _Tree]:
        name = self._name(call, keys)
        tree = self._trees.get(name)
        if tree is None:
            journal = self._new_journal()
            _append(journal, JournalHead(journal.stem, self._block_tokens))
            tree = self._trees[name] = _Tree(journal, call.start_s, call.end_s)
        return name, tree

    def _name(self, call: RecordedCall, keys: list[bytes]) -> tuple[str, str]:
        """Tenant and root session. Sub-agents of sub-agents belong to the root's tree."""
        if call.session_id:
            parent = call.parent_session_id
            own = call.tenant, call.session_id
            if parent and parent != call.session_id:
                self._roots[own] = self._roots.get((call.tenant, parent), parent)
            return call.tenant, self._roots.get(own, call.session_id)
        for key in reversed(keys):
            found = self._tails.get(key)
            if found is not None and found[0] == call.tenant:
                return found
        return call.tenant, f"\0unnamed-{self._made}"

    def _new_journal(self) -> Path:
        while True:
            self._made += 1
            journal = self._folder / f"{self._label}-{self._made:04}{SUFFIX}"
            if not journal.exists() and not journal.with_suffix(".json").exists():
                return journal

    def _write(self, tree: _Tree, call: RecordedCall, keys: list[bytes]) -> None:
        # The root session is stream 0 even when a sub-agent's call ends first.
        root = not call.parent_session_id or call.parent_session_id == call.session_id
        child = len(tree.streams) + (0 not in tree.streams.values())
        stream = tree.streams.setdefault(call.session_id, 0 if root else child)
        ids = [tree.numbers.setdefault(key, 1 + len(tree.numbers)) for key in keys]
        before = tree.prompts.get(stream, [])
        kept = next((at for at, (a, b) in enumerate(zip(before, ids, strict=False)) if a != b), None)
        if kept is None:
            kept = min(len(before), len(ids))
        entry = JournalCall(
            stream=stream,
            start_s=round(call.start_s - tree.first_s, 4),
            end_s=round(call.end_s - tree.first_s, 4),
            input_tokens=call.input_tokens,
            output_tokens=call.output_tokens,
            kept=kept,
            new=ids[kept:],
            model=call.model,
            stop=call.stop,
            ttft_s=None if call.ttft_s is None else round(call.ttft_s, 4),
        )
        _append(tree.journal, entry)
        tree.prompts[stream] = ids

    def _close_idle(self, now_s: float) -> None:
        while self._trees:
            oldest = next(iter(self._trees.values()))
            if len(self._trees) <= MAX_OPEN and oldest.last_s + IDLE_S > now_s:
                return
            self._finish_oldest()

    def _finish_oldest(self) -> None:
        name, tree = self._trees.popitem(last=False)
        for tail in tree.tails:
            if self._tails.get(tail) == name:
                del self._tails[tail]
        self._roots = {own: root for own, root in self._roots.items() if (own[0], root) != name}
        _finish(tree.journal)


def _append(journal: Path, entry: JournalHead | JournalCall) -> None:
    """Opened each time: there may be more sessions than the system allows open files."""
    with journal.open("ab") as file:
        file.write(encode_line(entry))


def _finish(journal: Path) -> None:
    try:
        finish_journal(journal)
    except SamovarError as error:
        log.error("a recorded session stays a journal: %s", error.message)
    except OSError as error:
        log.error("%s: %s", journal, error)
