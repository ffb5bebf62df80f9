#include "store/update/update_step.h"

#include <algorithm>
#include <cmath>

#include "core/assert.h"
#include "core/float_bits.h"

namespace sluice::store {
namespace {

// Elements whose mean is in the first-level cache while the rule reads it.
constexpr size_t kBlock = 2048;

constexpr float kQuietNaN = float_of(0x7fc00000);

inline float canonical(float x) noexcept {
  return x == x ? x : kQuietNaN;
}

double power(double base, uint64_t exponent) noexcept {
  double result = 1;
  for (; exponent != 0; exponent >>= 1) {
    if ((exponent & 1) != 0) result *= base;
    base *= base;
  }
  return result;
}

// The loops. The pointers do not overlap, so compilers need no second, scalar version.

void scale(const float* __restrict d, float factor, float* __restrict mean, size_t n) noexcept {
  for (size_t i = 0; i < n; ++i) mean[i] = factor * d[i];
}

void add_scaled(const float* __restrict d, float factor, float* __restrict mean, size_t n) noexcept {
  for (size_t i = 0; i < n; ++i) mean[i] = mean[i] + factor * d[i];
}

void add_two_scaled(const float* __restrict d, float factor, const float* __restrict e, float next_factor,
                    float* __restrict mean, size_t n) noexcept {
  for (size_t i = 0; i < n; ++i) mean[i] = (mean[i] + factor * d[i]) + next_factor * e[i];
}

void divide(float* mean, float divisor, size_t n) noexcept {
  for (size_t i = 0; i < n; ++i) mean[i] = mean[i] / divisor;
}

void add(const float* __restrict p, const float* __restrict g, float* __restrict p_out, size_t n) noexcept {
  for (size_t i = 0; i < n; ++i) p_out[i] = canonical(p[i] + g[i]);
}

void sgd(const float* __restrict p, const float* __restrict g, float negative_rate, float* __restrict p_out,
         size_t n) noexcept {
  for (size_t i = 0; i < n; ++i) p_out[i] = canonical(p[i] + negative_rate * g[i]);
}

struct NesterovFactors {
  float momentum, negative_rate;
};

template <bool kFirstStep>
void nesterov(const float* __restrict p, const float* __restrict b, const float* __restrict g,
              NesterovFactors f, float* __restrict p_out, float* __restrict b_out, size_t n) noexcept {
  for (size_t i = 0; i < n; ++i) {
    const float buffer = kFirstStep ? g[i] : f.momentum * b[i] + g[i];
    b_out[i] = canonical(buffer);
    p_out[i] = canonical(p[i] + f.negative_rate * (g[i] + f.momentum * buffer));
  }
}

struct AdamWFactors {
  float decay, lerp, beta2, square_weight, negative_step, correction_root, epsilon;
};

template <bool kSmallLerp>
void adamw(const ConstShardArrays& in, const float* __restrict g, AdamWFactors f, const ShardArrays& out,
           size_t n) noexcept {
  const float* __restrict p = in[0];
  const float* __restrict m = in[1];
  const float* __restrict v = in[2];
  float* __restrict p_out = out[0];
  float* __restrict m_out = out[1];
  float* __restrict v_out = out[2];
  const float rest = 1 - f.lerp;
  for (size_t i = 0; i < n; ++i) {
    const float distance = g[i] - m[i];
    const float mean = kSmallLerp ? m[i] + f.lerp * distance : g[i] - distance * rest;
    const float square = v[i] * f.beta2 + (f.square_weight * g[i]) * g[i];
    const float root = std::sqrt(square) / f.correction_root + f.epsilon;
    m_out[i] = canonical(mean);
    v_out[i] = canonical(square);
    // A decay of 1 changes no bit.
    p_out[i] = canonical(p[i] * f.decay + (f.negative_step * mean) / root);
  }
}

template <typename Arrays>
Arrays advanced(Arrays arrays, size_t count, size_t by) noexcept {
  for (size_t a = 0; a < count; ++a) arrays[a] += by;
  return arrays;
}

}  // namespace

UpdateStep::UpdateStep(const UpdateRule& rule, uint64_t steps_before,
                       std::span<const StagedDelta> deltas) noexcept
    : deltas_(deltas), kind_(rule.kind), first_step_(steps_before == 0) {
  SLUICE_ASSERT(!deltas.empty());
  double weights = 0;
  for (const StagedDelta& delta : deltas) {
    weights += static_cast<double>(delta.weight);
    weighted_ = weighted_ || delta.weight != deltas.front().weight;
  }
  divisor_ = weighted_ ? static_cast<float>(weights) : static_cast<float>(deltas.size());

  negative_rate_ = static_cast<float>(-rule.learning_rate);
  momentum_ = static_cast<float>(rule.momentum);
  if (kind_ != RuleKind::kAdamW) return;
  const uint64_t t = steps_before + 1;
  decay_ = static_cast<float>(1 - rule.learning_rate * rule.weight_decay);
  lerp_ = static_cast<float>(1 - rule.beta1);
  beta2_ = static_cast<float>(rule.beta2);
  square_weight_ = static_cast<float>(1 - rule.beta2);
  negative_step_ = static_cast<float>(-(rule.learning_rate / (1 - power(rule.beta1, t))));
  correction_root_ = static_cast<float>(std::sqrt(1 - power(rule.beta2, t)));
  epsilon_ = static_cast<float>(rule.epsilon);
}

void UpdateStep::compute_mean(float* mean, size_t first, size_t count) const noexcept {
  scale(deltas_[0].values + first, factor(deltas_[0]), mean, count);
  size_t k = 1;
  for (; k + 1 < deltas_.size(); k += 2) {
    add_two_scaled(deltas_[k].values + first, factor(deltas_[k]), deltas_[k + 1].values + first,
                   factor(deltas_[k + 1]), mean, count);
  }
  if (k < deltas_.size()) add_scaled(deltas_[k].values + first, factor(deltas_[k]), mean, count);
  if (divisor_ != 1) divide(mean, divisor_, count);
}

void UpdateStep::run(const ConstShardArrays& in, const ShardArrays& out, size_t first,
                     size_t count) const noexcept {
  alignas(64) std::array<float, kBlock> mean;
  const size_t arrays = array_count(kind_);
  for (const size_t end = first + count; first < end;) {
    const size_t n = std::min(kBlock, end - first);
    compute_mean(mean.data(), first, n);
    const ConstShardArrays from = advanced(in, arrays, first);
    const ShardArrays to = advanced(out, arrays, first);
    switch (kind_) {
      case RuleKind::kAdd: add(from[0], mean.data(), to[0], n); break;
      case RuleKind::kSgd: sgd(from[0], mean.data(), negative_rate_, to[0], n); break;
      case RuleKind::kNesterov:
        (first_step_ ? nesterov<true> : nesterov<false>)(from[0], from[1], mean.data(),
                                                         {momentum_, negative_rate_}, to[0], to[1], n);
        break;
      case RuleKind::kAdamW: {
        const AdamWFactors factors{decay_,           lerp_,   beta2_, square_weight_, negative_step_,
                                   correction_root_, epsilon_};
        (lerp_ < 0.5F ? adamw<true> : adamw<false>)(from, mean.data(), factors, to, n);
        break;
      }
    }
    first += n;
  }
}

}  // namespace sluice::store
