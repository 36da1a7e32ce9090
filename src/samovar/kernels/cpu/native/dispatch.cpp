// Which tables this build holds and this CPU can run.
#include <cstring>

#include "kernels.h"

#if defined(__x86_64__)
#include <cpuid.h>
#if defined(__linux__)
#include <sys/syscall.h>
#include <unistd.h>
#endif
#elif defined(__aarch64__) && defined(__linux__)
#include <sys/auxv.h>
#endif

namespace samovar {

extern const Kernels table_scalar;

namespace {

constexpr int kMostTables = 8;

struct Available {
  const Kernels* tables[kMostTables] = {};
  int count = 0;
  void add(const Kernels& table) { tables[count++] = &table; }
};

}  // namespace

#if defined(__x86_64__)

extern const Kernels table_avx2;
extern const Kernels table_avx512;
extern const Kernels table_avx512_bf16;
extern const Kernels table_amx;

namespace {

struct Registers {
  unsigned a = 0, b = 0, c = 0, d = 0;
};

Registers cpuid(unsigned leaf, unsigned part) {
  Registers r;
  __get_cpuid_count(leaf, part, &r.a, &r.b, &r.c, &r.d);  // leaves zeros where the CPU has no such leaf
  return r;
}

bool has(unsigned word, int bit) { return (word >> bit & 1) != 0; }

// The states that the operating system saves on a context switch.
unsigned long long saved_states() {
  if (!has(cpuid(1, 0).c, 27)) return 0;
  unsigned low, high;
  __asm__ volatile("xgetbv" : "=a"(low), "=d"(high) : "c"(0));
  return static_cast<unsigned long long>(high) << 32 | low;
}

// Linux keeps the 8 KB of tile data from a process until it asks; threads started later have it too.
bool tiles_granted() {
#if defined(__linux__)
  constexpr int kRequestPermission = 0x1023, kTileData = 18;
  return syscall(SYS_arch_prctl, kRequestPermission, kTileData) == 0;
#else
  return false;
#endif
}

Available find() {
  Available found;
  const Registers basic = cpuid(1, 0), extended = cpuid(7, 0), more = cpuid(7, 1);
  const unsigned long long saved = saved_states();
  const bool ymm = (saved & 0x6) == 0x6, zmm = (saved & 0xe6) == 0xe6, tiles = (saved & 0x60000) == 0x60000;
  const bool avx2 = ymm && has(extended.b, 5) && has(basic.c, 12) && has(basic.c, 29);
  const bool avx512 = avx2 && zmm && has(extended.b, 16) && has(extended.b, 17) && has(extended.b, 30) &&
                      has(extended.b, 31) && has(extended.c, 11);
  const bool bf16 = avx512 && has(more.a, 5);
  if (bf16 && tiles && has(extended.d, 22) && has(extended.d, 24) && has(extended.d, 25) && tiles_granted()) {
    found.add(table_amx);
  }
  if (bf16) found.add(table_avx512_bf16);
  if (avx512) found.add(table_avx512);
  if (avx2) found.add(table_avx2);
  found.add(table_scalar);
  return found;
}

}  // namespace

#elif defined(__aarch64__)

extern const Kernels table_neon;

namespace {

Available find() {
  Available found;
#if defined(__linux__)
  constexpr unsigned long kDotProduct = 1ul << 20;  // HWCAP_ASIMDDP
  if (getauxval(AT_HWCAP) & kDotProduct) found.add(table_neon);
#elif defined(__APPLE__)
  found.add(table_neon);
#endif
  found.add(table_scalar);
  return found;
}

}  // namespace

#else

namespace {

Available find() {
  Available found;
  found.add(table_scalar);
  return found;
}

}  // namespace

#endif

const Kernels* const* kernels_available() {
  static const Available found = find();
  return found.tables;
}

const Kernels* kernels_named(const char* name) {
  for (const Kernels* const* table = kernels_available(); *table != nullptr; table++) {
    if (std::strcmp((*table)->name, name) == 0) return *table;
  }
  return nullptr;
}

}  // namespace samovar
