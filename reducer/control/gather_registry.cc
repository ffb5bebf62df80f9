#include "reducer/control/gather_registry.h"

#include <algorithm>

#include "reducer/control/connection/connection.h"
#include "reducer/control/rank_list.h"
#include "wire/handshake.h"

namespace sluice::reducer {

std::optional<Error> GatherRegistry::check(const wire::Hello& hello, const PendingGather& round) {
  const std::string rank = "rank " + std::to_string(hello.rank);
  if (hello.ranks != round.ranks) {
    return Error{Errc::kMismatch, rank + " has " + std::to_string(hello.ranks) + " ranks, " +
                                      rank_list({round.entries.begin()->first}) + " has " +
                                      std::to_string(round.ranks)};
  }
  if (const auto holder = round.entries.find(hello.rank); holder != round.entries.end())
    return Error{Errc::kRankTaken, rank + " is present already, from " + holder->second.connection->peer()};
  return std::nullopt;
}

void GatherRegistry::add(Connection& from, const wire::Hello& hello, const wire::Gather& gather, Nanos now) {
  if (hello.ranks < 1 || hello.ranks > wire::kMaxRanks || hello.rank >= hello.ranks) {
    return from.refuse(
        {Errc::kBadField, "rank " + std::to_string(hello.rank) + " of " + std::to_string(hello.ranks) +
                              " is out of range: at most " + std::to_string(wire::kMaxRanks) + " ranks"},
        hello.rank);
  }
  if (const auto why = refused_before(from, hello)) return from.refuse(*why, hello.rank);
  const Key key{hello.session, gather.round};
  const auto [at, is_first] = rounds_.try_emplace(key);
  PendingGather& round = at->second;
  remove_closed(round);
  if (round.left == hello.rank) round.left.reset();
  if (round.entries.empty()) {
    const Nanos requested = Nanos{gather.timeout_ms} * kMillisecond;
    round.job = wire::job_name(hello);
    round.ranks = hello.ranks;
    round.deadline = now + std::min(requested, longest_wait_);
  }
  if (wire::job_name(hello) != round.job) {  // without effect on the ranks of the other job
    return from.refuse({Errc::kUnauthenticated,
                        "session " + to_string(hello.session).substr(0, 8) + " belongs to another job"},
                       hello.rank);
  }
  if (const auto error = check(hello, round)) {
    from.refuse(*error, hello.rank);
    note_refused(from, hello, *error);
    refuse_all(hello.session, round, *error, hello.rank);
    rounds_.erase(at);
    return;
  }
  if (const auto other = find_waiting(hello.session, round.job, gather.round); other != rounds_.end()) {
    const Error error =
        rounds_differ(hello.rank, gather.round, other->second.entries.begin()->first, other->first.second);
    from.refuse(error, hello.rank);
    note_refused(from, hello, error);
    for (const auto differing : {at, other}) {
      refuse_all(hello.session, differing->second, error, hello.rank);
      rounds_.erase(differing);
    }
    return;
  }
  round.entries.emplace(hello.rank, Entry{.connection = from.shared_self(), .data = gather.data});
  if (round.entries.size() < round.ranks) return;
  send_to_all(round, gather.round);
  rounds_.erase(at);
}

// A round ends for all ranks before one of them sends the next, so ranks in two rounds will never meet.
GatherRegistry::Rounds::iterator GatherRegistry::find_waiting(const SessionId& session,
                                                              const std::string& job,
                                                              std::optional<uint8_t> but) {
  for (auto at = rounds_.lower_bound({session, 0}); at != rounds_.end() && at->first.first == session; ++at) {
    if (at->first.second == but || at->second.job != job) continue;
    remove_closed(at->second);
    if (!at->second.entries.empty()) return at;
  }
  return rounds_.end();
}

Error GatherRegistry::rounds_differ(uint32_t rank, uint8_t round, uint32_t other, uint8_t other_round) {
  const auto name = [](uint32_t r, uint8_t in) {
    return "rank " + std::to_string(r) + " in round " + std::to_string(in);
  };
  return {Errc::kMismatch, "before the join, " + name(rank, round) + " exchanges other data than " +
                               name(other, other_round) +
                               "; set SLUICE_HOSTS and SLUICE_COLOCATED alike on all ranks"};
}

std::optional<Error> GatherRegistry::on_join(Connection& from, const wire::Hello& hello) {
  if (auto why = refused_before(from, hello)) return why;
  const auto at = find_waiting(hello.session, wire::job_name(hello));
  if (at == rounds_.end()) return std::nullopt;
  PendingGather& round = at->second;
  Error error = modes_differ(hello.rank, round.entries.begin()->first);
  note_refused(from, hello, error);
  refuse_all(hello.session, round, error, hello.rank);
  rounds_.erase(at);
  return error;
}

Error GatherRegistry::modes_differ(uint32_t without, uint32_t with) {
  return {
      Errc::kMismatch,
      "rank " + std::to_string(without) + " joins at once, rank " + std::to_string(with) +
          " first exchanges data with the others; set SLUICE_HOSTS and SLUICE_COLOCATED alike on all ranks"};
}

void GatherRegistry::tick(Nanos now) {
  for (auto at = rounds_.begin(); at != rounds_.end();) {
    PendingGather& round = at->second;
    remove_closed(round);
    if (round.left) {
      refuse_all(at->first.first, round, left_too_early(*round.left), *round.left);
      at = rounds_.erase(at);
      continue;
    }
    if (!round.entries.empty() && now < round.deadline) {
      ++at;
      continue;
    }
    std::vector<uint32_t> missing;
    for (uint32_t rank = 0; !round.entries.empty() && rank < round.ranks; ++rank) {
      if (!round.entries.contains(rank)) missing.push_back(rank);
    }
    if (!missing.empty()) {
      const Error late{Errc::kJoinTimeout, rank_list(missing) + " did not join in time"};
      const Connection& first = *round.entries.begin()->second.connection;
      refuse_all(at->first.first, round, late, missing.front());
      leave_group(first.gather_group(), first, missing.front(), late);  // those who have not arrived
    }
    at = rounds_.erase(at);
  }
}

void GatherRegistry::remove_closed(PendingGather& round) {
  std::erase_if(round.entries, [&round](const auto& entry) {
    const Connection& connection = *entry.second.connection;
    if (!connection.is_closed() && !connection.is_finishing()) return false;
    if (connection.is_closed()) round.left = entry.first;
    return true;
  });
  if (round.entries.empty()) round.left.reset();  // nobody waits for it
}

Error GatherRegistry::left_too_early(uint32_t rank) {
  return {Errc::kPeerLost, "rank " + std::to_string(rank) + " lost: it left before all ranks had joined"};
}

void GatherRegistry::refuse_all(const SessionId& session, PendingGather& round, const Error& error,
                                uint32_t rank) {
  for (const auto& [present, entry] : round.entries) {
    entry.connection->refuse(error, rank);
    remember(session, {.job = round.job, .ranks = round.ranks, .error = error}, present, entry.connection);
  }
}

void GatherRegistry::note_refused(Connection& from, const wire::Hello& hello, const Error& error) {
  remember(hello.session, {.job = wire::job_name(hello), .ranks = hello.ranks, .error = error}, hello.rank,
           from.shared_self());
}

void GatherRegistry::remember(const SessionId& session, const Refusal& refusal, uint32_t told,
                              const std::shared_ptr<Connection>& connection) {
  if (remembers_) refused_.try_emplace(session, refusal).first->second.told[told] = connection;
}

std::optional<Error> GatherRegistry::refused_before(Connection& from, const wire::Hello& hello) {
  const auto at = refused_.find(hello.session);
  if (at == refused_.end() || at->second.job != wire::job_name(hello)) return std::nullopt;
  note_refused(from, hello, at->second.error);
  return at->second.error;
}

void GatherRegistry::end(const SessionId& session) {
  const Error error{Errc::kPeerLost, "the rank at whose address the ranks meet has failed"};
  for (auto at = rounds_.lower_bound({session, 0}); at != rounds_.end() && at->first.first == session;) {
    remove_closed(at->second);
    refuse_all(session, at->second, error, 0);
    at = rounds_.erase(at);
  }
}

bool GatherRegistry::owes_reason(const SessionId& session) const {
  const auto at = refused_.find(session);
  if (at == refused_.end()) return false;
  const Refusal& refusal = at->second;
  for (uint32_t rank = 1; rank < refusal.ranks; ++rank) {
    const auto told = refusal.told.find(rank);
    if (told == refusal.told.end()) return true;
    if (const auto connection = told->second.lock(); connection && !connection->is_closed()) return true;
  }
  return false;
}

void GatherRegistry::send_to_all(const PendingGather& round, uint8_t number) {
  wire::Gathered part;
  std::vector<wire::Gathered> parts;
  for (const auto& [rank, entry] : round.entries) {
    if (part.sizes.size() == wire::kMaxGatheredRanks ||
        part.data.size() + entry.data.size() > wire::kMaxGatheredBytes) {
      parts.push_back(std::exchange(part, {}));
    }
    if (part.sizes.empty()) part.round = number, part.first_rank = rank;
    part.sizes.push_back(static_cast<uint16_t>(entry.data.size()));
    part.data.insert(part.data.end(), entry.data.begin(), entry.data.end());
  }
  parts.push_back(std::move(part));
  const auto group = std::make_shared<GatherGroup>();
  for (const auto& [rank, entry] : round.entries) group->members.push_back(entry.connection);
  // All ranks get the same bytes: n ranks would need n copies of n parts otherwise.
  auto frames = std::make_shared<GatheredFrames>();
  for (const wire::Gathered& each : parts)
    frames->push_back(std::make_shared<const std::vector<std::byte>>(wire::encode_message(each)));
  for (const auto& [rank, entry] : round.entries) entry.connection->send_gathered(frames, group);
}

void GatherRegistry::leave_group(const std::shared_ptr<GatherGroup>& group, const Connection& from,
                                 uint32_t rank, const Error& why) {
  if (group == nullptr) return;
  for (const std::weak_ptr<Connection>& member : std::exchange(group->members, {})) {
    if (const auto other = member.lock(); other != nullptr && other.get() != &from)
      other->abort_gather(why, rank);
  }
}

}  // namespace sluice::reducer
