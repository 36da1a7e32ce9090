"""The disk tier: a segmented log of KV blocks with a hard size cap, which finds again what it acknowledged.

    log = DiskLog.open(folder, namespace, record_bytes, capacity_bytes)
    log.write(records)                    # "ok": survives a crash
    log.read_many_into(keys, buffers)     # "ok": the very bytes that were written
    log.delete(keys)
    log.recovered()                       # after a restart: what is there

Invariants: bytes are only handed out after their checksum, which binds them to key and sequence, was found right;
what was acknowledged stays until it is deleted, replaced or damaged; what was deleted does not come back once a later
commit, or `flush`, was durable; the files never occupy more than 1.1 times the capacity.

A folder holds one sub-folder per namespace, so that models share a disk. Another namespace's data is neither touched
nor counted: every log has a capacity of its own. docs/disk.md describes the files.
"""

from __future__ import annotations

from collections.abc import Sequence
import threading
from types import TracebackType
from typing import TYPE_CHECKING, Self

from samovar.base.errors import ConfigError
from samovar.pool.disk.appender import Appender, stride_of
from samovar.pool.disk.background import Background
from samovar.pool.disk.compaction import COPY_BYTES, Compactor, Urgency
from samovar.pool.disk.files import Files, FolderLock, OsFiles
from samovar.pool.disk.folder import Asked, take_folder
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
            return cls(files, settings, lock, background=background)
        except OSError as error:
            lock.release()
            raise ConfigError(f"the disk folder {folder} cannot be read: {error.strerror or error}") from None
        except BaseException:
            lock.release()
            raise

    def __init__(self, files: Files, settings: Settings, lock: FolderLock, *, background: bool) -> None:
        """Use `open`."""
        self._files = files
        self._settings = settings
        self._folder_lock = lock
        self._counters = Counters()
        self._index = Index(files)
        found = recover(files, settings, self._index, self._counters)
        self._writer = Writer(files, self._index, self._counters, settings, found.epoch)
        self._appender = Appender(files, self._index, self._writer, self._counters, settings, found.next_sequence)
        self._reader = Reader(files, self._index, self._counters)
        self._compactor = Compactor(self._index, self._reader, self._writer, self._appender, self._counters, settings)
        self._lock = threading.Lock()
        self._closed = False
        self._compactor.remove_empty()
        self._background = Background(self._tend, self._counters) if background else None

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
            self._compactor.make_room(sum(stride_of(record) for record in records))
            outcomes = self._appender.write(records)
        self._wake()
        return outcomes

    def read_into(self, key: bytes, buffer: WriteableBuffer) -> ReadOutcome:
        outcome = self._reader.read_one(key, buffer)
        if outcome == "checksum" or outcome == "io":
            self._wake()
        return outcome

    def read_many_into(self, keys: Sequence[bytes], buffers: Sequence[WriteableBuffer]) -> tuple[ReadOutcome, ...]:
        """Records that lie side by side are read by one call. Each buffer is at least as long as its record, and
        written no further; where it begins at a multiple of 4096 bytes nothing is copied."""
        if len(keys) == 1:
            return (self.read_into(keys[0], buffers[0]),)
        outcomes = self._reader.read(keys, buffers)
        if "checksum" in outcomes or "io" in outcomes:
            self._wake()
        return outcomes

    def delete(self, keys: Sequence[bytes]) -> None:
        """At once for readers; durably with the next commit, which comes by itself soon. Unknown keys are ignored."""
        if self._index.forget(keys):
            self._wake()

    def flush(self) -> WriteOutcome:
        """Makes deletions durable now."""
        with self._lock:
            return "io" if self._closed else self._appender.flush()

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
            self._appender.flush()
            self._compactor.remove_empty()
            self._writer.seal()
            self._index.close()
            self._reader.close()
            self._folder_lock.release()

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.close()

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
