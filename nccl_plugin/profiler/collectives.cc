#include "nccl_plugin/profiler/collectives.h"

#include <algorithm>

#include "core/clock.h"

namespace sluice::nccl::profiler {
namespace {

template <size_t kSize>
void copy_text(std::array<char, kSize>& to, std::string_view from) noexcept {
  from = from.substr(0, kSize - 1);
  std::fill(std::ranges::copy(from, to.begin()).out, to.end(), '\0');
}

}  // namespace

uint64_t Collectives::start(const CollectiveInfo& collective, Observers observers) noexcept {
  const uint64_t number = ++last_;
  Collective& c = entries_[number % kMost];
  c = {};
  c.is_offloaded = collective.algorithm.starts_with("COLLNET");  // _DIRECT or _CHAIN
  engine::CollectiveRecord& r = c.record;
  r.number = number;
  r.sequence = collective.sequence;
  copy_text(r.function, collective.function);
  copy_text(r.data_type, collective.data_type);
  copy_text(r.algorithm, collective.algorithm);
  copy_text(r.protocol, collective.protocol);
  copy_text(r.communicator, info_.name);
  r.communicator_id = info_.id;
  r.ranks = info_.ranks;
  r.rank = info_.rank;
  r.nodes = info_.nodes;
  r.channels = collective.channels;
  r.count = collective.count;
  r.launched = monotonic_now();
  announce_running(observers);
  return number;
}

void Collectives::start_network(uint64_t number) noexcept {
  Collective* const c = find(number);
  if (c != nullptr && c->record.network_begin == 0) c->record.network_begin = monotonic_now();
}

bool Collectives::start_kernel(uint64_t number, uint64_t gpu_time, Observers observers) noexcept {
  Collective* const c = find(number);
  if (c == nullptr) return false;
  if (c->kernels++ == 0) {
    c->record.kernel_begin = monotonic_now();
    c->gpu_begin = gpu_time;
    // NCCL has reported no kernel of older collectives, so it will not report their end.
    for (uint64_t older = oldest_; older < number; ++older) {
      Collective* const other = find(older);
      if (other != nullptr && other->kernels == 0) *other = {};
    }
    announce_running(observers);
  }
  c->gpu_begin = std::min(c->gpu_begin, gpu_time);
  return true;
}

void Collectives::set_kernel_end(uint64_t number, uint64_t gpu_time) noexcept {
  Collective* const c = find(number);
  if (c != nullptr) c->gpu_end = std::max(c->gpu_end, gpu_time);
}

void Collectives::stop_kernel(uint64_t number, Observers observers) noexcept {
  Collective* const c = find(number);
  if (c == nullptr || c->stopped_kernels == c->kernels) return;
  ++c->stopped_kernels;
  if (c->stopped_kernels < c->kernels || c->kernels < c->record.channels) return;
  engine::CollectiveRecord& r = c->record;
  r.kernel_end = monotonic_now();
  r.gpu_ns = c->gpu_end > c->gpu_begin ? c->gpu_end - c->gpu_begin : 0;
  for (engine::CollectiveObserver* const observer : observers) observer->on_collective_ended(r);
  *c = {};
  announce_running(observers);
}

void Collectives::announce_running(Observers observers) noexcept {
  const auto runs = [this](uint64_t number) {
    const Collective* const c = find(number);
    return c != nullptr && c->is_offloaded;
  };
  while (oldest_ <= last_ && !runs(oldest_)) ++oldest_;
  const uint64_t running = oldest_ <= last_ ? oldest_ : 0;
  for (engine::CollectiveObserver* const observer : observers) observer->on_collective_running(running);
}

}  // namespace sluice::nccl::profiler
