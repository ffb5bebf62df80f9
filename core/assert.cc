#include "core/assert.h"

#include <atomic>
#include <cstdio>
#include <cstdlib>

namespace sluice {
namespace {

constinit std::atomic<AssertHook> assert_hook{nullptr};

}  // namespace

void set_assert_hook(AssertHook hook) noexcept {
  assert_hook.store(hook, std::memory_order_release);
}

void assert_failed(const char* expression, const char* file, int line) noexcept {
  std::fprintf(stderr, "sluice: assertion failed: %s (%s:%d)\n", expression, file, line);
  if (const AssertHook hook = assert_hook.exchange(nullptr, std::memory_order_acq_rel)) hook();
  std::abort();
}

}  // namespace sluice
