// How a LocalSession begins: the ranks of each host meet, then the rails join.
#include <algorithm>
#include <string>
#include <utility>
#include <vector>

#include "blackbox/process_dump.h"
#include "core/clock.h"
#include "gpu_client/engine/base/peer_error.h"
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

// Of ranks that have no meeting point, or may not use it.
std::string remedy_for_several_hosts(const engine::ColocationOptions& colocation) {
  return colocation.mode == engine::ColocationMode::kOff && !colocation.rendezvous.host.empty()
             ? "SLUICE_REDUCERS, or SLUICE_COLOCATED=auto"
             : "SLUICE_REDUCERS, or SLUICE_RENDEZVOUS=host:port of rank 0";
}

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
  if (session->topology_.hosts() > 1) {
    done = session->join_rails(agreement);
    if (done) done = agreement.confirm();
  }
  // From here on all ranks succeed. An end that comes meanwhile is one of the session.
  if (done) {
    session->begin_records();
    return session;
  }
  session->end_for_all(wire::kNoRank, done.error().code, done.error().text,
                       engine::code_for_peer(done.error().code));
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
                         .host_name = this_host_name(),
                         .remedy = end_fd >= 0 ? "" : remedy_for_several_hosts(join.colocation),
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
