#include "gpu_client/engine/view_follower.h"

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

bool strictly_ascending(const std::vector<uint64_t>& ids) {
  return std::ranges::adjacent_find(ids, std::ranges::greater_equal()) == ids.end();
}

}  // namespace

ViewFollower::ViewFollower(wire::View first)
    : first_(std::move(first)),
      roster_(ids_of(first_)),
      agreed_(roster_),
      pending_(roster_),
      view_(first_),
      view_hash_(wire::view_hash(view_)) {
  for (const wire::ViewReducer& r : first_.reducers)
    places_[r.id] = {.lanes = r.lanes, .weight = r.weight, .address = {}, .joined = true};
}

bool ViewFollower::suspect(uint64_t id) {
  return roster_.remove(id);
}

bool ViewFollower::add(uint64_t id, const config::Endpoint& address) {
  if (!roster_.add(id)) return false;
  Place& p = places_[id];
  p.address = address;
  p.weight = address.weight;
  return true;
}

bool ViewFollower::joined(uint64_t id, uint16_t lanes) {
  Place& p = places_.at(id);
  p.lanes = lanes;
  p.joined = true;
  if (wire::slots_per_lane(first_.window_bytes, first_.slot_bytes, lanes) > wire::kMaxSlots) return false;
  uint64_t weights = 0;
  uint64_t most_lanes = 0;
  for (const auto& [other, place] : places_) {
    if (!place.joined || roster_.removed(other)) continue;
    weights += place.weight;
    most_lanes = std::max<uint64_t>(most_lanes, place.lanes);
  }
  return weights * most_lanes <= wire::kMaxPlacement;
}

Result<std::vector<std::optional<config::Endpoint>>> ViewFollower::read_addresses(
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
      if (!parsed)
        return fail(Errc::kBadField,
                    "its VIEW_QUERY tells something else than an address: " + parsed.error().text);
      out.emplace_back(std::move(parsed->front()));
    }
    if (comma == std::string_view::npos) break;
    left.remove_prefix(comma + 1);
  }
  if (out.size() == query.added.size()) return out;
  return fail(Errc::kBadField, "its VIEW_QUERY tells " + std::to_string(out.size()) + " addresses of " +
                                   std::to_string(query.added.size()) + " added reducers");
}

Result<wire::Roster> ViewFollower::read(uint64_t from, const wire::ViewQuery& query) const {
  if (!strictly_ascending(query.removed) || !strictly_ascending(query.added) ||
      !strictly_ascending(query.seated) || !std::ranges::includes(query.added, query.seated))
    return fail(Errc::kBadField, "its VIEW_QUERY names reducers out of order");
  if (roster_.first().size() + query.added.size() > wire::kMaxReducers)
    return fail(Errc::kTooMany, "its VIEW_QUERY names too many reducers");
  wire::Roster proposed(roster_.first());
  for (const uint64_t id : query.added) {
    if (!proposed.add(id)) return fail(Errc::kBadField, "its VIEW_QUERY adds a reducer of the first view");
  }
  for (const uint64_t id : query.removed) proposed.remove(id);
  for (const uint64_t id : query.seated) proposed.seat(id);
  if (proposed.version() != query.version) {
    return fail(Errc::kBadView, "its VIEW_QUERY is numbered " + std::to_string(query.version) +
                                    ", its reducers make it " + std::to_string(proposed.version()));
  }
  if (proposed.arbiter() != from)
    return fail(Errc::kUnexpectedMessage, "its VIEW_QUERY makes another reducer the arbiter");
  return proposed;
}

bool ViewFollower::covered_by(const wire::Roster& proposed) const {
  return proposed.covers(agreed_) && std::ranges::includes(proposed.removed(), roster_.removed()) &&
         std::ranges::includes(proposed.seated(), roster_.seated());
}

ViewFollower::Query ViewFollower::on_query(uint64_t from, const wire::ViewQuery& query) {
  using Step = Query::Step;
  const auto breach = [](Error why) { return Query{.close = {}, .join = {}, .breach = std::move(why)}; };
  auto proposed = read(from, query);
  if (!proposed) return breach(std::move(proposed.error()));
  auto addresses = read_addresses(query);
  if (!addresses) return breach(std::move(addresses.error()));

  const bool covered = covered_by(*proposed);
  roster_.merge(*proposed);
  for (size_t i = 0; i < query.added.size(); ++i) {
    Place& p = places_[query.added[i]];
    if (!(*addresses)[i]) continue;
    // Weights are part of the hash: the arbiter's word counts, since every rank has heard it.
    p.address = (*addresses)[i];
    p.weight = p.address->weight;
  }
  if (!covered) return {.step = Step::kTell, .close = {}, .join = {}};
  if (pending_.covers(*proposed)) {
    const bool again = pending_ == *proposed && answered_.contains(query.version);
    return {.step = again ? Step::kAnswer : Step::kNothing, .close = {}, .join = {}};
  }

  Query q{.step = Step::kTakeUp, .close = {}, .join = {}};
  for (auto& [id, place] : places_) {
    if (proposed->removed(id) && !place.closed) {
      place.closed = true;
      q.close.push_back(id);
    } else if (proposed->living(id) && !place.joined) {
      q.join.push_back({.id = id, .address = place.address});
    }
  }
  pending_ = std::move(*proposed);
  return q;
}

