// Struct ModelCounters is what one reducer counts of one model. Connections, HostedModel and StepLeader write
// it, and ModelMonitor reads it without their locks: a step may hold these for seconds.
//
// Any thread.
#pragma once

#include <array>
#include <atomic>
#include <cstdint>
#include <mutex>
#include <string>

#include "core/clock.h"
#include "core/units.h"
#include "store/model/model_layout.h"
#include "store/model/model_spec.h"
#include "wire/store_messages.h"

namespace sluice::store {

class Count {
 public:
  void add(uint64_t n = 1) noexcept { value_.fetch_add(n, std::memory_order_relaxed); }
  void set(uint64_t n) noexcept { value_.store(n, std::memory_order_relaxed); }
  [[nodiscard]] uint64_t get() const noexcept { return value_.load(std::memory_order_relaxed); }

 private:
  std::atomic<uint64_t> value_{0};
};

struct ModelCounters {
  ModelCounters(const ModelSpec& spec, const ModelLayout& layout);

  const std::string name, mode, rule;
  const uint32_t shards;
  const uint64_t memory_bytes;  // reserved

  Count owned, copied;  // shards here
  Count leads;          // 1: the leader is here
  Count disk_bytes;     // of the versions here
  Count staged;         // deltas that wait for a step
  Count staged_bytes;
  Count steps, failed_steps;  // of the leader here
  std::array<Count, wire::kPushOutcomeNames.size()> pushes;
  Count pulls, ended_pulls;  // ended: too slow for a step that needed the place of the version
  Count delta_bytes, pull_bytes, copy_bytes;  // received; sent; sent

  // Notes the current version. A newer one than before ends the age of the last step.
  void set_version(uint64_t version) noexcept;
  [[nodiscard]] uint64_t version() const noexcept { return version_.load(); }
  // Time since the last step, or since this object began.
  [[nodiscard]] Nanos step_age(Nanos now) const noexcept { return now - stepped_at_.load(); }
  // Why the leader here refuses pushes or cannot make the step that it tries; empty: it works.
  void set_unavailable(const std::string& reason);
  [[nodiscard]] std::string unavailable() const;

 private:
  std::atomic<uint64_t> version_{0};
  std::atomic<Nanos> stepped_at_{monotonic_now()};
  std::atomic<bool> is_unavailable_{false};
  mutable std::mutex mutex_;
  std::string unavailable_;
};

}  // namespace sluice::store
