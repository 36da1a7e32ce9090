// Reads many ranges of a file and hashes each, at once: while one piece is hashed the next ones are on their way from the
// disk. Linux AIO by its bare system calls; where the system has none, `available` is false and nothing else may be called.
#pragma once

#include <cstdint>
#include <memory>
#include <mutex>
#include <vector>

#include "xxh3.h"

namespace samovar::pool {

// Bytes of the file from `offset` on, to `to`, followed by what binds them. Offsets and addresses are multiples of 4096
// where the file is open past the page cache; the bytes need not be as many, but the file goes on to the next multiple.
struct Range {
  int64_t offset;
  uint8_t* to;
  size_t bytes;  // at least kLeastBytes
  const uint8_t* binding;
  size_t binding_bytes;
};

struct Hashed {
  int error = 0;  // an errno, or kEnded
  Digest digest{};
};

constexpr int kEnded = -1;  // the file ends before the range does

class DirectReads {
 public:
  explicit DirectReads(Walk walk);
  ~DirectReads();
  DirectReads(const DirectReads&) = delete;
  DirectReads& operator=(const DirectReads&) = delete;

  bool available() const { return available_; }

  // For any thread; as many queues are kept as there were callers at once. Returns when nothing is under way any more.
  std::vector<Hashed> read(int fd, const std::vector<Range>& ranges);

 private:
  class Queue;

  std::unique_ptr<Queue> taken();

  Walk walk_;
  bool available_;
  std::mutex mutex_;
  std::vector<std::unique_ptr<Queue>> idle_;
};

}  // namespace samovar::pool
