// Class VersionReader is one reader of a version. A step that needs the place of the version waits for it
// only while it is fast enough, then ends it: the writer wins.
//
// Any thread.
#pragma once

#include <atomic>
#include <cstdint>
#include <string>

#include "core/clock.h"
#include "core/units.h"

namespace sluice::store {

// A reader whose place a step needs is ended once it has got less than these bytes/s since `grace` after its
// begin.
struct ReaderLimits {
  Nanos grace = 2 * kSecond;
  uint64_t rate = 16 * kMiB;
};

class VersionReader {
 public:
  VersionReader(uint64_t version, ReaderLimits limits, Nanos now) noexcept
      : version_(version), limits_(limits), begun_(now) {}

  [[nodiscard]] uint64_t version() const noexcept { return version_; }

  // ---- the reader's thread ----
  void set_sent(uint64_t bytes) noexcept { sent_.store(bytes, std::memory_order_relaxed); }
  // Waits for values, of which it is not the cause.
  template <typename Wait>
  auto excuse(const Wait& wait) {
    const Nanos from = monotonic_now();
    is_excused_.store(true);
    auto result = wait();
    begun_.fetch_add(monotonic_now() - from);
    is_excused_.store(false);
    return result;
  }
  // A step has ended it: it must end its view at once.
  [[nodiscard]] bool has_ended() const noexcept { return has_ended_.load(); }
  // "430080 bytes/s ..., while a step needs its place; read at least ...": for after has_ended().
  [[nodiscard]] std::string reason(Nanos now) const;

  // ---- the writer's thread ----
  [[nodiscard]] bool is_late(Nanos now) const noexcept;
  void end() noexcept { has_ended_.store(true); }

 private:
  const uint64_t version_;
  const ReaderLimits limits_;
  std::atomic<Nanos> begun_;
  std::atomic<uint64_t> sent_{0};
  std::atomic<bool> is_excused_{false}, has_ended_{false};
};

}  // namespace sluice::store
