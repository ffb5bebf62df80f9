// Fuzzes the folds of block types: for arbitrary blocks, or partial sums, all targets of this CPU return the
// bits of the scalar reference, and encoded blocks are valid.
#include <vector>

#include "core/assert.h"
#include "reducer/kernels/fold.h"
#include "reducer/kernels/scalar_reference.h"
#include "tests/fuzz/input.h"
#include "wire/payload/block_codec.h"

namespace sluice::fuzz {

void fuzz_one(Input in) {
  const auto type = in.below(2) == 0 ? wire::DType::kMxfp8 : wire::DType::kInt8Block;
  const auto op = in.below(2) == 0 ? wire::Op::kSum : wire::Op::kAvg;
  const auto stage = static_cast<kernels::Stage>(in.below(3));
  const size_t count = 1 + in.below(2);
  const size_t ranks = 1 + in.below(17);
  const uint32_t divisor = std::max(in.take<uint32_t>(), 1U);
  const bool is_wide = stage == kernels::Stage::kPartial;
  const size_t in_size =
      stage == kernels::Stage::kFinish ? wire::accumulated_size_of(type) : wire::size_of(type);
  const size_t out_size = is_wide ? wire::accumulated_size_of(type) : wire::size_of(type);
  std::vector<Bytes> storage;
  std::vector<const std::byte*> sources;
  for (size_t k = 0; k < ranks; ++k) storage.push_back(in.exactly(count * in_size));
  for (const Bytes& bytes : storage) sources.push_back(bytes.data());

  Bytes expected(count * out_size);
  for (const wire::SumOrder order : {wire::SumOrder::kTree, wire::SumOrder::kGroups}) {
    kernels::reference_fold(type, op, stage, order, sources, count, divisor, expected.data());
    SLUICE_ASSERT(is_wide || wire::are_valid_blocks(type, expected));
    for (const kernels::FoldTarget& target : kernels::fold_targets()) {
      Bytes result(expected.size());
      target.find(type, op, stage, order)(sources, count, divisor, result.data());
      SLUICE_ASSERT(result == expected);
    }
  }
}

}  // namespace sluice::fuzz
