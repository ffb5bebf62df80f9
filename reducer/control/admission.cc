// Who may join what: limits, memory, verdicts and refusals that are kept for those who come late.
#include <algorithm>

#include "core/log.h"
#include "reducer/control/conductor.h"
#include "wire/handshake.h"
#include "wire/view.h"

namespace sluice::reducer {
namespace {

constexpr uint32_t kMaxSlots = 1u << 15;  // the slot number of a header is 16 bits; RDMA's immediate has 20

Error limit(const char* what, uint64_t value, uint64_t least, uint64_t most) {
  return {Errc::kBadField, std::string(what) + " " + std::to_string(value) + " is not within " +
                               std::to_string(least) + " and " + std::to_string(most)};
}

}  // namespace

std::optional<Error> Conductor::check_join(const wire::Hello& hello, const wire::Join& join) const {
  if (hello.ranks < 1 || hello.ranks > wire::kMaxRanks)
    return limit("number of ranks", hello.ranks, 1, wire::kMaxRanks);
  if (hello.rank >= hello.ranks) return limit("rank", hello.rank, 0, hello.ranks - 1);
  if (const uint64_t f = hello.features & wire::kFeaturesSurvive; f != 0 && f != wire::kFeaturesSurvive) {
    return Error{Errc::kBadField,
                 "rank " + std::to_string(hello.rank) + " asks for one of resume and view change only"};
  }
  if (join.slot_bytes < wire::kMinSlotBytes || join.slot_bytes > options_.max_slot_bytes ||
      join.slot_bytes % kCacheLine != 0) {
    return limit("slot bytes (a multiple of 64)", join.slot_bytes, wire::kMinSlotBytes,
                 options_.max_slot_bytes);
  }
  if (join.window_bytes < join.slot_bytes || join.window_bytes > wire::kMaxWindowBytes ||
      join.window_bytes / join.slot_bytes > kMaxSlots) {
    return limit("window bytes", join.window_bytes, join.slot_bytes, wire::kMaxWindowBytes);
  }
  const uint32_t offered = make_welcome(wire::kVersionMax, hello.session).lanes;
  if (join.lanes < 1 || join.lanes > offered) return limit("lanes", join.lanes, 1, offered);
  if (join.reducers.empty() || join.reducer_index >= join.reducers.size()) {
    return limit("reducer index", join.reducer_index, 0,
                 join.reducers.empty() ? 0 : join.reducers.size() - 1);
  }
  if (join.reducers[join.reducer_index] != id_for(hello.session)) {
    return Error{Errc::kMismatch, "the list of reducers names another one at the place of this reducer"};
  }
  return std::nullopt;
}

void Conductor::join(Connection& connection, const wire::Hello& hello, const wire::Join& join) {
  if (auto error = check_join(hello, join)) return connection.refuse(*error, hello.rank);
  auto found = sessions_.find(hello.session);
  if (found != sessions_.end() && found->second->ending()) {
    free_ended();
    found = sessions_.end();
  }
  if (found != sessions_.end()) {
    Session& session = *found->second;
    if (auto error = session.foreign_job(hello)) return connection.refuse(*error, hello.rank);
    if (auto error = session.difference(hello, join, connection.peer())) {
      connection.refuse(*error, hello.rank);
      if (session.decided()) return;  // a stranger to a running session is its own mistake
      session.fail(error->code, hello.rank, error->text);
      if (auto kept = refusals_.find({session.job(), session.id()}); kept != refusals_.end())
        kept->second.told.insert(hello.rank);
      return free_ended();
    }
    session.add(connection.shared_from_this(), hello, join);
    return watch_job();
  }
  if (auto kept = refusals_.find({wire::job_name(hello), hello.session}); kept != refusals_.end()) {
    // A rank that was told before comes for a new try; one that was not gets the words of the join it
    // belonged to.
    if (kept->second.told.insert(hello.rank).second)
      return connection.refuse(kept->second.error, kept->second.rank);
    refusals_.erase(kept);
  }
  if (draining_) return connection.refuse({Errc::kDraining, "this reducer is draining"}, hello.rank);
  const uint64_t bytes = Session::bytes_for(hello, join);
  const std::string tenant = tenant_of(hello);
  if (auto error = tenants_.refuses(tenant, bytes, reserved_bytes_))
    return connection.refuse(*error, hello.rank);
  // The session id spreads sessions over lanes; the lanes of one session are neighbours, hence different.
  const uint32_t first_lane =
      (uint32_t{hello.session.bytes[0]} | uint32_t{hello.session.bytes[1]} << 8) % lane_count();
  auto session = std::make_unique<Session>(*this, hello, join, next_handle_++, first_lane);
  if (next_handle_ == 0) next_handle_ = 1;
  if (!session->map_slots().ok()) {
    return connection.refuse(
        {Errc::kMemoryLimit, "the system has no " + std::to_string(bytes) + " bytes for the session"},
        hello.rank);
  }
  // What may throw comes before what is counted.
  session->take_share(tenants_.account(tenant));
  Session& s = *sessions_.emplace(hello.session, std::move(session)).first->second;
  tenants_.reserve(tenant, bytes);
  reserved_bytes_ += bytes;
  ++sessions_begun_;
  s.add(connection.shared_from_this(), hello, join);
  watch_job();
}

void Conductor::watch_job() {
  if (options_.expected_workers == 0) return;
  // Not their sum: a job has a session for each communicator and head, each with all of its nodes.
  size_t ranks = 0;
  for (const auto& [id, session] : sessions_) ranks = std::max(ranks, session->joined_ranks().size());
  job_.joined(static_cast<uint32_t>(ranks), now_);
}

uint64_t Conductor::id_for(const SessionId& session) const {
  const auto later = later_ids_.find(session);
  return later == later_ids_.end() ? id_ : later->second.id;
}

void Conductor::become_another_for(const SessionId& session) {
  if (later_ids_.size() >= kLaterIds && !later_ids_.contains(session)) {
    later_ids_.erase(
        std::ranges::min_element(later_ids_, {}, [](const auto& entry) { return entry.second.since; }));
  }
  later_ids_.insert_or_assign(session, LaterId{.id = random64(), .since = now_});
}

std::string Conductor::tenant_of(const wire::Hello& hello) const {
  const bool names_one = !options_.tenant_is_job && !hello.tenant.empty();
  std::string name = names_one ? hello.tenant : wire::job_name(hello);
  // A peer's words in logs and status.
  std::ranges::replace_if(
      name, [](char c) { return c < ' ' || c > '~'; }, '?');
  return name;
}

Session* Conductor::find_session(const SessionId& id) {
  const auto it = sessions_.find(id);
  return it == sessions_.end() || it->second->ending() ? nullptr : it->second.get();
}

wire::Verdict Conductor::find_verdict(const wire::Hello& hello) const {
  const auto it = verdicts_.find({wire::job_name(hello), hello.session});
  if (it != verdicts_.end()) return it->second.verdict;
  wire::Verdict verdict;
  verdict.reason = {.code = Errc::kUnknownSession,
                    .text = "no verdict is kept for session " + to_string(hello.session)};
  return verdict;
}

void Conductor::keep_verdict(const Session& session, const wire::Verdict& verdict) {
  verdicts_[{session.job(), session.id()}] = {verdict, now_ + kKept};
}

void Conductor::keep_refusal(const Session& session, Error error, uint32_t rank) {
  const std::vector<uint32_t> told = session.joined_ranks();
  refusals_[{session.job(), session.id()}] = {
      std::move(error), rank, {told.begin(), told.end()}, now_ + kKept};
}

}  // namespace sluice::reducer
