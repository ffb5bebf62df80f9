// Folds access no memory outside their sources and destination. A slot at the end of an arena ends at
// unmapped memory.
#include <gtest/gtest.h>
#include <sys/mman.h>
#include <unistd.h>

#include <array>
#include <cstdlib>
#include <memory>
#include <random>
#include <span>
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
  constexpr size_t kMost = 9;  // each compiled pass, and one of two levels
  // Instrumented, a fold reports an access outside wherever it is.
  constexpr size_t kSmallStep = SLUICE_INSTRUMENTED ? 4 : 1;
  std::array<std::unique_ptr<GuardedPages>, kMost> in;
  const GuardedPages out(2);
  std::mt19937_64 random(3);
  for (auto& pages : in) {
    pages = std::make_unique<GuardedPages>(2);
    for (std::byte* p = pages->begin(); p < pages->end(); ++p) *p = static_cast<std::byte>(random());
  }
  std::array<const std::byte*, kMost> ends, begins;
  for (size_t k = 0; k < kMost; ++k) begins[k] = in[k]->begin();
  for (const wire::DType t : all_types()) {
    for (const Stage stage : kStages) {
      const size_t in_size = input_size(t, stage);
      const size_t out_size = output_size(t, stage);
      const size_t most = wire::is_block(t) ? 8 : 600;
      for (const wire::Op op : ops_of(t)) {
        for (const FoldTarget& target : fold_targets()) {
          for (size_t count = 1, n = 1; count < most;
               count += count < 70 ? kSmallStep : 53, n = n % kMost + 1) {
            for (size_t k = 0; k < kMost; ++k) ends[k] = in[k]->end() - count * in_size;
            for (const wire::SumOrder order : kOrders) {
              const FoldFunction fold = target.find(t, op, stage, order);
              fold(std::span(ends).first(n), count, 2, out.end() - count * out_size);
              fold(std::span(begins).first(n), count, 2, out.begin());
            }
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
      target.find(t, wire::Op::kAvg, Stage::kWhole, wire::SumOrder::kTree)(nowhere, 0, 1, nullptr);
  }
}

}  // namespace
}  // namespace sluice::kernels::test
