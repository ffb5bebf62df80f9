#include "core/arena.h"

#include <sys/mman.h>

#include <cerrno>
#include <cstring>
#include <utility>

namespace sluice {

Arena::Arena(Arena&& other) noexcept
    : data_(std::exchange(other.data_, nullptr)), size_(std::exchange(other.size_, 0)) {}

Arena& Arena::operator=(Arena&& other) noexcept {
  std::swap(data_, other.data_);
  std::swap(size_, other.size_);
  return *this;
}

Arena::~Arena() {
  if (data_ != nullptr) munmap(data_, size_);
}

Result<Arena> Arena::map(size_t bytes) {
  Arena arena;
  if (bytes == 0) return arena;
  void* p = mmap(nullptr, bytes, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE, -1, 0);
  if (p == MAP_FAILED) {
    return fail(Errc::kMemoryLimit,
                "cannot map " + std::to_string(bytes) + " bytes: " + std::strerror(errno));
  }
  arena.data_ = static_cast<std::byte*>(p);
  arena.size_ = bytes;
  return arena;
}

void Arena::prefer_large_pages() const noexcept {
#ifdef MADV_HUGEPAGE
  if (size_ > 0) (void)madvise(data_, size_, MADV_HUGEPAGE);  // if refused, small pages stay
#endif
}

}  // namespace sluice
