#include "direct_reads.h"

#include <algorithm>
#include <cerrno>
#include <cstdlib>
#include <cstring>
#include <new>

#if defined(__linux__)
#include <linux/aio_abi.h>
#include <sys/syscall.h>
#include <unistd.h>
#endif

namespace samovar::pool {

#if defined(__linux__)

namespace {

constexpr size_t kPageBytes = 4096;
constexpr size_t kDepth = 32;
// Large enough for the disk; the last ones are smaller, since nothing is read beside their hash.
constexpr size_t kPieceBytes = 512 << 10;
constexpr size_t kLastBytes = 256 << 10;
// Disks serve what they have side by side, and have it ready at about the same time. So of what is to be read an eighth
// waits until something has arrived, which is then hashed beside it; and never more than this is under way. Measured with
// 2 MiB: a quarter or a half, larger and smaller pieces are all slower, by 3 to 15%.
constexpr size_t kWindowBytes = 8 << 20;

struct Piece {
  size_t range;
  int64_t offset;
  size_t bytes;    // of the payload
  uint8_t* to;     // where the system puts them
  uint8_t* final;  // where they belong, when that is no whole page; else null
  bool last;       // of its range
};

struct FreePage {
  void operator()(uint8_t* page) const { std::free(page); }
};
using Page = std::unique_ptr<uint8_t, FreePage>;

size_t piece_bytes(size_t left, size_t total) {
  return left <= kPieceBytes && total > kPieceBytes ? kLastBytes : kPieceBytes;
}

size_t window_bytes(size_t total) {
  return total <= kPieceBytes ? total : std::clamp(total / 8 * 7, kPieceBytes, kWindowBytes);
}

size_t total_bytes(const std::vector<Range>& ranges) {
  size_t total = 0;
  for (const Range& range : ranges) total += range.bytes;
  return total;
}

// What does not fill a page is read into a page of its own.
std::vector<Piece> pieces_of(const std::vector<Range>& ranges, std::vector<Page>& pages) {
  std::vector<Piece> pieces;
  const size_t total = total_bytes(ranges);
  size_t left = total;
  for (size_t i = 0; i < ranges.size(); i++) {
    const Range& range = ranges[i];
    const size_t whole = range.bytes / kPageBytes * kPageBytes;
    for (size_t at = 0, size; at < whole; at += size, left -= size) {
      size = std::min(piece_bytes(left, total), whole - at);
      pieces.push_back({i, range.offset + static_cast<int64_t>(at), size, range.to + at, nullptr, false});
    }
    if (whole < range.bytes) {
      pages.emplace_back(static_cast<uint8_t*>(std::aligned_alloc(kPageBytes, kPageBytes)));
      if (!pages.back()) throw std::bad_alloc();
      pieces.push_back({i, range.offset + static_cast<int64_t>(whole), range.bytes - whole, pages.back().get(), range.to + whole, false});
      left -= range.bytes - whole;
    }
    pieces.back().last = true;
  }
  return pieces;
}

}  // namespace

class DirectReads::Queue {
 public:
  Queue() : ok_(syscall(SYS_io_setup, kDepth, &context_) == 0) {}
  ~Queue() {
    if (ok_) syscall(SYS_io_destroy, context_);
  }
  bool ok() const { return ok_; }

  // Starts, in order, what there is room for while piece `next` and those behind it are still waited for. One by one: the
  // system would make one request of several that lie side by side.
  void submit(int fd, const std::vector<Piece>& pieces, size_t next) {
    while (submitted_ < std::min(pieces.size(), next + kDepth)) {
      const Piece& piece = pieces[submitted_];
      if (submitted_ > next && ahead_bytes_ + piece.bytes > window_bytes_) return;
      iocb* call = prepared(fd, piece, submitted_);
      const long started = syscall(SYS_io_submit, context_, 1, &call);
      if (started != 1 && errno == EINTR) continue;
      if (started != 1 && errno == EAGAIN && submitted_ > next) return;  // room comes with what ends
      results_[submitted_ % kDepth] = started == 1 ? kOpen : -static_cast<int64_t>(errno);
      ahead_bytes_ += piece.bytes;
      submitted_++;
    }
  }

