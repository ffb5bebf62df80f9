#include "gpu_client/engine/membership/view_follower.h"

#include <algorithm>
#include <string_view>
#include <utility>

#include "core/assert.h"

namespace sluice::engine {
namespace {

std::vector<uint64_t> ids_of(const wire::View& view) {
  std::vector<uint64_t> ids;
  for (const wire::ViewReducer& r : view.reducers) ids.push_back(r.id);
  return ids;
}

// A rank stops changing its rate at this version, so that losses and additions can still be counted.
constexpr uint16_t kMaxVersionOfRates = 60'000;

bool strictly_ascending(const std::vector<uint64_t>& ids) {
  return std::ranges::adjacent_find(ids, std::ranges::greater_equal()) == ids.end();
}

}  // namespace

ViewFollower::ViewFollower(wire::View first)
    : first_(std::move(first)),
      history_(ids_of(first_)),
      last_answered_(history_),
      accepted_(history_),
      view_(first_),
      view_hash_(wire::view_hash(view_)) {
  for (const wire::ViewReducer& r : first_.reducers)
    reducers_[r.id] = {.lanes = r.lanes,
                       .weight = r.weight,
                       .rate = r.rate,
                       .host_rank = r.host_rank,
                       .address = {},
                       .joined = true};
}

bool ViewFollower::add(uint64_t id, const config::Endpoint& address) {
  if (!history_.add(id)) return false;
  ReducerState& state = reducers_[id];
  state.address = address;
  state.weight = address.weight;
  return true;
}

bool ViewFollower::change_rate(uint32_t rank, uint64_t rate) {
  if (history_.version() >= kMaxVersionOfRates) return false;
  wire::RateChange change{.rank = rank, .sequence = 1, .rate = rate};
  for (const wire::RateChange& known : history_.rate_changes()) {
    if (known.rank == rank) change.sequence = static_cast<uint16_t>(known.sequence + 1);
  }
  return history_.change_rate(change);
}

std::optional<Error> ViewFollower::on_rate_changes(uint64_t from, const wire::RateChanges& message) {
  const auto changes = wire::read_rate_changes(message, static_cast<uint32_t>(first_.worker_rates.size()));
  if (!changes) return Error{Errc::kBadField, "RATE_CHANGES has rates that no rank of the session can have"};
  wire::MembershipHistory offered;
  std::vector<wire::RateChange>& rates = reducers_.at(from).offered_rates;
  for (const auto& list : {rates, *changes}) {
    for (const wire::RateChange& change : list) offered.change_rate(change);
  }
  rates = offered.rate_changes();
  return std::nullopt;
}

bool ViewFollower::set_joined(uint64_t id, uint16_t lanes, uint64_t link_rate) {
  ReducerState& state = reducers_.at(id);
  state.lanes = lanes;
  state.rate = link_rate;
  state.joined = true;
  if (wire::slots_per_lane(first_.window_bytes, first_.slot_bytes, lanes) > wire::kMaxSlots) return false;
  // Shares by rates fit any table, if placement can divide by the rates.
  if (!first_.worker_rates.empty()) return link_rate == 0 || wire::is_link_rate(link_rate);
  uint64_t weights = 0;
  uint64_t most_lanes = 0;
  for (const auto& [other, reducer] : reducers_) {
    if (!reducer.joined || history_.is_removed(other)) continue;
    weights += reducer.weight;
    most_lanes = std::max<uint64_t>(most_lanes, reducer.lanes);
  }
  return weights * most_lanes <= wire::kMaxPlacement;
}

Result<std::vector<std::optional<config::Endpoint>>> ViewFollower::parse_addresses(
    const wire::ViewQuery& query) const {
  std::vector<std::optional<config::Endpoint>> out;
  if (query.added.empty() && query.addresses.empty()) return out;
  std::string_view left = query.addresses;
  for (;;) {
    const size_t comma = left.find(',');
    const std::string_view item = left.substr(0, comma);
    if (item.empty()) {
      out.emplace_back();
    } else {
      auto parsed = config::parse_endpoints(item);
      if (!parsed) return fail(Errc::kBadField, "VIEW_QUERY has a malformed address: " + parsed.error().text);
      out.emplace_back(std::move(parsed->front()));
    }
    if (comma == std::string_view::npos) break;
    left.remove_prefix(comma + 1);
  }
  if (out.size() == query.added.size()) return out;
  return fail(Errc::kBadField, "VIEW_QUERY has " + std::to_string(out.size()) + " addresses for " +
                                   std::to_string(query.added.size()) + " added reducers");
}

Result<wire::MembershipHistory> ViewFollower::parse_query(uint64_t from, const wire::ViewQuery& query) const {
  if (!strictly_ascending(query.removed) || !strictly_ascending(query.added) ||
      !strictly_ascending(query.confirmed) || !std::ranges::includes(query.added, query.confirmed))
    return fail(Errc::kBadField, "VIEW_QUERY lists reducers out of order");
  if (history_.first().size() + query.added.size() > wire::kMaxReducers)
    return fail(Errc::kTooMany,
                "VIEW_QUERY lists more than " + std::to_string(wire::kMaxReducers) + " reducers");
  wire::MembershipHistory proposed(history_.first());
  for (const uint64_t id : query.added) {
    if (!proposed.add(id)) return fail(Errc::kBadField, "VIEW_QUERY adds a reducer of the first view");
  }
  for (const uint64_t id : query.removed) proposed.remove(id);
  for (const uint64_t id : query.confirmed) proposed.confirm(id);
  if (const auto sender = reducers_.find(from); sender != reducers_.end()) {
    for (const wire::RateChange& change : sender->second.offered_rates) proposed.change_rate(change);
  }
  if (proposed.exceeds_versions()) return fail(Errc::kTooMany, "VIEW_QUERY has more changes than versions");
  if (proposed.version() != query.version) {
    return fail(Errc::kBadView, "VIEW_QUERY has version " + std::to_string(query.version) + ", expected " +
                                    std::to_string(proposed.version()) + " for its reducers");
  }
  if (proposed.arbiter() != from)
    return fail(Errc::kUnexpectedMessage,
                "VIEW_QUERY comes from a reducer that is not the arbiter of its view");
  return proposed;
}

bool ViewFollower::is_covered_by(const wire::MembershipHistory& proposed) const {
  return proposed.covers(last_answered_) && std::ranges::includes(proposed.removed(), history_.removed()) &&
         std::ranges::includes(proposed.confirmed(), history_.confirmed());
}

ViewFollower::Query ViewFollower::on_query(uint64_t from, const wire::ViewQuery& query) {
  using Step = Query::Step;
  const auto violation = [](Error error) {
    return Query{.close = {}, .join = {}, .violation = std::move(error)};
  };
  auto proposed = parse_query(from, query);
  if (!proposed) return violation(std::move(proposed.error()));
  auto addresses = parse_addresses(query);
  if (!addresses) return violation(std::move(addresses.error()));

  const bool covered = is_covered_by(*proposed);
  history_.merge(*proposed);
  for (size_t i = 0; i < query.added.size(); ++i) {
    ReducerState& state = reducers_[query.added[i]];
    if (!(*addresses)[i]) continue;
    // The arbiter's weights win, because every rank has received them and the view's hash depends on them.
    state.address = (*addresses)[i];
    state.weight = state.address->weight;
  }
  if (!covered) return {.step = Step::kSendKnown, .close = {}, .join = {}};
  if (accepted_.covers(*proposed)) {
    const bool again = accepted_ == *proposed && answers_.contains(query.version);
    return {.step = again ? Step::kRepeatAnswer : Step::kIgnore, .close = {}, .join = {}};
  }

  Query q{.step = Step::kAccept, .close = {}, .join = {}};
  for (auto& [id, state] : reducers_) {
    if (proposed->is_removed(id) && !state.closed) {
      state.closed = true;
      q.close.push_back(id);
    } else if (proposed->is_active(id) && !state.joined) {
      q.join.push_back({.id = id, .address = state.address});
    }
  }
  accepted_ = std::move(*proposed);
  return q;
}

std::optional<wire::ViewAnswer> ViewFollower::answer(uint64_t first_unfinished) {
  if (accepted_.version() == 0 || !is_covered_by(accepted_)) return std::nullopt;
  for (const uint64_t id : accepted_.ids())
    SLUICE_ASSERT(accepted_.is_removed(id) || reducers_.at(id).joined);
  const uint16_t version = accepted_.version();
  const auto [entry, first_time] = answers_.try_emplace(version, SentAnswer{.arbiter = *accepted_.arbiter()});
  if (first_time) {
    entry->second.hash = wire::view_hash(make_view(accepted_));
    last_answered_ = accepted_;
  }
  return wire::ViewAnswer{
      .version = version, .view_hash = entry->second.hash, .first_unfinished_chunk = first_unfinished};
}

ViewFollower::Commit ViewFollower::on_commit(uint64_t from, const wire::ViewCommit& commit,
                                             uint64_t first_unfinished, uint64_t depth) {
  const auto violation = [&](Errc code, const std::string& cause) {
    return Commit{.violation = {code, "VIEW_COMMIT of view " + std::to_string(commit.version) + " " + cause}};
  };
  const auto found = answers_.find(commit.version);
  if (found == answers_.end())
    return violation(Errc::kBadView, "is for a query that this rank never answered");
  if (found->second.arbiter != from)
    return violation(Errc::kUnexpectedMessage, "comes from a reducer that sent no such query");
  if (found->second.hash != commit.view_hash)
    return violation(Errc::kMismatch, "has another hash than this rank's answer");
  // The commit is a repetition, or this rank has accepted a newer query. It may have answered that query with
  // its first unfinished chunk, so it must not continue and overwrite results that it reported as held.
  if (commit.version <= view_.version || commit.version != accepted_.version())
    return {.step = Commit::Step::kIgnore};
  if (commit.base_chunk > first_unfinished) {
    return violation(Errc::kBadSequence, "restarts at chunk " + std::to_string(commit.base_chunk) +
                                             ", but this rank has no result of chunk " +
                                             std::to_string(first_unfinished));
  }
  if (first_unfinished - commit.base_chunk > depth) {
    return violation(Errc::kBadSequence, "restarts at chunk " + std::to_string(commit.base_chunk) +
                                             ", but this rank is at chunk " +
                                             std::to_string(first_unfinished) + " and keeps " +
                                             std::to_string(depth) + " results");
  }
  view_ = make_view(accepted_);
  view_hash_ = found->second.hash;
  base_ = commit.base_chunk;
  for (const uint64_t id : accepted_.added())
    if (accepted_.is_active(id)) history_.confirm(id);
  return {.step = Commit::Step::kRestart};
}

wire::View ViewFollower::make_view(const wire::MembershipHistory& history) const {
  wire::View view;
  view.version = history.version();
  view.window_bytes = first_.window_bytes;
  view.slot_bytes = first_.slot_bytes;
  view.worker_rates = first_.worker_rates;
  for (const wire::RateChange& change : history.rate_changes()) view.worker_rates[change.rank] = change.rate;
  for (const uint64_t id : history.ids()) {
    const ReducerState& state = reducers_.at(id);
    const bool alive = !history.is_removed(id);
    // A rank that could not reach an added reducer knows neither its lanes nor its rate, yet all hashes must
    // be equal.
    const bool known_to_all = alive || !std::ranges::binary_search(history.added(), id);
    view.reducers.push_back({.id = id,
                             .lanes = known_to_all ? state.lanes : uint16_t{0},
                             .weight = known_to_all ? state.weight : uint16_t{0},
                             .alive = alive,
                             .rate = known_to_all ? state.rate : 0,
                             .host_rank = state.host_rank});
  }
  return view;
}

wire::ViewKnown ViewFollower::known_changes() const {
  wire::ViewKnown known;
  known.removed = history_.removed();
  known.added = history_.added();
  known.confirmed = history_.confirmed();
  for (size_t i = 0; i < known.added.size(); ++i) {
    if (i > 0) known.addresses += ',';
    // Nobody needs the address of a removed one, and a long session has many, for which there is no room.
    if (history_.is_removed(known.added[i])) continue;
    const auto& address = reducers_.at(known.added[i]).address;
    if (!address) continue;
    const std::string text = config::to_string(*address);
    // An omitted address is only unknown to the receivers; a truncated one would be malformed.
    const size_t commas_left = known.added.size() - 1 - i;
    if (known.addresses.size() + text.size() + commas_left <= wire::kMaxAddresses) known.addresses += text;
  }
  return known;
}

std::optional<Error> ViewFollower::fatal_error() const {
  if (!history_.arbiter()) return Error{Errc::kReducerLost, "no reducer of the session is left"};
  const size_t most = std::max(history_.removed().size(), history_.added().size());
  if (most > wire::kMaxViewChange || history_.first().size() + history_.added().size() > wire::kMaxReducers)
    return Error{Errc::kTooMany, "more reducers were added and removed than a view change can carry"};
  return std::nullopt;
}

}  // namespace sluice::engine
