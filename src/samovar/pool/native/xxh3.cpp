#include "xxh3.h"

#include <cstring>

namespace samovar::pool {
namespace {

constexpr uint64_t kPrime1 = 0x9E3779B185EBCA87u, kPrime2 = 0xC2B2AE3D27D4EB4Fu;

uint64_t word(const uint8_t* at) {
  uint64_t value;
  std::memcpy(&value, at, sizeof value);
#if __BYTE_ORDER__ == __ORDER_BIG_ENDIAN__
  value = __builtin_bswap64(value);
#endif
  return value;
}

uint64_t folded(uint64_t a, uint64_t b) {
  const auto product = static_cast<unsigned __int128>(a) * b;
  return static_cast<uint64_t>(product) ^ static_cast<uint64_t>(product >> 64);
}

uint64_t merged(const uint64_t* lanes, const uint8_t* secret, uint64_t start) {
  uint64_t hash = start;
  for (int i = 0; i < 4; i++) hash += folded(lanes[2 * i] ^ word(secret + 16 * i), lanes[2 * i + 1] ^ word(secret + 16 * i + 8));
  hash = (hash ^ hash >> 37) * 0x165667919E3779F9u;
  return hash ^ hash >> 32;
}

void take_stripe(uint64_t* lanes, const uint8_t* from, const uint8_t* secret) {
  for (size_t lane = 0; lane < 8; lane++) {
    const uint64_t data = word(from + 8 * lane), keyed = data ^ word(secret + 8 * lane);
    lanes[lane ^ 1] += data;
    lanes[lane] += (keyed & 0xFFFFFFFFu) * (keyed >> 32);
  }
}

}  // namespace

// The algorithm's own constants.
const uint8_t kSecret[kSecretBytes] = {
    0xb8, 0xfe, 0x6c, 0x39, 0x23, 0xa4, 0x4b, 0xbe, 0x7c, 0x01, 0x81, 0x2c, 0xf7, 0x21, 0xad, 0x1c,
    0xde, 0xd4, 0x6d, 0xe9, 0x83, 0x90, 0x97, 0xdb, 0x72, 0x40, 0xa4, 0xa4, 0xb7, 0xb3, 0x67, 0x1f,
    0xcb, 0x79, 0xe6, 0x4e, 0xcc, 0xc0, 0xe5, 0x78, 0x82, 0x5a, 0xd0, 0x7d, 0xcc, 0xff, 0x72, 0x21,
    0xb8, 0x08, 0x46, 0x74, 0xf7, 0x43, 0x24, 0x8e, 0xe0, 0x35, 0x90, 0xe6, 0x81, 0x3a, 0x26, 0x4c,
    0x3c, 0x28, 0x52, 0xbb, 0x91, 0xc3, 0x00, 0xcb, 0x88, 0xd0, 0x65, 0x8b, 0x1b, 0x53, 0x2e, 0xa3,
    0x71, 0x64, 0x48, 0x97, 0xa2, 0x0d, 0xf9, 0x4e, 0x38, 0x19, 0xef, 0x46, 0xa9, 0xde, 0xac, 0xd8,
    0xa8, 0xfa, 0x76, 0x3f, 0xe3, 0x9c, 0x34, 0x3f, 0xf9, 0xdc, 0xbb, 0xc7, 0xc7, 0x0b, 0x4f, 0x1d,
    0x8a, 0x51, 0xe0, 0x4b, 0xcd, 0xb4, 0x59, 0x31, 0xc8, 0x9f, 0x7e, 0xc9, 0xd9, 0x78, 0x73, 0x64,
    0xea, 0xc5, 0xac, 0x83, 0x34, 0xd3, 0xeb, 0xc3, 0xc5, 0x81, 0xa0, 0xff, 0xfa, 0x13, 0x63, 0xeb,
    0x17, 0x0d, 0xdd, 0x51, 0xb7, 0xf0, 0xda, 0x49, 0xd3, 0x16, 0x55, 0x26, 0x29, 0xd4, 0x68, 0x9e,
    0x2b, 0x16, 0xbe, 0x58, 0x7d, 0x47, 0xa1, 0xfc, 0x8f, 0xf8, 0xb8, 0xd1, 0x7a, 0xd0, 0x31, 0xce,
    0x45, 0xcb, 0x3a, 0x8f, 0x95, 0x16, 0x04, 0x28, 0xaf, 0xd7, 0xfb, 0xca, 0xbb, 0x4b, 0x40, 0x7e,
};

void Xxh3::take(const uint8_t* from, size_t bytes, uint8_t* to, Stores stores) {
  // The last block waits in `tail_`: whether more follows decides how it is taken, and no byte may be loaded twice.
  if (tail_bytes_ > 0) {
    walk_(lanes_, tail_ + kStripeBytes, nullptr, tail_bytes_ / kBlockBytes, stores);
    std::memcpy(tail_, tail_ + tail_bytes_, kStripeBytes);
    tail_bytes_ = 0;
  }
  const size_t waiting = bytes >= kBlockBytes ? kBlockBytes + bytes % kBlockBytes : bytes, walked = bytes - waiting;
  walk_(lanes_, from, to, walked / kBlockBytes, stores);
  std::memcpy(tail_ + kStripeBytes, from + walked, waiting);
  __asm__ volatile("" : : "r"(tail_) : "memory");
  if (to != nullptr) std::memcpy(to + walked, tail_ + kStripeBytes, waiting);
  tail_bytes_ = waiting;
  length_ += bytes;
}

Digest Xxh3::finish(const uint8_t* binding, size_t bytes) {
  uint8_t* at = tail_ + kStripeBytes;
  std::memcpy(at + tail_bytes_, binding, bytes);
  size_t left = tail_bytes_ + bytes;
  length_ += bytes;
  const uint8_t* end = at + left;
  // The last stripe is never part of a whole block, though it may end where one does.
  const size_t blocks = (left - 1) / kBlockBytes;
  walk_(lanes_, at, nullptr, blocks, Stores::cached);
  at += blocks * kBlockBytes;
  left -= blocks * kBlockBytes;
  for (size_t stripe = 0; stripe < (left - 1) / kStripeBytes; stripe++) {
    take_stripe(lanes_, at + stripe * kStripeBytes, kSecret + 8 * stripe);
  }
  take_stripe(lanes_, end - kStripeBytes, kSecret + kSecretBytes - kStripeBytes - 7);
  const uint64_t low = merged(lanes_, kSecret + 11, length_ * kPrime1);
  const uint64_t high = merged(lanes_, kSecret + kSecretBytes - kStripeBytes - 11, ~(length_ * kPrime2));
  Digest digest;
  for (int i = 0; i < 8; i++) {
    digest[i] = static_cast<uint8_t>(high >> (56 - 8 * i));
    digest[8 + i] = static_cast<uint8_t>(low >> (56 - 8 * i));
  }
  return digest;
}

}  // namespace samovar::pool
