#include "reducer/control/view_change.h"

#include <algorithm>
#include <string_view>
#include <utility>

namespace sluice::reducer {
namespace {

// One per id, "" for those not known; nothing when there are not as many as ids.
std::optional<std::vector<std::string>> split_addresses(const std::string& text, size_t ids) {
  std::vector<std::string> parts;
  if (text.empty()) return std::vector<std::string>(ids);
  for (size_t begin = 0; begin <= text.size();) {
    const size_t end = std::min(text.find(',', begin), text.size());
    parts.push_back(text.substr(begin, end - begin));
    begin = end + 1;
  }
  if (parts.size() != ids) return std::nullopt;
  return parts;
}

}  // namespace

ViewChange::ViewChange(uint64_t own, uint32_t ranks, std::vector<uint64_t> reducers, bool came_later)
    : own_(own), roster_(std::move(reducers)), placed_(!came_later), ranks_(ranks) {
  find_arbiter();
}

ViewChange::Step ViewChange::start() {
  started_ = true;
  return due_ ? grown() : Step::kNothing;
}

ViewChange::Step ViewChange::suspect(uint64_t reducer) {
  if (!roster_.remove(reducer)) return Step::kNothing;
  due_ = true;
  return grown();
}

ViewChange::Step ViewChange::known(const wire::RosterChange& change) {
  const auto addresses = split_addresses(change.addresses, change.added.size());
  if (!addresses || !std::ranges::is_sorted(change.added) || !std::ranges::is_sorted(change.seated))
    return Step::kMalformed;
  // Of this reducer's own coming it is told when the ranks have taken it up, along with all that came and
  // went before it: that needs no proposal of its own, or ranks would be asked for what they have carried
  // out.
  const bool newly_placed = !placed_ && std::ranges::binary_search(change.added, own_);
  if (newly_placed) take_base(change);
  bool grew = newly_placed;
  for (size_t i = 0; i < change.added.size(); ++i) {
    const uint64_t id = change.added[i];
    if (roster_.add(id)) {
      grew = true;
      if (!newly_placed || !std::ranges::binary_search(change.seated, id)) due_ = true;
    }
    if (!(*addresses)[i].empty() && std::ranges::binary_search(roster_.added(), id))
      addresses_.emplace(id, (*addresses)[i]);
  }
  for (const uint64_t id : change.removed) {
    if (!roster_.remove(id)) continue;
    grew = true;
    if (!newly_placed) due_ = true;
  }
  // A seat is no reason to propose; but ranks answer no proposal that lacks one.
  for (const uint64_t id : change.seated) {
    if (!roster_.seat(id)) continue;
    grew = true;
    if (query_) due_ = true;
  }
  if (std::max(roster_.added().size(), roster_.seated().size()) > wire::kMaxViewChange ||
      address_text().size() > wire::kMaxAddresses)
    return Step::kTooMany;
  return grew ? grown() : Step::kNothing;
}

// Those of JOIN that were added are moved behind the first view's.
void ViewChange::take_base(const wire::RosterChange& change) {
  std::vector<uint64_t> first = roster_.first();
  std::erase_if(first,
                [&](uint64_t id) { return std::ranges::find(change.added, id) != change.added.end(); });
  wire::Roster placed(std::move(first));
  placed.merge(roster_);
  roster_ = std::move(placed);
  placed_ = true;
}

void ViewChange::find_arbiter() {
  arbiter_ = placed_ && roster_.arbiter() == own_;
}

ViewChange::Step ViewChange::grown() {
  find_arbiter();
  if (removed()) {
    query_.reset();
    commit_.reset();
  }
  if (roster_.removed().size() > wire::kMaxViewChange) return Step::kTooMany;
  if (!started_) return Step::kNothing;
  if (placed_ && !roster_.arbiter()) return Step::kNoneLeft;
  return arbiter_ && due_ ? propose() : Step::kNothing;
}

std::string ViewChange::address_text() const {
  std::string text;
  for (const uint64_t id : roster_.added()) {
    if (id != roster_.added().front()) text += ',';
    if (roster_.removed(id)) continue;
    if (const auto known = addresses_.find(id); known != addresses_.end()) text += known->second;
  }
  return text;
}

ViewChange::Step ViewChange::propose() {
  due_ = false;
  wire::ViewQuery& query = query_.emplace();
  query.removed = roster_.removed();
  query.added = roster_.added();
  query.seated = roster_.seated();
  query.addresses = address_text();
  query.version = roster_.version();
  for (RankState& r : ranks_) r.first_unfinished.reset();
  first_answerer_ = wire::kNoRank;
  return Step::kPropose;
}

ViewChange::Step ViewChange::answer(uint32_t rank, const wire::ViewAnswer& answer) {
  RankState& r = ranks_[rank];
  if (!query_ || answer.version != query_->version || r.gone) return Step::kNothing;
  if (first_answerer_ == wire::kNoRank) {
    first_answerer_ = rank;
    answered_hash_ = answer.view_hash;
  } else if (answer.view_hash != answered_hash_) {
    return Step::kMismatch;
  }
  // The first one stays valid, whatever the rank has received since.
  if (!r.first_unfinished) r.first_unfinished = answer.first_unfinished_chunk;
  return commit_if_answered();
}

ViewChange::Step ViewChange::gone(uint32_t rank) {
  if (std::exchange(ranks_[rank].gone, true)) return Step::kNothing;
  return commit_if_answered();
}

ViewChange::Step ViewChange::commit_if_answered() {
  if (!query_) return Step::kNothing;
  std::optional<uint64_t> base;
  for (const RankState& r : ranks_) {
    if (r.gone) continue;
    if (!r.first_unfinished) return Step::kNothing;
    base = std::min(base.value_or(*r.first_unfinished), *r.first_unfinished);
  }
  if (!base) return Step::kNothing;  // all have left: nobody is there to change views
  commit_ = {.version = query_->version, .view_hash = answered_hash_, .base_chunk = *base};
  query_.reset();
  return Step::kCommit;
}

bool ViewChange::others_live() const {
  return std::ranges::any_of(roster_.ids(), [&](uint64_t id) { return id != own_ && !roster_.removed(id); });
}

}  // namespace sluice::reducer
