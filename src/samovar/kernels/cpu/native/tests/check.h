// The one check the plain C++ tests use: says what failed, and ends the program.
#pragma once

#include <cstdio>
#include <cstdlib>

#define CHECK(condition, ...)                                                      \
  do {                                                                             \
    if (!(condition)) {                                                            \
      std::fprintf(stderr, "%s:%d: failed: %s\n", __FILE__, __LINE__, #condition); \
      std::fprintf(stderr, "  " __VA_ARGS__);                                       \
      std::fprintf(stderr, "\n");                                                  \
      std::exit(1);                                                                \
    }                                                                              \
  } while (0)
