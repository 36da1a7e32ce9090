"""The disk tier: a segmented log of KV blocks with a hard size cap, which finds again what it acknowledged.

    log = DiskLog.open(folder, namespace, record_bytes, capacity_bytes)
    log.write(records)                    # "ok": survives a crash
    log.read_many_into(keys, buffers)     # "ok": the very bytes that were written
    log.delete(keys)
    log.recovered()                       # after a restart: what is there

Invariants: bytes are only handed out after their checksum, which binds them to key and sequence, was found right;
what was acknowledged stays until it is deleted, replaced or damaged, or the folder is removed; what was deleted does
not come back once a later commit, or `flush`, was durable; the files never occupy more than 1.1 times the capacity.

A folder holds one sub-folder per namespace, so that models share a disk. Another namespace's data is neither touched
nor counted: every log has a capacity of its own. docs/disk.md describes the files.
"""

from __future__ import annotations

from collections.abc import Sequence
import logging
import threading
from types import TracebackType
from typing import TYPE_CHECKING, Self

from samovar.base.errors import ConfigError
from samovar.pool.disk.appender import Appender, stride_of
from samovar.pool.disk.background import Background
from samovar.pool.disk.compaction import COPY_BYTES, Compactor, Urgency
from samovar.pool.disk.files import Files, FolderLock, OsFiles
from samovar.pool.disk.folder import Asked, device_of, take_folder
from samovar.pool.disk.format import BLOCK_BYTES, Entry
from samovar.pool.disk.health import Health
from samovar.pool.disk.index import Index
from samovar.pool.disk.reader import Reader, ReadOutcome
from samovar.pool.disk.record import Record, RecordInfo, WriteOutcome
from samovar.pool.disk.recovery import recover
from samovar.pool.disk.settings import Settings
from samovar.pool.disk.stats import Counters, DiskStats
from samovar.pool.disk.verify import check_files
from samovar.pool.disk.writer import Writer

if TYPE_CHECKING:
    from _typeshed import WriteableBuffer

_log = logging.getLogger(__name__)

_TOMBSTONE_BYTES = 2 * BLOCK_BYTES
"""Of one, in a segment that begins with it."""


