// Compiled for AVX-512 (F and DQ): a stripe is one register.
#include <immintrin.h>

#include "walk.h"

namespace samovar::pool {
namespace {

// Ahead of what is hashed. Makes no difference for memory that lay there long; what the disk has just brought is hashed
// in 113 us instead of 128 with 2 KiB (blocks of 2 MiB).
constexpr size_t kAheadBytes = 8192;

__m512i keyed_product(__m512i keyed) { return _mm512_mul_epu32(keyed, _mm512_srli_epi64(keyed, 32)); }

template <int kTo>  // 0: nowhere, 1: through the caches, 2: past them
void walk(uint64_t* lanes, const uint8_t* from, uint8_t* to, size_t blocks) {
  __m512i sum = _mm512_loadu_si512(lanes);
  const __m512i last = _mm512_loadu_si512(kSecret + kSecretBytes - kStripeBytes);
  const __m512i prime = _mm512_set1_epi64(static_cast<long long>(kScramblePrime));
  for (; blocks > 0; blocks--, from += kBlockBytes) {
    for (size_t stripe = 0; stripe < kStripes; stripe++) {
      const uint8_t* at = from + stripe * kStripeBytes;
      _mm_prefetch(reinterpret_cast<const char*>(at + kAheadBytes), _MM_HINT_T0);
      __m512i data = _mm512_loadu_si512(at);
      __asm__ volatile("" : "+v"(data));  // loaded once: the compiler must not look there again
      if (kTo == 1) _mm512_storeu_si512(to + stripe * kStripeBytes, data);
      if (kTo == 2) _mm512_stream_si512(reinterpret_cast<__m512i*>(to + stripe * kStripeBytes), data);
      const __m512i keyed = _mm512_xor_si512(data, _mm512_loadu_si512(kSecret + stripe * 8));
      const __m512i crossed = _mm512_shuffle_epi32(data, static_cast<_MM_PERM_ENUM>(0x4E));
      sum = _mm512_add_epi64(sum, _mm512_add_epi64(keyed_product(keyed), crossed));
    }
    if (kTo != 0) to += kBlockBytes;
    const __m512i mixed = _mm512_xor_si512(_mm512_xor_si512(sum, _mm512_srli_epi64(sum, 47)), last);
    sum = _mm512_mullo_epi64(mixed, prime);
  }
  if (kTo == 2) _mm_sfence();
  _mm512_storeu_si512(lanes, sum);
}

}  // namespace

void walk_avx512(uint64_t* lanes, const uint8_t* from, uint8_t* to, size_t blocks, Stores stores) {
  if (to == nullptr) return walk<0>(lanes, from, to, blocks);
  const bool aligned = reinterpret_cast<uintptr_t>(to) % kStripeBytes == 0;
  if (stores == Stores::streamed && aligned) return walk<2>(lanes, from, to, blocks);
  walk<1>(lanes, from, to, blocks);
}

}  // namespace samovar::pool
