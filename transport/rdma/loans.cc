#include "transport/rdma/loans.h"

#include <algorithm>

namespace sluice::transport::rdma {
namespace {

constexpr uint16_t kOnlyHere = 1;

}  // namespace

void encode(const LentPlace& loan, std::span<std::byte, kLoanBytes> out) noexcept {
  std::ranges::fill(out, std::byte{0});
  std::byte* const p = out.data();
  store_le<uint64_t>(p, loan.address);
  store_le<uint64_t>(p + 8, loan.frame.sequence);
  store_le<uint32_t>(p + 16, loan.key);
  store_le<uint32_t>(p + 20, loan.capacity);
  store_le<uint16_t>(p + 24, loan.frame.view_version);
  store_le<uint16_t>(p + 26, loan.only_here ? kOnlyHere : uint16_t{0});
}

LentPlace decode_loan(std::span<const std::byte, kLoanBytes> in) noexcept {
  const std::byte* const p = in.data();
  return {.frame = {.view_version = load_le<uint16_t>(p + 24), .sequence = load_le<uint64_t>(p + 8)},
          .address = load_le<uint64_t>(p),
          .key = load_le<uint32_t>(p + 16),
          .capacity = load_le<uint32_t>(p + 20),
          .only_here = (load_le<uint16_t>(p + 26) & kOnlyHere) != 0};
}

}  // namespace sluice::transport::rdma