  // How many bytes came, or minus an errno. The piece was submitted.
  int64_t wait_for(size_t number) {
    while (results_[number % kDepth] == kOpen) {
      io_event events[kDepth];
      const long count = syscall(SYS_io_getevents, context_, 1, kDepth, events, nullptr);
      if (count < 0 && errno != EINTR) std::abort();  // the context is ours and the arguments are sound
      for (long i = 0; i < count; i++) results_[events[i].data % kDepth] = events[i].res;
    }
    return results_[number % kDepth];
  }

  // To whole pages.
  static size_t asked(const Piece& piece) { return (piece.bytes + kPageBytes - 1) / kPageBytes * kPageBytes; }

  std::vector<Hashed> run(Walk walk, int fd, const std::vector<Range>& ranges, const std::vector<Piece>& pieces) {
    std::vector<Hashed> found(ranges.size());
    Xxh3 hash(walk);
    submitted_ = ahead_bytes_ = 0;
    window_bytes_ = window_bytes(total_bytes(ranges));
    submit(fd, pieces, 0);
    for (size_t number = 0; number < pieces.size(); number++) {
      const Piece& piece = pieces[number];
      const Range& range = ranges[piece.range];
      Hashed& hashed = found[piece.range];
      const int64_t got = wait_for(number);
      ahead_bytes_ -= piece.bytes;
      submit(fd, pieces, number + 1);
      if (got < 0 && hashed.error == 0) hashed.error = static_cast<int>(-got);
      if (got >= 0 && static_cast<size_t>(got) < asked(piece) && hashed.error == 0) hashed.error = kEnded;
      if (hashed.error == 0) {
        if (piece.final != nullptr) std::memcpy(piece.final, piece.to, piece.bytes);
        hash.take(piece.final != nullptr ? piece.final : piece.to, piece.bytes, nullptr, Stores::cached);
        if (piece.last) hashed.digest = hash.finish(range.binding, range.binding_bytes);
      }
      if (piece.last) hash = Xxh3(walk);
    }
    return found;
  }

 private:
  static constexpr int64_t kOpen = INT64_MIN;

  iocb* prepared(int fd, const Piece& piece, size_t number) {
    iocb& call = calls_[number % kDepth];
    call = {};
    call.aio_data = number;
    call.aio_lio_opcode = IOCB_CMD_PREAD;
    call.aio_fildes = static_cast<uint32_t>(fd);
    call.aio_buf = reinterpret_cast<uint64_t>(piece.to);
    call.aio_nbytes = asked(piece);
    call.aio_offset = piece.offset;
    return &call;
  }

  aio_context_t context_ = 0;
  bool ok_;
  iocb calls_[kDepth];
  int64_t results_[kDepth];
  size_t submitted_ = 0, ahead_bytes_ = 0, window_bytes_ = 0;
};

DirectReads::DirectReads(Walk walk) : walk_(walk), available_(false) {
  auto queue = std::make_unique<Queue>();
  available_ = queue->ok();
  if (available_) idle_.push_back(std::move(queue));
}

std::unique_ptr<DirectReads::Queue> DirectReads::taken() {
  {
    std::lock_guard<std::mutex> guard(mutex_);
    if (!idle_.empty()) {
      auto queue = std::move(idle_.back());
      idle_.pop_back();
      return queue;
    }
  }
  return std::make_unique<Queue>();
}

std::vector<Hashed> DirectReads::read(int fd, const std::vector<Range>& ranges) {
  auto queue = taken();
  if (!queue->ok()) return std::vector<Hashed>(ranges.size(), Hashed{EAGAIN, {}});
  std::vector<Page> pages;
  std::vector<Hashed> found = queue->run(walk_, fd, ranges, pieces_of(ranges, pages));
  std::lock_guard<std::mutex> guard(mutex_);
  idle_.push_back(std::move(queue));
  return found;
}

#else

class DirectReads::Queue {};
DirectReads::DirectReads(Walk walk) : walk_(walk), available_(false) {}
std::vector<Hashed> DirectReads::read(int, const std::vector<Range>& ranges) {
  return std::vector<Hashed>(ranges.size(), Hashed{ENOSYS, {}});
}

#endif

DirectReads::~DirectReads() = default;

}  // namespace samovar::pool
