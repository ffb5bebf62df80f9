#include "core/assert.h"

#include <cstdio>
#include <cstdlib>

namespace sluice {

void assert_failed(const char* expression, const char* file, int line) noexcept {
  std::fprintf(stderr, "sluice: assertion failed: %s (%s:%d)\n", expression, file, line);
  std::abort();
}

}  // namespace sluice
