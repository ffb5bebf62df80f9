// Folds access no memory outside their sources and destination. A slot at the end of an arena ends at
// unmapped memory.
#include <gtest/gtest.h>
#include <sys/mman.h>
#include <unistd.h>

#include <array>
#include <cstdlib>
#include <random>
#include <vector>

#include "tests/conformance/kernels/fold_pattern.h"

namespace sluice::kernels::test {
namespace {

// GuardedPages is memory with an unmapped page on either side.
class GuardedPages {
 public:
  explicit GuardedPages(size_t pages)
      : page_(static_cast<size_t>(sysconf(_SC_PAGESIZE))), bytes_(pages * page_) {
    void* p = mmap(nullptr, bytes_ + 2 * page_, PROT_NONE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
    if (p == MAP_FAILED) std::abort();
    begin_ = static_cast<std::byte*>(p) + page_;
    if (mprotect(begin_, bytes_, PROT_READ | PROT_WRITE) != 0) std::abort();
  }
  GuardedPages(const GuardedPages&) = delete;
  GuardedPages& operator=(const GuardedPages&) = delete;
  ~GuardedPages() { munmap(begin_ - page_, bytes_ + 2 * page_); }

  [[nodiscard]] std::byte* begin() const { return begin_; }
  [[nodiscard]] std::byte* end() const { return begin_ + bytes_; }

 private:
  size_t page_;
  size_t bytes_;
  std::byte* begin_ = nullptr;
};

TEST(FoldBounds, AccessesOnlySourcesAndDestination) {
  const GuardedPages a(2);
  const GuardedPages b(2);
  const GuardedPages out(2);
  std::mt19937_64 random(3);
  for (std::byte* p = a.begin(); p < a.end(); ++p) *p = static_cast<std::byte>(random());
  for (std::byte* p = b.begin(); p < b.end(); ++p) *p = static_cast<std::byte>(random());
  for (const wire::DType t : all_types()) {
    for (const Stage stage : kStages) {
      const size_t in_size = input_size(t, stage);
      const size_t out_size = output_size(t, stage);
      const size_t most = wire::is_block(t) ? 8 : 600;
      for (const wire::Op op : ops_of(t)) {
        for (const FoldTarget& target : fold_targets()) {
          for (size_t count = 1; count < most; count += count < 70 ? 1 : 53) {
            const std::array<const std::byte*, 2> ends = {a.end() - count * in_size,
                                                          b.end() - count * in_size};
            target.find(t, op, stage)(ends, count, 2, out.end() - count * out_size);
            const std::array<const std::byte*, 2> begins = {a.begin(), b.begin()};
            target.find(t, op, stage)(begins, count, 2, out.begin());
          }
        }
      }
    }
  }
}

TEST(FoldBounds, AcceptsZeroElements) {
  const std::array<const std::byte*, 1> nowhere = {nullptr};
  for (const wire::DType t : all_types()) {
    for (const FoldTarget& target : fold_targets())
      target.find(t, wire::Op::kAvg, Stage::kWhole)(nowhere, 0, 1, nullptr);
  }
}

}  // namespace
}  // namespace sluice::kernels::test
