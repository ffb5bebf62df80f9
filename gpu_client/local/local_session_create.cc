// How a LocalSession begins: the ranks of each host meet, then the rails join.
#include <algorithm>
#include <string>
#include <utility>

#include "core/clock.h"
#include "gpu_client/engine/base/thread.h"
#include "gpu_client/engine/session/session.h"
#include "gpu_client/local/local_session.h"
#include "gpu_client/local/meeting.h"
#include "wire/sha256.h"

namespace sluice::local {

Result<std::unique_ptr<LocalSession>> LocalSession::create(engine::SessionOptions options,
                                                           Topology topology) {
  const uint32_t ranks = topology.local_ranks(topology.host_of[options.join.identity.rank]);
  if (ranks > kMaxRanks) {
    return fail(Errc::kTooMany, std::to_string(ranks) + " ranks on one host; at most " +
                                    std::to_string(kMaxRanks) + " share its memory");
  }
  std::unique_ptr<LocalSession> session(new LocalSession(std::move(options), std::move(topology)));
  const engine::JoinOptions& join = session->options_.join;
  const Topology& t = session->topology_;
  const MeetingPlan plan{
      .topology = t,
      .geometry = t.hosts() == 1 ? Geometry::of_one_host(ranks) : Geometry::of_several_hosts(ranks, t.rails),
      .timeout = join.join_timeout};
  auto done = meet(join.identity, plan, [&](Segment segment) { return session->begin(std::move(segment)); });
  if (done && t.hosts() > 1) {
    done = session->join_rails();
    // The ranks of this host must not wait for a rail that does not come.
    if (!done) session->end_for_all(done.error().code, done.error().text, done.error().code);
    if (done) done = session->confirm();
  }
  if (!done) return tl::unexpected(done.error());
  return session;
}

Result<void> LocalSession::begin(Segment segment) {
  segment_.emplace(std::move(segment));
  table_.emplace(1, piece_sizes(segment_->geometry(), topology_.hosts()), ranks());
  if (topology_.hosts() > 1) rails_.resize(topology_.rails);
  stage_.emplace(*segment_, *table_, topology_, rails_, rank());
  watch_.emplace(*segment_, topology_.local_of[rank()]);
  auto thread = engine::start_thread("sluice-local", [this] { run_thread(); });
  if (!thread) return tl::unexpected(thread.error());
  thread_ = std::move(*thread);
  std::unique_lock lock(mutex_);
  changed_.wait(lock, [this] { return watch_begun_.has_value(); });
  return *watch_begun_;
}

// In the order of the rails, on all ranks: so no rail waits for one that waits for it.
Result<void> LocalSession::join_rails() {
  for (uint32_t rail = 0; rail < topology_.rails; ++rail) {
    if (topology_.server_of(rail, host_) != topology_.local_of[rank()]) continue;
    auto joined = engine::Session::create(rail_options(rail));
    if (!joined) return add_context("rail " + std::to_string(rail), joined.error());
    rails_[rail] = std::move(*joined);
  }
  are_rails_complete_.store(true, std::memory_order_release);
  return {};
}

engine::SessionOptions LocalSession::rail_options(uint32_t rail) const {
  engine::SessionOptions o = options_;
  std::string name = "sluice rail " + std::to_string(rail) + " of ";
  name.append(o.join.identity.session.bytes.begin(), o.join.identity.session.bytes.end());
  const wire::Digest digest = wire::sha256(std::as_bytes(std::span(name)));
  engine::Identity& identity = o.join.identity;
  std::copy_n(digest.begin(), identity.session.bytes.size(), identity.session.bytes.begin());
  identity.rank = host_;
  identity.ranks = topology_.hosts();
  o.join.colocation.rails = topology_.rails;
  o.own_thread = true;
  o.device_memory = false;
  o.op_timeout = 0;  // this session has one of its own
  return o;
}

// An operation of all ranks: succeeds only if all have joined their rails.
Result<void> LocalSession::confirm() {
  uint8_t byte = 0;
  engine::OpRequest request{.send = reinterpret_cast<std::byte*>(&byte),
                            .recv = reinterpret_cast<std::byte*>(&byte),
                            .count = 1,
                            .dtype = wire::DType::kU8};
  uint64_t handle = 0;
  Status status = start(request, handle);
  if (status.ok()) {
    const Nanos deadline = monotonic_now() + options_.join.join_timeout;
    status = wait(handle, deadline);
    if (status == Errc::kTimeout) end_for_all(Errc::kJoinTimeout, describe_missing(), Errc::kJoinTimeout);
  }
  if (status.ok()) return {};
  const Errc ended = code();
  return fail(ended != Errc::kOk ? ended : status.code(), reason());
}

}  // namespace sluice::local
