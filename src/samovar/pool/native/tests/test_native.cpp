// Checksums, copies and reads by themselves, for runs under sanitizers. Python's tests compare them with xxHash's library.
#include <fcntl.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <memory>
#include <string>
#include <thread>
#include <vector>

#include "direct_reads.h"
#include "xxh3.h"

#ifndef O_DIRECT
#define O_DIRECT 0  // there are no such reads then either
#endif

using namespace samovar::pool;

namespace {

const uint8_t kBinding[] = {'b', 'i', 'n', 'd', 'i', 'n', 'g'};

void check(bool holds, const char* what) {
  if (holds) return;
  std::fprintf(stderr, "failed: %s\n", what);
  std::exit(1);
}

std::vector<uint8_t> pattern(size_t bytes) {
  std::vector<uint8_t> data(bytes);
  for (size_t i = 0; i < bytes; i++) data[i] = static_cast<uint8_t>(i * 131 + (i >> 8) * 7);
  return data;
}

std::string hex(const Digest& digest) {
  std::string text;
  char two[3];
  for (uint8_t byte : digest) {
    std::snprintf(two, sizeof two, "%02x", byte);
    text += two;
  }
  return text;
}

Digest hash(Walk walk, const std::vector<uint8_t>& data, uint8_t* to, Stores stores) {
  Xxh3 state(walk);
  state.take(data.data(), data.size(), to, stores);
  return state.finish(kBinding, sizeof kBinding);
}

void known_values() {
  const struct {
    size_t bytes;
    const char* digest;
  } known[] = {{2048, "64d50f7c4f9b0cf03da872cfad58e024"}, {5000, "024a433d0b90be70bc6f6f1ed88b1f37"}, {1 << 20, "097431e51cc4dffa5e4b8a56df55bf45"}};
  size_t count;
  const NamedWalk* all = walks(&count);
  for (size_t i = 0; i < count; i++)
    for (const auto& each : known)
      check(hex(hash(all[i].walk, pattern(each.bytes), nullptr, Stores::cached)) == each.digest, all[i].name);
}

void every_way_gives_the_same() {
  size_t count;
  const NamedWalk* all = walks(&count);
  for (size_t bytes : {2048, 2049, 3071, 3072, 10000, 70001}) {
    const std::vector<uint8_t> data = pattern(bytes);
    const Digest expected = hash(walk_plain, data, nullptr, Stores::cached);
    for (size_t i = 0; i < count; i++) {
      for (Stores stores : {Stores::cached, Stores::streamed}) {
        std::vector<uint8_t> copy(bytes);  // of its very size: a sanitizer sees a store beyond its end
        check(hash(all[i].walk, data, copy.data(), stores) == expected, "a copy's checksum");
        check(copy == data, "a copy");
      }
      for (size_t piece : {1024, 2048, 4096}) {
        Xxh3 state(all[i].walk);
        for (size_t at = 0; at < bytes; at += piece) state.take(data.data() + at, std::min(piece, bytes - at), nullptr, Stores::cached);
        check(state.finish(kBinding, sizeof kBinding) == expected, "piece by piece");
      }
    }
  }
}

struct Free {
  void operator()(uint8_t* memory) const { std::free(memory); }
};

void read_all(DirectReads& reads, int fd, const std::vector<uint8_t>& data, const std::vector<size_t>& sizes) {
  std::vector<std::unique_ptr<uint8_t, Free>> memory;
  std::vector<Range> ranges;
  int64_t offset = 4096;
  for (size_t size : sizes) {
    const size_t pages = (size + 4095) / 4096 * 4096;
    memory.emplace_back(static_cast<uint8_t*>(std::aligned_alloc(4096, pages)));
    ranges.push_back({offset, memory.back().get(), size, kBinding, sizeof kBinding});
    offset += static_cast<int64_t>(pages) + 4096;
  }
  const std::vector<Hashed> found = reads.read(fd, ranges);
  for (size_t i = 0; i < ranges.size(); i++) {
    const Range& range = ranges[i];
    const uint8_t* there = data.data() + range.offset;
    const bool inside = static_cast<size_t>(range.offset) + (range.bytes + 4095) / 4096 * 4096 <= data.size();
    check(found[i].error == (inside ? 0 : kEnded), "a read's outcome");
    if (!inside) continue;
    check(std::memcmp(range.to, there, range.bytes) == 0, "what was read");
    check(found[i].digest == hash(walk_plain, {there, there + range.bytes}, nullptr, Stores::cached), "its checksum");
  }
}

void reads_of_a_file() {
  DirectReads reads(walk_plain);
  if (!reads.available()) return;
  const std::vector<uint8_t> data = pattern(24 << 20);
  const char* name = "samovar-pool-test.bin";
  const int writer = open(name, O_CREAT | O_TRUNC | O_WRONLY, 0600);
  check(writer >= 0 && write(writer, data.data(), data.size()) == static_cast<ssize_t>(data.size()) && fsync(writer) == 0, "a file");
  close(writer);
  for (int flags : {O_RDONLY, O_RDONLY | O_DIRECT}) {
    const int fd = open(name, flags);
    if (fd < 0) continue;  // not every file system reads directly
    std::vector<std::thread> threads;
    for (int thread = 0; thread < 4; thread++) {
      threads.emplace_back([&] {
        read_all(reads, fd, data, {2 << 20, 100000, 2048, 4097});
        read_all(reads, fd, data, std::vector<size_t>(50, 300001));
        read_all(reads, fd, data, {20 << 20});
        read_all(reads, fd, data, {20 << 20, 5 << 20, 8192});  // beyond the end
      });
    }
    for (std::thread& thread : threads) thread.join();
    close(fd);
  }
  uint8_t byte[2048];
  check(reads.read(-1, {{0, byte, sizeof byte, kBinding, sizeof kBinding}})[0].error == EBADF, "no file");
  unlink(name);
}

}  // namespace

int main() {
  known_values();
  every_way_gives_the_same();
  reads_of_a_file();
  std::puts("all passed");
}
