#include "reducer/control/session/view_change.h"

#include <algorithm>
#include <utility>

namespace sluice::reducer {
namespace {

// One address per id, "" if unknown; nothing if the number of addresses differs from the number of ids.
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

ViewChange::ViewChange(uint64_t own, uint32_t ranks, std::vector<uint64_t> reducers,
                       bool joined_running_session)
    : own_(own),
      history_(std::move(reducers)),
      knows_initial_membership_(!joined_running_session),
      ranks_(ranks) {
  update_arbiter();
}

ViewChange::Step ViewChange::start() {
  started_ = true;
  return proposal_due_ ? on_history_changed() : Step::kNothing;
}

ViewChange::Step ViewChange::on_suspect(uint64_t reducer) {
  if (!history_.remove(reducer)) return Step::kNothing;
  proposal_due_ = true;
  return on_history_changed();
}

ViewChange::Step ViewChange::on_view_known(const wire::MembershipChange& change) {
  const auto addresses = split_addresses(change.addresses, change.added.size());
  if (!addresses || !std::ranges::is_sorted(change.added) || !std::ranges::is_sorted(change.confirmed))
    return Step::kMalformed;
  // The ranks report this reducer's addition after they have carried it out, with all earlier changes. That
  // needs no proposal: it would ask ranks for a view that is in force already.
  const bool reads_initial_membership =
      !knows_initial_membership_ && std::ranges::binary_search(change.added, own_);
  if (reads_initial_membership) read_initial_membership(change);
  bool has_changed = reads_initial_membership;
  for (size_t i = 0; i < change.added.size(); ++i) {
    const uint64_t id = change.added[i];
    if (history_.add(id)) {
      has_changed = true;
      if (!reads_initial_membership || !std::ranges::binary_search(change.confirmed, id))
        proposal_due_ = true;
    }
    if (!(*addresses)[i].empty() && std::ranges::binary_search(history_.added(), id))
      addresses_.emplace(id, (*addresses)[i]);
  }
  for (const uint64_t id : change.removed) {
    if (!history_.remove(id)) continue;
    has_changed = true;
    if (!reads_initial_membership) proposal_due_ = true;
  }
  // A confirmation alone needs no proposal, but ranks do not answer an open proposal that lacks one.
  for (const uint64_t id : change.confirmed) {
    if (!history_.confirm(id)) continue;
    has_changed = true;
    if (query_) proposal_due_ = true;
  }
  if (std::max(history_.added().size(), history_.confirmed().size()) > wire::kMaxViewChange ||
      address_text().size() > wire::kMaxAddresses)
    return Step::kTooMany;
  return has_changed ? on_history_changed() : Step::kNothing;
}

// Like a confirmation, a rate that arrives before the initial membership needs no proposal of its own: the
// ranks send the rates of their view to a reducer that they have added.
ViewChange::Step ViewChange::on_rate_changes(const wire::RateChanges& message) {
  const auto changes = wire::read_rate_changes(message, static_cast<uint32_t>(ranks_.size()));
  if (!changes) return Step::kMalformed;
  bool has_changed = false;
  for (const wire::RateChange& change : *changes) has_changed |= history_.change_rate(change);
  if (!has_changed) return Step::kNothing;
  if (knows_initial_membership_) proposal_due_ = true;
  return on_history_changed();
}

// Moves the added reducers of JOIN behind those of the first view.
void ViewChange::read_initial_membership(const wire::MembershipChange& change) {
  std::vector<uint64_t> first = history_.first();
  std::erase_if(first,
                [&](uint64_t id) { return std::ranges::find(change.added, id) != change.added.end(); });
  wire::MembershipHistory based(std::move(first));
  based.merge(history_);
  history_ = std::move(based);
  knows_initial_membership_ = true;
}

void ViewChange::update_arbiter() {
  is_arbiter_ = knows_initial_membership_ && history_.arbiter() == own_;
}

ViewChange::Step ViewChange::on_history_changed() {
  update_arbiter();
  if (is_removed()) {
    query_.reset();
    commit_.reset();
  }
  if (history_.removed().size() > wire::kMaxViewChange || history_.exceeds_versions()) return Step::kTooMany;
  if (!started_) return Step::kNothing;
  if (knows_initial_membership_ && !history_.arbiter()) return Step::kNoneLeft;
  return is_arbiter_ && proposal_due_ ? propose() : Step::kNothing;
}

std::string ViewChange::address_text() const {
  std::string text;
  for (const uint64_t id : history_.added()) {
    if (id != history_.added().front()) text += ',';
    if (history_.is_removed(id)) continue;
    if (const auto known = addresses_.find(id); known != addresses_.end()) text += known->second;
  }
  return text;
}

ViewChange::Step ViewChange::propose() {
  proposal_due_ = false;
  wire::ViewQuery& query = query_.emplace();
  query.removed = history_.removed();
  query.added = history_.added();
  query.confirmed = history_.confirmed();
  query.addresses = address_text();
  query.version = history_.version();
  query_rates_ = history_.rate_changes();
  for (RankState& r : ranks_) r.first_unfinished.reset();
  first_answered_rank_ = wire::kNoRank;
  return Step::kPropose;
}

ViewChange::Step ViewChange::on_view_answer(uint32_t rank, const wire::ViewAnswer& answer) {
  RankState& r = ranks_[rank];
  if (!query_ || answer.version != query_->version || r.has_left) return Step::kNothing;
  if (first_answered_rank_ == wire::kNoRank) {
    first_answered_rank_ = rank;
    answered_hash_ = answer.view_hash;
  } else if (answer.view_hash != answered_hash_) {
    return Step::kMismatch;
  }
  // The first answer stays valid, whatever results the rank has received since.
  if (!r.first_unfinished) r.first_unfinished = answer.first_unfinished_chunk;
  return commit_if_answered();
}

ViewChange::Step ViewChange::on_rank_left(uint32_t rank) {
  if (std::exchange(ranks_[rank].has_left, true)) return Step::kNothing;
  return commit_if_answered();
}

ViewChange::Step ViewChange::commit_if_answered() {
  if (!query_) return Step::kNothing;
  std::optional<uint64_t> base;
  for (const RankState& r : ranks_) {
    if (r.has_left) continue;
    if (!r.first_unfinished) return Step::kNothing;
    base = std::min(base.value_or(*r.first_unfinished), *r.first_unfinished);
  }
  if (!base) return Step::kNothing;  // every rank has left
  commit_ = {.version = query_->version, .view_hash = answered_hash_, .base_chunk = *base};
  query_.reset();
  return Step::kCommit;
}

bool ViewChange::has_other_reducers() const {
  return std::ranges::any_of(history_.ids(),
                             [&](uint64_t id) { return id != own_ && !history_.is_removed(id); });
}

}  // namespace sluice::reducer