std::optional<wire::ViewAnswer> ViewFollower::answer(uint64_t first_unfinished) {
  if (pending_.version() == 0 || !covered_by(pending_)) return std::nullopt;
  for (const uint64_t id : pending_.ids()) SLUICE_ASSERT(pending_.removed(id) || places_.at(id).joined);
  const uint16_t version = pending_.version();
  const auto [entry, first_time] = answered_.try_emplace(version, Answered{.arbiter = *pending_.arbiter()});
  if (first_time) {
    entry->second.hash = wire::view_hash(view_of(pending_));
    agreed_ = pending_;
  }
  return wire::ViewAnswer{
      .version = version, .view_hash = entry->second.hash, .first_unfinished_chunk = first_unfinished};
}

ViewFollower::Commit ViewFollower::on_commit(uint64_t from, const wire::ViewCommit& commit,
                                             uint64_t first_unfinished, uint64_t depth) {
  const auto breach = [&](Errc code, const std::string& why) {
    return Commit{.breach = {code, "its VIEW_COMMIT of view " + std::to_string(commit.version) + " " + why}};
  };
  const auto found = answered_.find(commit.version);
  if (found == answered_.end()) return breach(Errc::kBadView, "was never answered by this rank");
  if (found->second.arbiter != from)
    return breach(Errc::kUnexpectedMessage, "comes from a reducer that did not ask for it");
  if (found->second.hash != commit.view_hash)
    return breach(Errc::kMismatch, "has another hash than this rank's answer");
  // Said again; or overtaken. Who has taken up a newer query may have told there from which chunk on it holds
  // results: it must not go on, and let go of them.
  if (commit.version <= view_.version || commit.version != pending_.version())
    return {.step = Commit::Step::kIgnore};
  if (commit.base_chunk > first_unfinished) {
    return breach(Errc::kBadSequence, "restarts at chunk " + std::to_string(commit.base_chunk) +
                                          ", this rank has no result of " + std::to_string(first_unfinished));
  }
  if (first_unfinished - commit.base_chunk > depth) {
    return breach(Errc::kBadSequence, "restarts at chunk " + std::to_string(commit.base_chunk) +
                                          ", this rank is at " + std::to_string(first_unfinished) +
                                          " and keeps " + std::to_string(depth) + " results");
  }
  view_ = view_of(pending_);
  view_hash_ = found->second.hash;
  base_ = commit.base_chunk;
  for (const uint64_t id : pending_.added())
    if (pending_.living(id)) roster_.seat(id);
  return {.step = Commit::Step::kCarryOut};
}

wire::View ViewFollower::view_of(const wire::Roster& roster) const {
  wire::View view;
  view.version = roster.version();
  view.window_bytes = first_.window_bytes;
  view.slot_bytes = first_.slot_bytes;
  for (const uint64_t id : roster.ids()) {
    const Place& p = places_.at(id);
    const bool alive = !roster.removed(id);
    // A rank that could not reach an added reducer never knew its lanes, and all must come to the same hash.
    const bool known_to_all = alive || !std::ranges::binary_search(roster.added(), id);
    view.reducers.push_back({.id = id,
                             .lanes = known_to_all ? p.lanes : uint16_t{0},
                             .weight = known_to_all ? p.weight : uint16_t{0},
                             .alive = alive});
  }
  return view;
}

wire::ViewKnown ViewFollower::known() const {
  wire::ViewKnown known;
  known.removed = roster_.removed();
  known.added = roster_.added();
  known.seated = roster_.seated();
  for (size_t i = 0; i < known.added.size(); ++i) {
    if (i > 0) known.addresses += ',';
    const auto& address = places_.at(known.added[i]).address;
    if (!address) continue;
    const std::string text = config::to_string(*address);
    // One that is left out is unknown to who hears it; a text that is cut would be malformed.
    const size_t commas_to_come = known.added.size() - 1 - i;
    if (known.addresses.size() + text.size() + commas_to_come <= wire::kMaxAddresses) known.addresses += text;
  }
  return known;
}

std::optional<Error> ViewFollower::hopeless() const {
  if (!roster_.arbiter()) return Error{Errc::kReducerLost, "no reducer of the session is left"};
  const size_t most = std::max(roster_.removed().size(), roster_.added().size());
  if (most > wire::kMaxViewChange || roster_.first().size() + roster_.added().size() > wire::kMaxReducers)
    return Error{Errc::kTooMany, "more reducers came and went than a view change can tell"};
  return std::nullopt;
}

}  // namespace sluice::engine
