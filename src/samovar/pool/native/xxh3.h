// xxh3-128 without a seed, of payloads that are followed by a few bytes that bind them: in one go, with a copy on the way,
// or piece by piece. Only for payloads of at least kLeastBytes; shorter ones have another algorithm.
#pragma once

#include <array>
#include <cstddef>
#include <cstdint>

#include "walk.h"

namespace samovar::pool {

constexpr size_t kLeastBytes = 2 * kBlockBytes;
constexpr size_t kMostBindingBytes = 256;

using Digest = std::array<uint8_t, 16>;  // as xxHash writes it: the high half first, big-endian

class Xxh3 {
 public:
  explicit Xxh3(Walk walk) : walk_(walk) {}

  // The next bytes of the payload, also written to `to` unless that is null. But for the last call: whole blocks.
  void take(const uint8_t* from, size_t bytes, uint8_t* to, Stores stores);

  // After the last piece; `binding` at most kMostBindingBytes.
  Digest finish(const uint8_t* binding, size_t bytes);

 private:
  Walk walk_;
  uint64_t lanes_[8] = {0xC2B2AE3Du,           0x9E3779B185EBCA87u, 0xC2B2AE3D27D4EB4Fu, 0x165667B19E3779F9u,
                        0x85EBCA77C2B2AE63u, 0x85EBCA77u,         0x27D4EB2F165667C5u, 0x9E3779B1u};
  uint64_t length_ = 0;
  // What was taken last and is not in the lanes yet, behind the stripe before it.
  uint8_t tail_[kStripeBytes + 2 * kBlockBytes + kMostBindingBytes];
  size_t tail_bytes_ = 0;
};

}  // namespace samovar::pool
