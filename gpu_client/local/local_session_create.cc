// How a LocalSession begins: the ranks of each host meet, then the rails join.
#include <algorithm>
#include <string>
#include <utility>
#include <vector>

#include "blackbox/process_dump.h"
#include "core/clock.h"
#include "gpu_client/engine/base/thread.h"
#include "gpu_client/engine/trace/bit_record_observer.h"
#include "gpu_client/local/host_agreement.h"
#include "gpu_client/local/local_session.h"
#include "gpu_client/local/meeting.h"

namespace sluice::local {
namespace {

// Ranks that have agreed on their hosts come at once. Whoever does not come cannot, and the others must have
// time left to hear of it.
constexpr Nanos kLongestMeeting = 30 * kSecond;

}  // namespace

Result<std::unique_ptr<LocalSession>> LocalSession::create_on_one_host(engine::SessionOptions options) {
  const uint32_t ranks = options.join.identity.ranks;
  if (ranks > kMaxRanks) {
    return fail(Errc::kTooMany, std::to_string(ranks) + " ranks on one host; at most " +
                                    std::to_string(kMaxRanks) + " share its memory");
  }
  std::unique_ptr<LocalSession> session(new LocalSession(std::move(options), Topology::of_one_host(ranks)));
  blackbox::begin_in_library("libsluice");
  if (auto met = session->meet_host(session->options_.join.join_timeout); !met)
    return session->record_failure(met.error());
  session->begin_records();
  return session;
}

Result<std::unique_ptr<LocalSession>> LocalSession::create(const engine::SessionOptions& options,
                                                           HostAgreement& agreement) {
  std::unique_ptr<LocalSession> session(new LocalSession(options, agreement.topology()));
  blackbox::begin_in_library("libsluice");
  const Nanos meeting = std::min(kLongestMeeting, agreement.time_left() / 2);
  const auto met = session->meet_host(meeting, agreement.end_fd());
  const auto agreed = agreement.conclude(met);
  if (!agreed || !*agreed) {
    // The other ranks of this host do the same, so none sees the loss of another.
    if (met) static_cast<void>(session->close(monotonic_now() + kSecond));
    if (!agreed) return session->record_failure(agreed.error());
    return nullptr;
  }
  Result<void> done;
  if (session->topology_.hosts() > 1) done = session->join_rails(agreement);
  // As long as the last rank may wait for its verdict.
  if (done) done = session->confirm(agreement.deadline() + engine::kVerdictGrace);
  if (done) {
    session->begin_records();
    return session;
  }
  const Error error{session->code(), session->reason()};
  agreement.give_up({error.code, session->reason_for_others()});
  return session->record_failure(error);
}

Result<void> LocalSession::meet_host(Nanos timeout, int end_fd) {
  const engine::JoinOptions& join = options_.join;
  const uint32_t ranks = topology_.local_ranks(host_);
  const MeetingPlan plan{.topology = topology_,
                         .geometry = topology_.hosts() == 1
                                         ? Geometry::of_one_host(ranks)
                                         : Geometry::of_several_hosts(ranks, topology_.rails),
                         .timeout = timeout,
                         .interrupt_fd = end_fd,
                         .may_fail = end_fd >= 0};
  return meet(join.identity, plan, [this](Segment segment) { return begin(std::move(segment)); });
}

Result<void> LocalSession::begin(Segment segment) {
  segment_.emplace(std::move(segment));
  table_.emplace(1, piece_sizes(segment_->geometry(), topology_.hosts()), ranks(), strips(topology_));
  if (topology_.hosts() > 1) rails_.resize(topology_.rails);
  stage_.emplace(*segment_, *table_, topology_, rails_, rank());
  if (options_.host_sharing == engine::HostSharing::kExact) stage_->set_exact();
  watch_.emplace(*segment_, topology_.local_of[rank()]);
  auto thread = engine::start_thread("sluice-local", [this] { run_thread(); });
  if (!thread) return tl::unexpected(thread.error());
  thread_ = std::move(*thread);
  std::unique_lock lock(mutex_);
  changed_.wait(lock, [this] { return watch_begun_.has_value(); });
  return *watch_begun_;
}

// An operation of all ranks: succeeds only if all have joined their rails and know the agreement. For the
// caller there is no such operation.
Result<void> LocalSession::confirm(Nanos deadline) {
  uint8_t byte = 0;
  engine::OpRequest request{.send = reinterpret_cast<std::byte*>(&byte),
                            .recv = reinterpret_cast<std::byte*>(&byte),
                            .count = 1,
                            .dtype = wire::DType::kU8};
  uint64_t handle = 0;
  Status status = submit(request, handle);
  if (status.ok()) {
    status = wait(handle, deadline);
    if (status == Errc::kTimeout) end_for_all(Errc::kJoinTimeout, describe_missing(), Errc::kJoinTimeout);
  }
  if (status.ok()) {
    operations_before_ = stage_->counters().operations.load(std::memory_order_relaxed);
    table_->number_next(0);
    stall_meter_.forget();
    return {};
  }
  end_by_own_failure(status.code(), "the session could not begin");  // unless it has ended
  return fail(code(), reason());
}

tl::unexpected<Error> LocalSession::record_failure(const Error& error) {
  blackbox_.record(blackbox::EventKind::kJoinFailed, {.code = error.code}, error.text);
  dump_.request("a session could not be joined");
  return tl::unexpected(error);
}

// From now on operations are recorded as in a session of the network.
void LocalSession::begin_records() {
  const engine::Identity& identity = options_.join.identity;
  blackbox_.record(blackbox::EventKind::kCommitted, {.a = ranks()});
  stage_->set_black_box(blackbox_);
  is_recorded_.store(true, std::memory_order_seq_cst);
  engine::OperationObservers observers = options_.observers;
  trace_ = engine::TraceObserver::create(
      {.session = identity.session, .rank = identity.rank, .ranks = identity.ranks, .job = identity.job});
  if (trace_) observers.push_back(trace_);
  if (engine::BitRecordObserver::is_requested()) {
    std::string reducers = "memory of " + std::to_string(topology_.hosts()) + " hosts";
    for (const config::Endpoint& reducer :
         rails_.empty() ? std::vector<config::Endpoint>() : options_.join.reducers)
      reducers += ", " + engine::reducer_name(reducer);
    if (auto bits = engine::BitRecordObserver::create({.session = identity.session,
                                                       .rank = identity.rank,
                                                       .ranks = identity.ranks,
                                                       .job = identity.job,
                                                       .reducers = std::move(reducers)}))
      observers.push_back(std::move(bits));
  }
  if (observers.empty()) return;
  recorder_.emplace(*table_, std::move(observers), rank());
  stage_->set_recorder(&*recorder_);
}

}  // namespace sluice::local
