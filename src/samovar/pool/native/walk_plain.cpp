// Without intrinsics, and the choice among what this CPU runs.
#include <cstring>

#include "walk.h"

namespace samovar::pool {
namespace {

uint64_t word(const uint8_t* at) {
  uint64_t value;
  std::memcpy(&value, at, sizeof value);
#if __BYTE_ORDER__ == __ORDER_BIG_ENDIAN__
  value = __builtin_bswap64(value);
#endif
  return value;
}

}  // namespace

void walk_plain(uint64_t* lanes, const uint8_t* from, uint8_t* to, size_t blocks, Stores) {
  alignas(64) uint8_t block[kBlockBytes];
  for (; blocks > 0; blocks--, from += kBlockBytes) {
    std::memcpy(block, from, kBlockBytes);
    __asm__ volatile("" : : "r"(block) : "memory");  // from here on nothing is read from `from`
    if (to != nullptr) {
      std::memcpy(to, block, kBlockBytes);
      to += kBlockBytes;
    }
    for (size_t stripe = 0; stripe < kStripes; stripe++) {
      for (size_t lane = 0; lane < 8; lane++) {
        const uint64_t data = word(block + stripe * kStripeBytes + lane * 8);
        const uint64_t keyed = data ^ word(kSecret + stripe * 8 + lane * 8);
        lanes[lane ^ 1] += data;
        lanes[lane] += (keyed & 0xFFFFFFFFu) * (keyed >> 32);
      }
    }
    for (size_t lane = 0; lane < 8; lane++) {
      lanes[lane] = (lanes[lane] ^ lanes[lane] >> 47 ^ word(kSecret + kSecretBytes - kStripeBytes + lane * 8)) * kScramblePrime;
    }
  }
}

const NamedWalk* walks(size_t* count) {
#if defined(__x86_64__)
  static const NamedWalk all[] = {{"avx512", walk_avx512}, {"avx2", walk_avx2}, {"plain", walk_plain}};
  __builtin_cpu_init();
  const size_t skipped = __builtin_cpu_supports("avx512f") && __builtin_cpu_supports("avx512dq") ? 0
                         : __builtin_cpu_supports("avx2")                                       ? 1
                                                                                                : 2;
  *count = 3 - skipped;
  return all + skipped;
#else
  static const NamedWalk all[] = {{"plain", walk_plain}};
  *count = 1;
  return all;
#endif
}

}  // namespace samovar::pool
