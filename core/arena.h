// One anonymous mapping with one owner. Pages are touched by whoever uses them first, so an arena costs
// address space until then: the reducer reserves by arithmetic at join and pays RSS as slots fill.
#pragma once

#include <cstddef>
#include <span>

#include "core/result.h"

namespace sluice {

class Arena {
 public:
  Arena() noexcept = default;
  Arena(Arena&& other) noexcept;
  Arena& operator=(Arena&& other) noexcept;
  ~Arena();

  // Zeroed, page aligned; kMemoryLimit with the size in the text when the system has none.
  [[nodiscard]] static Result<Arena> map(size_t bytes);

  // For memory that will be touched as a whole: the system may take large pages for it, which a device has
  // fewer translations of. It costs what was never to be touched.
  void prefer_large_pages() const noexcept;
  [[nodiscard]] std::byte* data() const noexcept { return data_; }
  [[nodiscard]] size_t size() const noexcept { return size_; }

 private:
  std::byte* data_ = nullptr;
  size_t size_ = 0;
};

}  // namespace sluice
