#pragma once

#include <cstddef>
#include <span>

#include "core/result.h"

namespace sluice {

// Arena owns one anonymous memory mapping. A page uses physical memory only after its first access. So the
// reducer can reserve the memory of a session at join, and its RSS grows only as slots fill.
class Arena {
 public:
  Arena() noexcept = default;
  Arena(Arena&& other) noexcept;
  Arena& operator=(Arena&& other) noexcept;
  ~Arena();

  // Maps zeroed, page-aligned memory. kMemoryLimit, with the size in the text, when the system refuses.
  [[nodiscard]] static Result<Arena> map(size_t bytes);

  // Allows large pages, so that a device needs fewer address translations. Only for memory that is used as a
  // whole, because large pages also occupy the memory of untouched parts.
  void prefer_large_pages() const noexcept;
  [[nodiscard]] std::byte* data() const noexcept { return data_; }
  [[nodiscard]] size_t size() const noexcept { return size_; }

 private:
  std::byte* data_ = nullptr;
  size_t size_ = 0;
};

}  // namespace sluice
