#include "colocated/hosted_reducer.h"

#include <algorithm>
#include <atomic>
#include <chrono>
#include <memory>
#include <mutex>
#include <set>
#include <string>
#include <thread>
#include <utility>
#include <vector>

#include "config/host/host_limits.h"
#include "core/clock.h"
#include "reducer/reducer.h"
#include "reducer/slots/slot_arena.h"
#include "wire/view.h"

namespace sluice::colocated {
namespace {

constexpr auto kLeavePoll = std::chrono::milliseconds(2);
constexpr Nanos kPortWait = 2 * kSecond;
// Ranks that were refused read why, and those that start a little later ask.
constexpr Nanos kLastWords = kSecond;

// A reducer of this process, and what the sessions that share it have in common.
struct HostedReducer {
  std::string host;
  uint16_t requested_port = 0;
  std::string job;
  std::optional<wire::Digest> token;
  bool tls = false;
  std::unique_ptr<reducer::Reducer> reducer;
  std::set<SessionId> sessions{};  // guarded by HostedReducers::mutex

  // Two ranks of a session in one process need two reducers.
  [[nodiscard]] bool can_serve(const LocalReducerRequest& r) const {
    const bool is_at_port = requested_port == r.port || reducer->port() == r.port;
    const bool is_at_host = host == r.host || host.empty();
    return is_at_host && is_at_port && job == r.job && token == r.token && tls == r.tls &&
           !sessions.contains(r.session);
  }
};

// The reducers of this process. A reducer lives as long as one of its places.
struct HostedReducers {
  explicit HostedReducers(pid_t p) : process(p) {}
  const pid_t process;
  std::mutex mutex;  // held while a reducer starts, so that two sessions do not start two
  std::vector<std::weak_ptr<HostedReducer>> all;
  uint64_t reserved = 0;  // bytes of all sessions

  // With the lock. Whether a place that holds `held` bytes may hold `bytes`.
  [[nodiscard]] Result<void> check(uint64_t bytes, uint64_t held, uint64_t limit) const {
    const uint64_t others = reserved - held;
    if (bytes > limit - std::min(limit, others)) {
      return fail(Errc::kMemoryLimit, "the session needs " + std::to_string(bytes) +
                                          " bytes; the limit of this process is " + std::to_string(limit) +
                                          ", of which its other sessions have " + std::to_string(others));
    }
    return {};
  }
};

// A child of fork() gets its own: the parent's reducers have no threads there, and the mutex may stay locked.
// Never destroyed: a session may outlive the static objects of a process that exits.
HostedReducers& hosted_reducers() {
  static std::atomic<HostedReducers*> reducers{nullptr};
  const pid_t process = ::getpid();
  HostedReducers* current = reducers.load(std::memory_order_acquire);
  while (current == nullptr || current->process != process) {
    auto* const created = new HostedReducers(process);
    if (reducers.compare_exchange_strong(current, created, std::memory_order_acq_rel)) return *created;
    delete created;
  }
  return *current;
}

// What the session will reserve. The exact slot size is agreed on later; it changes the sum by less than 2 %.
uint64_t bytes_for(const LocalReducerRequest& request) {
  if (!request.holds_memory || request.ranks == 0) return 0;
  const uint32_t slot_bytes = request.slot_bytes != 0
                                  ? request.slot_bytes
                                  : std::min(wire::slot_bytes_for(request.ranks, 1), request.window_bytes);
  return reducer::SlotArena::bytes_for({.ranks = request.ranks,
                                        .slots = wire::slots_per_lane(request.window_bytes, slot_bytes, 1),
                                        .slot_bytes = slot_bytes});
}

// Constructed with the lock of HostedReducers.
class Place final : public LocalReducer {
 public:
  Place(HostedReducers& all, std::shared_ptr<HostedReducer> hosted, const LocalReducerRequest& request,
        uint64_t bytes, uint64_t limit)
      : all_(all), hosted_(std::move(hosted)), session_(request.session), limit_(limit), bytes_(bytes) {
    hosted_->sessions.insert(session_);
    all_.reserved += bytes_;
    hosted_->reducer->expect_session(session_, request.ranks);
  }
  ~Place() override {
    const Nanos deadline = monotonic_now() + kLastWords;
    while (hosted_->reducer->end_meeting(session_) && monotonic_now() < deadline)
      std::this_thread::sleep_for(kLeavePoll);
    hosted_->reducer->forget_session(session_);
    const std::lock_guard lock(all_.mutex);
    hosted_->sessions.erase(session_);
    all_.reserved -= bytes_;
  }

