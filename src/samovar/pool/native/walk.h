// The part of xxh3-128 that takes the time: whole blocks of 1024 bytes, hashed and on the way copied. One version for each
// instruction set, all with the same result. Source: the XXH3 algorithm description, section "large inputs".
#pragma once

#include <cstddef>
#include <cstdint>

namespace samovar::pool {

constexpr size_t kStripeBytes = 64;
constexpr size_t kSecretBytes = 192;
constexpr size_t kStripes = (kSecretBytes - kStripeBytes) / 8;  // of a block: the secret moves on by 8 bytes each
constexpr size_t kBlockBytes = kStripes * kStripeBytes;
constexpr uint64_t kScramblePrime = 0x9E3779B1u;

extern const uint8_t kSecret[kSecretBytes];

// `cached`: what is written stays in the core's cache, for someone who reads it next. `streamed`: it goes past the caches,
// which saves reading the lines that are overwritten; falls back to `cached` where `to` is not on a cache line's boundary.
enum class Stores { cached, streamed };

// Takes `blocks` blocks into `lanes` [8] and writes them to `to`, unless that is null. Each byte is loaded once: what is
// hashed is what is written, whatever happens to `from` meanwhile.
using Walk = void (*)(uint64_t* lanes, const uint8_t* from, uint8_t* to, size_t blocks, Stores stores);

void walk_plain(uint64_t* lanes, const uint8_t* from, uint8_t* to, size_t blocks, Stores stores);
#if defined(__x86_64__)
void walk_avx2(uint64_t* lanes, const uint8_t* from, uint8_t* to, size_t blocks, Stores stores);
void walk_avx512(uint64_t* lanes, const uint8_t* from, uint8_t* to, size_t blocks, Stores stores);
#endif

// By name ("plain", "avx2", "avx512"), best first; only what this CPU runs. `count` is how many there are.
struct NamedWalk {
  const char* name;
  Walk walk;
};
const NamedWalk* walks(size_t* count);

}  // namespace samovar::pool
