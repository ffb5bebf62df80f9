// Class UpdateStep computes the arrays of version v + 1 of a shard from those of version v and the staged
// deltas. All values are f32, and each operation below rounds once, in the written order: no contraction to
// fused multiply-add (-ffp-contract=off), no reassociation. So all instruction sets give the same bits, and
// any division of a shard into ranges, too. A NaN becomes the quiet NaN 0x7fc00000, because processors differ
// in the sign and payload of a NaN that an operation makes.
//
// Mean of the deltas d_1 .. d_n in rank order, with weights w_k and scales s_k:
//   f_k = s_k if all weights are equal, else f32(w_k) * s_k;  W = n or the sum of w_k in double, then f32
//   g = ((f_1 * d_1 + f_2 * d_2) + f_3 * d_3) + ...;  g = g / W, if W is not 1
//
// Add:       p' = p + g
// SGD:       p' = p + (-lr) * g                    torch.optim.SGD(lr)
// Nesterov:  torch.optim.SGD(lr, momentum=mu, nesterov=True), torch/optim/sgd.py, _single_tensor_sgd. With g
//            the mean of (old - new parameters) of the workers, it is the outer step of DiLoCo (Douillard et
//            al., 2023, arXiv:2311.08105, algorithm 1).
//            b' = g in the first step, else mu * b + g
//            p' = p + (-lr) * (g + mu * b')
// AdamW:     torch.optim.AdamW, torch/optim/adam.py, _single_tensor_adam; t counts steps from 1.
//            q  = p * (1 - lr * wd), if wd is not 0, else p
//            m' = m + (1 - b1) * (g - m), if 1 - b1 < 0.5, else g - (g - m) * (1 - (1 - b1))  [torch.lerp]
//            v' = v * b2 + ((1 - b2) * g) * g
//            p' = q + ((-lr / (1 - b1^t)) * m') / (sqrt(v') / sqrt(1 - b2^t) + eps)
// Scalar factors are computed in double and rounded to f32 once, as PyTorch does; b^t by repeated squaring,
// because pow() of C libraries differ.
//
// PyTorch's kernels for AVX2 and AVX-512 fuse `a + x * b`; those of ATEN_CPU_CAPABILITY=default give the bits
// of this class.
#pragma once

#include <array>
#include <cstddef>
#include <cstdint>
#include <span>

#include "store/update/update_rule.h"

namespace sluice::store {

struct StagedDelta {
  const float* values = nullptr;
  float weight = 1;  // in the mean: finite and above 0
  float scale = 1;   // of the values, for a push that is based on an old version
};

// array_count() pointers to the elements of a shard each, in the order of array_name().
using ShardArrays = std::array<float*, kMaxArrays>;
using ConstShardArrays = std::array<const float*, kMaxArrays>;

class UpdateStep {
 public:
  // `steps_before` steps made version v. `deltas` has at least one entry, in rank order, and must
  // outlive this object.
  UpdateStep(const UpdateRule& rule, uint64_t steps_before, std::span<const StagedDelta> deltas) noexcept;

  // Computes the elements first .. first + count - 1. `out` overlaps neither `in` nor a delta. Does not
  // allocate. Several threads may run different ranges.
  void run(const ConstShardArrays& in, const ShardArrays& out, size_t first, size_t count) const noexcept;

 private:
  [[nodiscard]] float factor(const StagedDelta& delta) const noexcept {
    return weighted_ ? delta.weight * delta.scale : delta.scale;
  }
  // Writes `count` elements of the mean.
  void compute_mean(float* mean, size_t first, size_t count) const noexcept;

  std::span<const StagedDelta> deltas_;
  RuleKind kind_;
  bool weighted_ = false;
  bool first_step_;
  float divisor_ = 1;
  float negative_rate_ = 0;
  float momentum_ = 0;
  float decay_ = 1;  // 1 - lr * wd
  float lerp_ = 0;   // 1 - b1
  float beta2_ = 0;
  float square_weight_ = 0;    // 1 - b2
  float negative_step_ = 0;    // -lr / (1 - b1^t)
  float correction_root_ = 1;  // sqrt(1 - b2^t)
  float epsilon_ = 0;
};

}  // namespace sluice::store
