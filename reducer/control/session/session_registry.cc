#include "reducer/control/session/session_registry.h"

#include <algorithm>
#include <utility>

#include "core/assert.h"
#include "reducer/control/connection/connection.h"
#include "reducer/control/control_loop.h"
#include "wire/handshake.h"
#include "wire/view.h"

namespace sluice::reducer {
namespace {

constexpr uint32_t kMaxSlots = 1u << 15;  // a header's slot number has 16 bits, RDMA's immediate has 20

Error out_of_range(const char* what, uint64_t value, uint64_t min, uint64_t max) {
  return {Errc::kBadField, std::string(what) + " " + std::to_string(value) + " is out of range: expected " +
                               std::to_string(min) + " to " + std::to_string(max)};
}

}  // namespace

SessionRegistry::SessionRegistry(ControlLoop& loop, const ReducerOptions& options, uint64_t own_id)
    : loop_(loop), options_(options), own_id_(own_id), tenants_(options) {}

// ---- admission ----

std::optional<Error> SessionRegistry::check_join(const wire::Hello& hello, const wire::Join& join) const {
  if (hello.ranks < 1 || hello.ranks > wire::kMaxRanks)
    return out_of_range("number of ranks", hello.ranks, 1, wire::kMaxRanks);
  if (hello.rank >= hello.ranks) return out_of_range("rank", hello.rank, 0, hello.ranks - 1);
  if (const uint64_t f = hello.features & wire::kFaultToleranceFeatures;
      f != 0 && f != wire::kFaultToleranceFeatures) {
    return Error{Errc::kBadField, "rank " + std::to_string(hello.rank) +
                                      " requests only one of the features resume and view change; expected "
                                      "both or none"};
  }
  if (join.slot_bytes < wire::kMinSlotBytes || join.slot_bytes > options_.max_slot_bytes ||
      join.slot_bytes % kCacheLine != 0) {
    return out_of_range("slot bytes (a multiple of 64)", join.slot_bytes, wire::kMinSlotBytes,
                        options_.max_slot_bytes);
  }
  if (join.window_bytes < join.slot_bytes || join.window_bytes > wire::kMaxWindowBytes ||
      join.window_bytes / join.slot_bytes > kMaxSlots) {
    return out_of_range("window bytes", join.window_bytes, join.slot_bytes, wire::kMaxWindowBytes);
  }
  const uint32_t offered = loop_.lanes_offered();
  if (join.lanes < 1 || join.lanes > offered) return out_of_range("lanes", join.lanes, 1, offered);
  if (join.reducers.empty() || join.reducer_index >= join.reducers.size()) {
    return out_of_range("reducer index", join.reducer_index, 0,
                        join.reducers.empty() ? 0 : join.reducers.size() - 1);
  }
  if (join.reducers[join.reducer_index] != id_for(hello.session)) {
    return Error{Errc::kMismatch, "rank " + std::to_string(hello.rank) + " lists another reducer at index " +
                                      std::to_string(join.reducer_index) + ", the index of this reducer"};
  }
  return std::nullopt;
}

bool SessionRegistry::join(Connection& connection, const wire::Hello& hello, const wire::Join& join) {
  const auto refuse = [&](const Error& error, uint32_t rank) {
    connection.refuse(error, rank);
    return false;
  };
  if (auto error = check_join(hello, join)) return refuse(*error, hello.rank);
  if (auto error = loop_.gathers().on_join(connection, hello)) return refuse(*error, hello.rank);
  auto found = open_.find(hello.session);
  if (found != open_.end() && found->second->is_ending()) {
    release_ended();
    found = open_.end();
  }
  if (found != open_.end()) {
    Session& session = *found->second;
    if (auto error = session.check_job(hello)) return refuse(*error, hello.rank);
    if (auto error = session.check_agreement(hello, join, connection.peer())) {
      connection.refuse(*error, hello.rank);
      if (session.is_decided()) return false;  // the mismatch does not affect a decided session
      session.fail(error->code, hello.rank, error->text);
      outcomes_.mark_notified({session.job(), session.id()}, hello.rank);
      release_ended();
      return false;
    }
    session.add(connection.shared_self(), hello, join);
    return true;
  }
  if (const auto* refusal = outcomes_.take_refusal({wire::job_name(hello), hello.session}, hello.rank))
    return refuse(refusal->error, refusal->rank);
  if (loop_.is_draining())
    return refuse({Errc::kDraining, "reducer is draining and accepts no new sessions"}, hello.rank);
  const uint64_t bytes = Session::bytes_for(hello, join);
  const std::string tenant = tenant_of(hello);
  if (auto error = tenants_.check_limits(tenant, bytes, reserved_bytes_)) return refuse(*error, hello.rank);
  const std::string& job = wire::job_name(hello);
  auto memory = loop_.budgets().take(JobBudgets::Resource::kMemory, job, bytes);
  if (!memory) return refuse(memory.error(), hello.rank);
  auto lanes = loop_.budgets().take(JobBudgets::Resource::kLanes, job, uint64_t{hello.ranks} * join.lanes);
  if (!lanes) return refuse(lanes.error(), hello.rank);
  // The session id spreads sessions over the lanes. The lanes of one session are consecutive, hence distinct.
  const uint32_t first_lane =
      (uint32_t{hello.session.bytes[0]} | uint32_t{hello.session.bytes[1]} << 8) % loop_.lane_count();
  auto session = std::make_unique<Session>(loop_, hello, join, next_handle(), first_lane);
  if (!session->map_slots().ok()) {
    return refuse({Errc::kMemoryLimit, "cannot map " + std::to_string(bytes) + " bytes for the session"},
                  hello.rank);
  }
  session->hold(std::move(*memory), std::move(*lanes));
  // Operations that may throw precede the accounting.
  session->join_fair_pool(tenants_.account(tenant));
  by_handle_.emplace(session->handle(), session.get());
  wake(*session);
  Session& s = *open_.emplace(hello.session, std::move(session)).first->second;
  tenants_.reserve(tenant, bytes);
  reserved_bytes_ += bytes;
  ++loop_.counters().sessions_begun;
  s.add(connection.shared_self(), hello, join);
  return true;
}

uint32_t SessionRegistry::next_handle() {
  do ++last_handle_;
  while (last_handle_ == 0 || by_handle_.contains(last_handle_));
  return last_handle_;
}

Session* SessionRegistry::find(const SessionId& id) {
  const auto it = open_.find(id);
  return it == open_.end() || it->second->is_ending() ? nullptr : it->second.get();
}

wire::Verdict SessionRegistry::find_verdict(const wire::Hello& hello) {
  const std::string& job = wire::job_name(hello);
  if (const Session* const session = find(hello.session); session != nullptr && session->job() == job) {
    if (const auto verdict = session->verdict()) return *verdict;
  }
  return outcomes_.find_verdict({job, hello.session});
}

std::string SessionRegistry::tenant_of(const wire::Hello& hello) const {
  const bool has_tenant = !options_.tenant_is_job && !hello.tenant.empty();
  std::string name = has_tenant ? hello.tenant : wire::job_name(hello);
  // Logs and the status show names that clients choose.
  std::ranges::replace_if(
      name, [](char c) { return c < ' ' || c > '~'; }, '?');
  return name;
}

// ---- ids ----

uint64_t SessionRegistry::id_for(const SessionId& session) const {
  const auto replaced = replacement_ids_.find(session);
  return replaced == replacement_ids_.end() ? own_id_ : replaced->second.id;
}

void SessionRegistry::replace_id_for(const SessionId& session) {
  if (replacement_ids_.size() >= kMaxReplacementIds && !replacement_ids_.contains(session)) {
    replacement_ids_.erase(
        std::ranges::min_element(replacement_ids_, {}, [](const auto& entry) { return entry.second.since; }));
  }
  replacement_ids_.insert_or_assign(session,
                                    ReplacementId{.id = ControlLoop::random64(), .since = loop_.now()});
}

// ---- life of the sessions ----

void SessionRegistry::on_lane_event(const LaneEvent& event) {
  const auto found = by_handle_.find(event.session->plan().handle);
  SLUICE_ASSERT(found != by_handle_.end());  // a session lives until its lanes have released it
  if (event.kind != LaneEvent::Kind::kReleased) wake(*found->second);
  found->second->on_lane_event(event);
  if (found->second->is_released()) released_.push_back(found->first);
}

bool SessionRegistry::tick_some(Nanos now) {
  for (size_t ranks = 0; ranks < kTickedRanksPerTurn;) {
    const auto handle = due_.first(pass_at_);
    if (!handle) return false;
    Session& session = *by_handle_.at(*handle);
    due_.set(*handle, pass_at_ + 1);  // also if memory is short
    session.tick(now);
    ++loop_.counters().session_ticks;
    due_.set(*handle, std::max(session.next_tick(), pass_at_ + 1));
    ranks += session.rank_count();
  }
  return true;
}

void SessionRegistry::wake(const Session& session) {
  due_.bring_forward(session.handle(), pass_at_ + 1);
}

void SessionRegistry::wake_all() {
  for (const auto& [handle, session] : by_handle_) wake(*session);
}

void SessionRegistry::begin_survey() {
  totals_ = {};
  surveyed_ = 0;
}

bool SessionRegistry::survey_some(Nanos now) {
  auto it = by_handle_.upper_bound(surveyed_);
  for (size_t ranks = 0; it != by_handle_.end() && ranks < kSurveyedRanksPerTurn; ++it) {
    totals_.add(*it->second, now);
    surveyed_ = it->first;
    ranks += it->second->rank_count();
  }
  return it != by_handle_.end();
}

void SessionRegistry::on_process_stall(Nanos time) {
  for (const auto& [id, session] : open_) session->on_process_stall(time);
  wake_all();
}

void SessionRegistry::stop(Errc code, const std::string& text, Nanos linger_deadline) {
  for (const auto& [id, session] : open_) session->stop(code, text);
  release_ended();
  for (const auto& [handle, session] : ending_) session->limit_linger(linger_deadline);
  wake_all();
}

bool SessionRegistry::release_ended() {
  ControlCounters& counters = loop_.counters();
  for (Session* const session : ended_) {
    ++(session->is_completed() ? counters.sessions_completed
       : session->has_moved()  ? counters.sessions_moved
                               : counters.sessions_failed);
    const auto it = open_.find(session->id());
    ending_.emplace(session->handle(), std::move(it->second));
    open_.erase(it);
  }
  ended_.clear();
  for (size_t freed = 0; freed < kFreedPerTurn && !released_.empty(); ++freed) {
    const auto it = ending_.find(released_.back());
    const Session& s = *it->second;
    if (s.handle() <= surveyed_) totals_.remove(s);
    reserved_bytes_ -= s.reserved_bytes();
    tenants_.release(s.tenant(), s.reserved_bytes(), s.served_bytes());
    by_handle_.erase(released_.back());
    due_.remove(released_.back());
    ending_.erase(it);
    released_.pop_back();
  }
  return !released_.empty();
}

}  // namespace sluice::reducer