  uint64_t id() const noexcept override { return hosted_->reducer->id(); }
  uint16_t port() const noexcept override { return hosted_->reducer->port(); }
  Result<void> reserve(const LocalReducerRequest& request, uint32_t sessions) override {
    const uint64_t bytes = sessions * bytes_for(request);
    const std::lock_guard lock(all_.mutex);
    SLUICE_RETURN_IF_ERROR(all_.check(bytes, bytes_, limit_));
    all_.reserved = all_.reserved - bytes_ + bytes;
    bytes_ = bytes;
    return {};
  }
  void wait_for_leave(Nanos deadline) noexcept override {
    while (hosted_->reducer->has_session(session_) && monotonic_now() < deadline)
      std::this_thread::sleep_for(kLeavePoll);
  }

 private:
  HostedReducers& all_;
  const std::shared_ptr<HostedReducer> hosted_;
  const SessionId session_;
  const uint64_t limit_;
  uint64_t bytes_;  // guarded by HostedReducers::mutex
};

reducer::ReducerOptions reducer_options(const LocalReducerRequest& request, const HostOptions& options) {
  reducer::ReducerOptions o;
  o.listen_host = request.host;
  o.listen_port = request.port;
  o.lanes = 1;
  o.lanes_per_session = 1;
  o.use_device_numa_node = false;  // the threads share the CPUs of the worker
  o.job = request.job;
  o.token = request.token;
  o.tls = request.tls ? reducer::TlsMode::kOn : reducer::TlsMode::kOff;
  o.only_expected_sessions = true;
  o.hosted = true;
  o.offers_memory = true;
  o.payload_crc = options.payload_crc;
  o.transport = config::LaneTransport::kTcp;
  o.link_rate = request.link_rate;
  o.max_slot_bytes = wire::kMaxPayload;  // the ranks agree on less
  o.join_timeout = std::max(o.join_timeout, request.join_timeout);
  return o;
}

Result<std::unique_ptr<LocalReducer>> find_or_start(const LocalReducerRequest& request,
                                                    const HostOptions& options) {
  HostedReducers& reducers = hosted_reducers();
  const std::lock_guard lock(reducers.mutex);
  const uint64_t limit =
      options.memory_limit != 0 ? options.memory_limit : config::host_limits().memory_bytes / 8;
  const uint64_t bytes = bytes_for(request);
  SLUICE_RETURN_IF_ERROR(reducers.check(bytes, 0, limit));
  std::erase_if(reducers.all, [](const auto& hosted) { return hosted.expired(); });
  for (const auto& known : reducers.all) {
    if (const auto hosted = known.lock(); hosted && hosted->can_serve(request))
      return std::make_unique<Place>(reducers, hosted, request, bytes, limit);
  }
  auto started = reducer::Reducer::start(reducer_options(request, options));
  // The last session's reducer may still be closing a port that was asked for.
  const Nanos deadline = monotonic_now() + kPortWait;
  while (!started && request.port != 0 && started.error().code == Errc::kAddressInUse &&
         monotonic_now() < deadline) {
    std::this_thread::sleep_for(kLeavePoll);
    started = reducer::Reducer::start(reducer_options(request, options));
  }
  if (!started) return tl::unexpected(started.error());
  auto hosted = std::make_shared<HostedReducer>(HostedReducer{.host = request.host,
                                                              .requested_port = request.port,
                                                              .job = request.job,
                                                              .token = request.token,
                                                              .tls = request.tls,
                                                              .reducer = std::move(*started)});
  reducers.all.push_back(hosted);
  return std::make_unique<Place>(reducers, std::move(hosted), request, bytes, limit);
}

}  // namespace

LocalReducerFactory local_reducer_factory(const HostOptions& options) {
  return [options](const LocalReducerRequest& request) { return find_or_start(request, options); };
}

}  // namespace sluice::colocated
