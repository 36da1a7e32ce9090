// Compiled for AVX2: a stripe is two registers.
#include <immintrin.h>

#include "walk.h"

namespace samovar::pool {
namespace {

constexpr size_t kAheadBytes = 8192;
constexpr size_t kHalfBytes = 32;

__m256i load(const void* at) { return _mm256_loadu_si256(static_cast<const __m256i*>(at)); }

__m256i taken(__m256i sum, __m256i data, __m256i secret) {
  const __m256i keyed = _mm256_xor_si256(data, secret);
  const __m256i product = _mm256_mul_epu32(keyed, _mm256_srli_epi64(keyed, 32));
  return _mm256_add_epi64(sum, _mm256_add_epi64(product, _mm256_shuffle_epi32(data, 0x4E)));
}

__m256i scrambled(__m256i sum, __m256i secret) {
  const __m256i mixed = _mm256_xor_si256(_mm256_xor_si256(sum, _mm256_srli_epi64(sum, 47)), secret);
  const __m256i prime = _mm256_set1_epi64x(static_cast<long long>(kScramblePrime));
  // The prime has 32 bits: the high half's product counts only with its low 32.
  const __m256i high = _mm256_slli_epi64(_mm256_mul_epu32(_mm256_srli_epi64(mixed, 32), prime), 32);
  return _mm256_add_epi64(_mm256_mul_epu32(mixed, prime), high);
}

template <int kTo>  // 0: nowhere, 1: through the caches, 2: past them
void walk(uint64_t* lanes, const uint8_t* from, uint8_t* to, size_t blocks) {
  const uint8_t* last = kSecret + kSecretBytes - kStripeBytes;
  __m256i low = load(lanes), high = load(lanes + 4);
  for (; blocks > 0; blocks--, from += kBlockBytes) {
    for (size_t stripe = 0; stripe < kStripes; stripe++) {
      const uint8_t* at = from + stripe * kStripeBytes;
      _mm_prefetch(reinterpret_cast<const char*>(at + kAheadBytes), _MM_HINT_T0);
      __m256i a = load(at), b = load(at + kHalfBytes);
      __asm__ volatile("" : "+x"(a), "+x"(b));  // loaded once: the compiler must not look there again
      auto* half = reinterpret_cast<__m256i*>(to + stripe * kStripeBytes);
      if (kTo == 1) {
        _mm256_storeu_si256(half, a);
        _mm256_storeu_si256(half + 1, b);
      }
      if (kTo == 2) {
        _mm256_stream_si256(half, a);
        _mm256_stream_si256(half + 1, b);
      }
      low = taken(low, a, load(kSecret + stripe * 8));
      high = taken(high, b, load(kSecret + stripe * 8 + kHalfBytes));
    }
    if (kTo != 0) to += kBlockBytes;
    low = scrambled(low, load(last));
    high = scrambled(high, load(last + kHalfBytes));
  }
  if (kTo == 2) _mm_sfence();
  _mm256_storeu_si256(reinterpret_cast<__m256i*>(lanes), low);
  _mm256_storeu_si256(reinterpret_cast<__m256i*>(lanes + 4), high);
}

}  // namespace

void walk_avx2(uint64_t* lanes, const uint8_t* from, uint8_t* to, size_t blocks, Stores stores) {
  if (to == nullptr) return walk<0>(lanes, from, to, blocks);
  const bool aligned = reinterpret_cast<uintptr_t>(to) % kHalfBytes == 0;
  if (stores == Stores::streamed && aligned) return walk<2>(lanes, from, to, blocks);
  walk<1>(lanes, from, to, blocks);
}

}  // namespace samovar::pool
