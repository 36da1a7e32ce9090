// The data every part of the extension shares: packed matrices, rounded activations, the paged KV pool. Plain structs
// over memory that the caller owns; nothing here allocates.
#pragma once

#include <cstddef>
#include <cstdint>

namespace samovar {

// Output columns side by side in a packed matrix: one per 32-bit lane of the widest vector.
constexpr int kLanes = 16;
// Input columns per packed record ("strip"). Inputs are padded to whole strips with weights that contribute zero.
constexpr int kStripK = 64;
// Input columns that share one activation scale, and one weight scale in every format but q6_k (16).
constexpr int kGroupK = 32;
constexpr int kMaxRows = 64;  // of a decode step

// How a matrix is stored. A matrix [n, k] is cut into column blocks of 16 outputs; a block is a row of strips, each
// holding 64 inputs x 16 outputs; block after block, strip after strip:
//
//   bf16   2048 B  [32 pairs of inputs][16 outputs][2]                 value = bf16
//   q8     1088 B  [16 quads][16 outputs][4] u8, [2][16] f16 d         value = d * (u - 128)
//   q4_0    576 B  [2 groups][256 B nibbles], [2][16] f16 d            value = d * (u - 8)
//   q4_1    640 B  ... [2][16] f16 d, [2][16] f16 m                    value = d * u + m
//   q4_k    768 B  ... [2][16] f32 d, [2][16] f32 m                    value = d * u + m
//   q6_k   1280 B  [16 quads][16 outputs][4] u8, [4][16] f32 d         value = d * (u - 32), d per 16 inputs
//   f32    4096 B  [64 inputs][16 outputs]                             value = f32
//
// A group's 256 B of nibbles: 4 vectors of 64 B; byte j of lane n in vector v holds input 8 v + j in its low nibble and
// input 8 v + 4 + j in its high one (inputs counted from the group's first).
enum class Format : uint8_t { bf16, q8, q4_0, q4_1, q4_k, q6_k, f32 };

constexpr size_t strip_bytes(Format format) {
  switch (format) {
    case Format::bf16: return 2048;
    case Format::q8: return 1088;
    case Format::q4_0: return 576;
    case Format::q4_1: return 640;
    case Format::q4_k: return 768;
    case Format::q6_k: return 1280;
    case Format::f32: return 4096;
  }
  return 0;
}

struct Matrix {
  Format format;
  int32_t n;       // outputs
  int32_t k;       // inputs
  int32_t blocks;  // ceil(n / 16)
  int32_t strips;  // ceil(k / 64)
  const uint8_t* data;  // 64-byte aligned

  const uint8_t* strip(int block, int strip) const {
    return data + (static_cast<size_t>(block) * strips + strip) * strip_bytes(format);
  }
};

// Rows of inputs in the form a matrix's format wants. One buffer serves every linear of a step.
// bf16 (bf16 matrices; quantised ones where Kernels::bf16_inputs): round to nearest even.
// int8 (q8, q4_*, q6_k elsewhere): per row and group of 32, scale = max|x| / 127, q = round-to-nearest-even(x * (127 / max|x|)). A
// group with max|x| < 1e-30 is all zeros; one with an infinity or a NaN has it as its scale, which spoils the row.
struct Activations {
  int32_t stride;       // elements from row to row of `q`, `b` and `f`: at least strips * 64; the padding holds zeros
  int8_t* q;            // [rows][stride]
  float* scale;         // [rows][stride / 32]
  int32_t* sum;         // [rows][stride / 16]   sums of q over 16 inputs
  float* scaled_sum;    // [rows][stride / 32]   scale * sum of q over the group
  uint16_t* b;          // [rows][stride] bf16, round to nearest even (bf16 matrices)
  float* f;             // [rows][stride]   (f32 matrices)
};

// How a pool holds the elements of keys and values.
enum class KVFormat : uint8_t { bf16, int8 };

// One layer's KV. A block of `block_tokens` (a multiple of 16) is block_tokens / 16 tiles for each KV head, [tile][head];
// a tile holds 16 tokens of it:
//   bf16   keys [head_dim / 2][16 tokens][2 dims]   values [8 pairs of tokens][head_dim][2 tokens], as products read them
//   int8   keys [head_dim / 4][16 tokens][4 dims], f32 scales [16]
//          values [4 quads of tokens][head_dim][4 tokens], f32 scales [16]
// int8: an element is q * scale, where scale = max|x| / 127 over the dimensions of one token and head and q =
// round-to-nearest-even(x * (127 / max|x|)). max|x| < 1e-30 gives zeros; an infinity or a NaN is kept as the scale.
// A scale of a whole block would change when its next token arrives. With one per token its numbers depend on that token
// alone, so a prompt may be cut anywhere, and a block fill token by token, without a bit changing.
// Positions that are not written yet may hold anything: they weigh nothing.
constexpr int kTileTokens = 16;
struct KVPool {
  uint8_t* keys;
  uint8_t* values;
  int32_t block_tokens;
  int32_t kv_heads;
  int32_t head_dim;  // a multiple of 32, at most 256
  KVFormat format = KVFormat::bf16;

  size_t tile_elements() const { return static_cast<size_t>(kTileTokens) * head_dim; }
  size_t tile_bytes() const {
    return format == KVFormat::bf16 ? 2 * tile_elements() : tile_elements() + kTileTokens * sizeof(float);
  }
  // Offset in bytes of the tile of `head` that holds position `at` of a sequence with this table.
  size_t tile(const int64_t* table, int at, int head) const {
    size_t index = static_cast<size_t>(table[at / block_tokens]) * (block_tokens / kTileTokens) +
                   static_cast<size_t>(at % block_tokens) / kTileTokens;
    return (index * kv_heads + head) * tile_bytes();
  }
};

// Attention reads a context in chunks that begin at multiples of this, each with its own softmax; chunks are merged in
// order. Fixed positions, so that a row's bits depend neither on the batch nor on who computes which chunk.
constexpr int kChunkTokens = 256;

}  // namespace samovar
