#pragma once

#include <cstddef>
#include <memory>
#include <mutex>
#include <optional>
#include <vector>

namespace sluice::nccl::collnet {

// RegisteredRanges counts the registrations of memory ranges: NCCL registers the same range twice per
// channel. Any thread.
class RegisteredRanges {
 public:
  struct Range {
    const std::byte* data = nullptr;
    size_t bytes = 0;
    [[nodiscard]] bool overlaps(const std::byte* p, size_t n) const noexcept {
      return p < data + bytes && data < p + n;
    }
  };

  struct Added {
    void* handle;  // the same for all registrations of a range
    bool is_first;
  };
  [[nodiscard]] Added add(const Range& range);
  // Removes one registration. Returns the range for its first removal, because NCCL frees the memory before
  // it removes the others; returns nothing for later removals and for unknown handles.
  [[nodiscard]] std::optional<Range> remove(void* handle);
  [[nodiscard]] size_t size() const;

 private:
  struct Entry {
    Range range;
    size_t count = 0;
    bool is_released = false;  // one of its registrations was removed
  };
  mutable std::mutex mutex_;
  std::vector<std::unique_ptr<Entry>> entries_;
};

}  // namespace sluice::nccl::collnet
