// What every user of AMX tiles needs beside the intrinsics.
#pragma once

#include "simd.h"

namespace samovar::SAMOVAR_ISA_NAMESPACE {

// Call between writing memory and loading tiles from it: gcc 12's tile loads and configuration do not tell the compiler
// that they read memory, so it may move stores behind them or drop them.
inline void tiles_will_read(const void* written) { __asm__ volatile("" ::"r"(written) : "memory"); }

// The shape of one of the eight tiles.
struct TileShape {
  uint8_t rows = 16;
  uint16_t row_bytes = 64;
};

// Eight tiles of the given shapes for the life of the object.
class Tiles {
 public:
  explicit Tiles(const TileShape (&shapes)[8]) {
    struct alignas(64) {
      uint8_t palette = 1, start_row = 0, reserved[14] = {};
      uint16_t row_bytes[16] = {};
      uint8_t rows[16] = {};
    } config;
    for (int i = 0; i < 8; i++) {
      config.row_bytes[i] = shapes[i].row_bytes;
      config.rows[i] = shapes[i].rows;
    }
    tiles_will_read(&config);
    _tile_loadconfig(&config);
  }
  ~Tiles() { _tile_release(); }
  Tiles(const Tiles&) = delete;
  Tiles& operator=(const Tiles&) = delete;
};

}  // namespace samovar::SAMOVAR_ISA_NAMESPACE
