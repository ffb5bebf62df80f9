// Assertions of internal invariants. Input from a peer must never reach an assertion; it is checked and
// counted instead.
#pragma once

namespace sluice {
// Prints the expression and its source location, calls the hook, then aborts.
[[noreturn]] void assert_failed(const char* expression, const char* file, int line) noexcept;

// Called once, by the first thread whose assertion fails. It must not allocate or wait for a lock, because
// the process is in an unknown state.
using AssertHook = void (*)() noexcept;
void set_assert_hook(AssertHook hook) noexcept;
}  // namespace sluice

// Enabled in every build: for cold code, and for invariants whose violation would corrupt sums.
#define SLUICE_ASSERT(expr) \
  ((expr) ? static_cast<void>(0) : ::sluice::assert_failed(#expr, __FILE__, __LINE__))

// Enabled in debug builds only: for per-frame code on lanes.
#ifdef NDEBUG
#define SLUICE_DASSERT(expr) static_cast<void>(sizeof(expr))
#else
#define SLUICE_DASSERT(expr) SLUICE_ASSERT(expr)
#endif
