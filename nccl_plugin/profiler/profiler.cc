#include "nccl_plugin/profiler/profiler.h"

#include <algorithm>
#include <exception>
#include <memory>
#include <mutex>
#include <vector>

#include "nccl_plugin/profiler/collectives.h"

namespace sluice::nccl::profiler {

class Communicator {
 public:
  Communicator(const CommunicatorInfo& info, uint64_t serial) : collectives(info), serial_number(serial) {}

  Collectives collectives;
  std::vector<engine::CollectiveObserver*> observers;  // of its sessions
  const uint64_t serial_number;                        // in the process
};

namespace {

struct AttachedSession {
  uint64_t communicator_id;
  engine::CollectiveObserver* observer;
};

struct Registry {
  std::mutex mutex;
  std::vector<std::unique_ptr<Communicator>> communicators;
  std::vector<AttachedSession> sessions;
  uint64_t last_serial_number = 0;
};

// Never destroyed: NCCL's threads may outlive main().
Registry& registry() {
  static Registry& registry = *new Registry;
  return registry;
}

// A handle has, from its lowest bit: what it is of, the number of the collective, and the serial number of
// the communicator, without their highest bits.
enum Kind : uint64_t { kCollective = 1, kKernel = 2 };
constexpr int kKindBits = 2;
constexpr int kNumberBits = 40;

constexpr uint64_t low_bits(uint64_t value, int bits) noexcept {
  return value & ((uint64_t{1} << bits) - 1);
}

Handle make_handle(const Communicator& communicator, uint64_t number, Kind kind) noexcept {
  return (communicator.serial_number << kNumberBits | low_bits(number, kNumberBits)) << kKindBits | kind;
}

uint64_t number_of(Handle handle) noexcept {
  return low_bits(handle >> kKindBits, kNumberBits);
}

// With a rank for each GPU of the process, several ranks of one communicator report the same collectives. The
// sessions follow the first.
Communicator* first_with_id(const Registry& r, uint64_t id) noexcept {
  const auto found = std::ranges::find_if(
      r.communicators, [id](const auto& each) { return each->collectives.communicator_id() == id; });
  return found != r.communicators.end() ? found->get() : nullptr;
}

// The communicator of a handle of this kind, or null.
Communicator* find(const Registry& r, Handle handle, Kind kind) noexcept {
  if (low_bits(handle, kKindBits) != kind) return nullptr;
  for (const auto& communicator : r.communicators) {
    if (make_handle(*communicator, number_of(handle), kind) == handle) return communicator.get();
  }
  return nullptr;
}

}  // namespace

Communicator* open(const CommunicatorInfo& info) {
  Registry& r = registry();
  const std::lock_guard lock(r.mutex);
  auto communicator = std::make_unique<Communicator>(info, ++r.last_serial_number);
  if (first_with_id(r, info.id) == nullptr) {
    for (const AttachedSession& session : r.sessions) {
      if (session.communicator_id == info.id) communicator->observers.push_back(session.observer);
    }
  }
  r.communicators.push_back(std::move(communicator));
  return r.communicators.back().get();
}

void close(Communicator* communicator) noexcept {
  Registry& r = registry();
  const std::lock_guard lock(r.mutex);
  std::erase_if(r.communicators, [&](const auto& each) { return each.get() == communicator; });
}

Handle start_collective(Communicator& communicator, const CollectiveInfo& info) noexcept {
  const std::lock_guard lock(registry().mutex);
  if (communicator.observers.empty()) return 0;
  return make_handle(communicator, communicator.collectives.start(info, communicator.observers), kCollective);
}

void start_network(Handle collective) noexcept {
  if (collective == 0) return;
  Registry& r = registry();
  const std::lock_guard lock(r.mutex);
  if (Communicator* const c = find(r, collective, kCollective))
    c->collectives.start_network(number_of(collective));
}

Handle start_kernel(Handle collective, uint64_t gpu_time) noexcept {
  if (collective == 0) return 0;
  Registry& r = registry();
  const std::lock_guard lock(r.mutex);
  Communicator* const c = find(r, collective, kCollective);
  const uint64_t number = number_of(collective);
  if (c == nullptr || !c->collectives.start_kernel(number, gpu_time, c->observers)) return 0;
  return make_handle(*c, number, kKernel);
}

void set_kernel_end(Handle kernel, uint64_t gpu_time) noexcept {
  if (kernel == 0) return;
  Registry& r = registry();
  const std::lock_guard lock(r.mutex);
  if (Communicator* const c = find(r, kernel, kKernel))
    c->collectives.set_kernel_end(number_of(kernel), gpu_time);
}

void stop(Handle handle) noexcept {
  if (low_bits(handle, kKindBits) != kKernel) return;
  Registry& r = registry();
  const std::lock_guard lock(r.mutex);
  if (Communicator* const c = find(r, handle, kKernel))
    c->collectives.stop_kernel(number_of(handle), c->observers);
}

Attachment::Attachment(uint64_t communicator_id, engine::CollectiveObserver* observer) noexcept
    : observer_(communicator_id != 0 ? observer : nullptr) {
  if (observer_ == nullptr) return;
  try {
    Registry& r = registry();
    const std::lock_guard lock(r.mutex);
    r.sessions.reserve(r.sessions.size() + 1);
    if (Communicator* const c = first_with_id(r, communicator_id)) c->observers.push_back(observer_);
    r.sessions.push_back({communicator_id, observer_});
  } catch (const std::exception&) {
    observer_ = nullptr;
  }
}

Attachment::~Attachment() {
  if (observer_ == nullptr) return;
  Registry& r = registry();
  const std::lock_guard lock(r.mutex);
  std::erase_if(r.sessions, [&](const AttachedSession& s) { return s.observer == observer_; });
  for (const auto& communicator : r.communicators) std::erase(communicator->observers, observer_);
}

}  // namespace sluice::nccl::profiler
