// Memory that NCCL has registered, counted: it registers the same range twice for each channel.
#pragma once

#include <cstddef>
#include <memory>
#include <mutex>
#include <optional>
#include <vector>

namespace sluice::nccl::collnet {

// Any thread.
class Ranges {
 public:
  struct Range {
    const std::byte* data = nullptr;
    size_t bytes = 0;
    [[nodiscard]] bool touches(const std::byte* p, size_t n) const noexcept {
      return p < data + bytes && data < p + n;
    }
  };

  // The handle of the range, the same for each registration of it; `first`: this is the first one.
  struct Added {
    void* handle;
    bool first;
  };
  [[nodiscard]] Added add(const Range& range);
  // Takes one registration back; the range when it was the first taken back of it (NCCL frees the memory
  // before it takes back the rest), nothing for later ones or a handle that is none.
  [[nodiscard]] std::optional<Range> remove(void* handle);
  [[nodiscard]] size_t size() const;

 private:
  struct Entry {
    Range range;
    size_t count = 0;
    bool leaving = false;
  };
  mutable std::mutex mutex_;
  std::vector<std::unique_ptr<Entry>> entries_;
};

}  // namespace sluice::nccl::collnet
