// Asserts are for our own invariants. A peer's bytes never reach one: they are checked and counted.
#pragma once

namespace sluice {
// Prints expression and place, then aborts.
[[noreturn]] void assert_failed(const char* expression, const char* file, int line) noexcept;
}  // namespace sluice

// On in every build: cold code, and invariants whose breach would corrupt sums.
#define SLUICE_ASSERT(expr) \
  ((expr) ? static_cast<void>(0) : ::sluice::assert_failed(#expr, __FILE__, __LINE__))

// Debug builds only: per-frame code on lanes.
#ifdef NDEBUG
#define SLUICE_DASSERT(expr) static_cast<void>(sizeof(expr))
#else
#define SLUICE_DASSERT(expr) SLUICE_ASSERT(expr)
#endif