class DiskLog:
    """Thread-safe. Writes and deletions wait for each other, and for a piece of compaction; reads wait for nothing."""

    @classmethod
    def open(
        cls,
        folder: str,
        namespace: bytes,
        record_bytes: int,
        capacity_bytes: int,
        *,
        segment_bytes: int | None = None,
        fsync: bool = True,
        direct: bool = True,
        punching: bool = True,
        background: bool = True,
        files: Files | None = None,
    ) -> Self:
        """`namespace`: 1 to 64 bytes, equal only for logs whose blocks are interchangeable. `record_bytes`: the largest
        payload. `fsync` False: "ok" then survives the end of the process, not of the machine. `direct`, `punching`: use
        them where the file system can. `background` False: nobody compacts but `compact` and writes without room.

        Raises ConfigError for a folder that cannot be used or is in use, and for sizes that do not go together."""
        files = files or OsFiles()
        asked = Asked(namespace, record_bytes, capacity_bytes, segment_bytes, fsync, direct, punching)
        settings, lock = take_folder(files, folder, asked)
        try:
            return cls(files, folder, asked, settings, lock, background=background)
        except OSError as error:
            lock.release()
            raise ConfigError(f"the disk folder {folder} cannot be read: {error.strerror or error}") from None
        except BaseException:
            lock.release()
            raise

    def __init__(
        self, files: Files, folder: str, asked: Asked, settings: Settings, lock: FolderLock, *, background: bool
    ) -> None:
        """Use `open`."""
        self._files = files
        self._folder, self._asked = folder, asked
        self._counters = Counters()
        self._health = Health(folder)
        self._damage_told = False
        self._is_lost = False
        """The folder is gone, and could not be made again so far."""
        self._device = device_of(folder)
        self._unknown: list[Entry] = []
        """What lay in a folder that was made again, latest first: nobody asks for it before the next start."""
        self._begin(settings, lock)
        self._lock = threading.Lock()
        self._closed = False
        self._background = Background(self._tend, self._counters) if background else None

    def _begin(self, settings: Settings, lock: FolderLock) -> None:
        """With what lies in the folder. Raises ConfigError, OSError."""
        files, counters = self._files, self._counters
        index = Index(files)
        found = recover(files, settings, index, counters)
        self._settings = settings
        self._folder_lock = lock
        self._index = index
        self._writer = Writer(files, index, counters, settings, found.epoch)
        self._appender = Appender(files, index, self._writer, counters, settings, found.next_sequence)
        self._reader = Reader(files, index, counters)
        self._compactor = Compactor(index, self._reader, self._writer, self._appender, counters, settings)
        self._compactor.remove_empty()

    @property
    def folder(self) -> str:
        """Of this namespace."""
        return self._settings.folder

    @property
    def max_records(self) -> int:
        """So many records of `record_bytes` fit, whatever was written and deleted before."""
        return self._settings.max_records

    def write(self, records: Sequence[Record]) -> tuple[WriteOutcome, ...]:
        """One commit for the batch; returns once it is durable, with an outcome per record. A key that is there
        already is replaced. Never raises for what the disk does."""
        with self._lock:
            if self._closed:
                closed: WriteOutcome = "io"
                return (closed,) * len(records)
            outcomes = self._write(records)
        self._wake()
        return outcomes

    def _write(self, records: Sequence[Record]) -> tuple[WriteOutcome, ...]:
        failed: WriteOutcome = "io"
        if self._is_lost and not self._begin_again():
            return (failed,) * len(records)
        self._writer.failure = None
        num_bytes = sum(stride_of(record) for record in records)
        self._displace(num_bytes)
        self._compactor.make_room(num_bytes)
        outcomes = self._appender.write(records)
        if failed in outcomes and self._is_gone():
            self._lose()
            gone: WriteOutcome = "gone"
            return (gone,) * len(records)
        if self._writer.failure is not None:
            self._health.failed(self._writer.failure)
        elif "ok" in outcomes:
            self._health.worked()
        return outcomes

    def _is_gone(self) -> bool:
        """The folder, its lock or a segment has no name any more: a restart would not find what is in memory here."""
        if not self._folder_lock.is_in_place:
            return True
        try:
            return any(self._files.state(segment.fd).num_names == 0 for segment in self._index.segments())
        except OSError:
            return False

    def _lose(self) -> None:
        """What is left of the files has no name, and goes with their descriptors."""
        num_records = len(self._index)
        self._writer.seal()
        self._index.close()
        self._folder_lock.release()
        self._is_lost = True
        _log.warning(
            "the disk tier's folder %s was removed or replaced: its %d blocks are lost, and it begins again empty",
            self._settings.folder,
            num_records,
        )
        self._begin_again()

    def _begin_again(self) -> bool:
        """Whether the folder could be made once more. Not on another file system: where a disk was unmounted, its mount
        point is left."""
        try:
            if device_of(self._folder) != self._device:
                raise ConfigError("another file system is in its place")
            settings, lock = take_folder(self._files, self._folder, self._asked)
        except (ConfigError, OSError) as error:
            self._health.failed(str(error))
            return False
        try:
            self._begin(settings, lock)
        except (ConfigError, OSError) as error:
            lock.release()
            self._health.failed(str(error))
            return False
        self._unknown = sorted(self._index.entries(), key=lambda entry: -entry.sequence)
        self._is_lost = False
        return True

    def _displace(self, num_bytes: int) -> None:
        """What nobody asks for makes room for so much."""
        while self._unknown and self._index.live_bytes + num_bytes > self._settings.live_limit_bytes:
            self._index.forget_entry(self._unknown.pop())

    def read_into(self, key: bytes, buffer: WriteableBuffer) -> ReadOutcome:
        outcome = self._reader.read_one(key, buffer)
        if outcome == "checksum" or outcome == "io":
            self._met_damage(outcome)
        return outcome

    def read_many_into(self, keys: Sequence[bytes], buffers: Sequence[WriteableBuffer]) -> tuple[ReadOutcome, ...]:
        """Records that lie side by side are read by one call. Each buffer is at least as long as its record, and
        written no further; where it begins at a multiple of 4096 bytes nothing is copied."""
        if len(keys) == 1:
            return (self.read_into(keys[0], buffers[0]),)
        outcomes = self._reader.read(keys, buffers)
        if "checksum" in outcomes or "io" in outcomes:
            self._met_damage("checksum" if "checksum" in outcomes else "io")
        return outcomes

    def _met_damage(self, outcome: ReadOutcome) -> None:
        self._wake()
        if not self._damage_told:
            self._damage_told = True
            what = "its checksum is wrong" if outcome == "checksum" else "it cannot be read"
            _log.warning(
                "a block of the disk tier in %s is damaged: %s; it is computed again, and further ones are "
                "only counted",
                self._settings.folder,
                what,
            )

    def delete(self, keys: Sequence[bytes]) -> None:
        """At once for readers; durably with the next commit, which comes by itself soon. Unknown keys are ignored."""
        if self._index.forget(keys):
            self._wake()

    def flush(self) -> WriteOutcome:
        """Makes deletions durable now."""
        with self._lock:
            return "io" if self._closed else self._flush()

    def compact(self, budget_bytes: int) -> int:
        """Copies at most about so many bytes, where at least a tenth of a segment is to be gained; returns how many."""
        self.flush()
        return self._compact("asked", budget_bytes)

    def recovered(self) -> list[RecordInfo]:
        """What there is, in the order it was written."""
        entries = sorted(self._index.entries(), key=lambda entry: entry.sequence)
        return [RecordInfo(e.key, e.parent, e.stream, e.sequence, e.num_bytes) for e in entries]

    def stats(self) -> DiskStats:
        index, counters = self._index, self._counters
        live, physical = index.live_bytes, index.physical_bytes
        read_records, read_bytes = counters.reads
        return DiskStats(
            num_records=len(index),
            num_segments=len(index.segments()),
            live_bytes=live,
            dead_bytes=max(0, physical - live),
            physical_bytes=physical,
            capacity_bytes=self._settings.capacity_bytes,
            direct=self._settings.direct,
            punching=self._settings.punching,
            num_owed_tombstones=index.num_owed,
            written_records=counters["written_records"],
            payload_bytes=counters["payload_bytes"],
            written_bytes=counters["written_bytes"],
            compacted_bytes=counters["compacted_bytes"],
            num_commits=counters["num_commits"],
            read_records=read_records,
            read_bytes=read_bytes,
            failures=counters.failures(),
        )

    def check(self) -> None:
        """Recomputes every invariant, from the files too; raises AssertionError. Not for a log whose files somebody
        damaged, nor while deletions go on."""
        with self._lock:
            self._index.check()
            check_files(self._files, self._index, self._settings)

    def close(self) -> None:
        """Makes deletions durable and seals the active segment, so that the next opening is fast. Idempotent."""
        if self._background is not None:
            self._background.stop()
        with self._lock:
            if self._closed:
                return
            self._closed = True
            self._flush()
            self._compactor.remove_empty()
            self._writer.seal()
            self._index.close()
            self._folder_lock.release()

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.close()

    def _flush(self) -> WriteOutcome:
        """Where the files leave no room for a tombstone, compaction, which has some of its own, makes it."""
        outcome = self._appender.flush()
        if outcome == "full" and not self._compactor.has_room(_TOMBSTONE_BYTES):
            self._compactor.make_room(_TOMBSTONE_BYTES)
            outcome = self._appender.flush()
        return outcome

    def _wake(self) -> None:
        if self._background is not None:
            self._background.wake()

    def _tend(self) -> bool:
        with self._lock:
            if self._closed:
                return False
            if self._index.num_owed:
                self._appender.flush()
            self._compactor.remove_empty()
            return self._compactor.step("tidy", COPY_BYTES) is not None

    def _compact(self, urgency: Urgency, budget_bytes: int) -> int:
        copied = 0
        while copied < budget_bytes:
            with self._lock:
                step = None if self._closed else self._compactor.step(urgency, min(COPY_BYTES, budget_bytes - copied))
            if step is None:
                break
            copied += step
        return copied
