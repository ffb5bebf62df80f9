// SqliteCoordinator: changes and leases.
#include "core/clock.h"
#include "store/coordinator/sqlite/sqlite_coordinator.h"

namespace sluice::store {

Result<ChangeResult> SqliteCoordinator::make(const Change& change) {
  const std::lock_guard lock(mutex_);
  SLUICE_RETURN_IF_ERROR(end_expired_leases());
  SLUICE_ASSIGN_OR_RETURN(current, find(change.key));
  ChangeResult result{.outcome = Outcome::kDone, .entry = std::nullopt, .revision = revision_};
  const Revision present = current ? current->revision : 0;
  if (present != change.expected) {
    result.outcome = current ? Outcome::kConflict : Outcome::kNotFound;
    result.entry = std::move(current);
    return result;
  }
  if (change.lease != kNoLease && !leases_.contains(change.lease)) {
    result.outcome = Outcome::kLeaseEnded;
    return result;
  }
  const Revision revision = revision_ + 1;
  SLUICE_ASSIGN_OR_RETURN(transaction, sqlite::Transaction::begin(*database_));
  SLUICE_RETURN_IF_ERROR(write(change, revision));
  SLUICE_RETURN_IF_ERROR(write_revision(revision));
  SLUICE_RETURN_IF_ERROR(transaction.commit());
  revision_ = revision;
  result.revision = revision;
  if (change.value)
    result.entry = Entry{.key = std::string(change.key),
                         .value = std::string(*change.value),
                         .revision = revision,
                         .lease = change.lease};
  return result;
}

Result<void> SqliteCoordinator::write(const Change& change, Revision revision) {
  if (change.value) {
    SLUICE_ASSIGN_OR_RETURN(entry, database_->prepare("REPLACE INTO entries VALUES (?, ?, ?, ?)"));
    entry.bind_text(change.key).bind_blob(*change.value).bind(revision).bind(change.lease);
    SLUICE_RETURN_IF_ERROR(entry.step());
  } else {
    SLUICE_ASSIGN_OR_RETURN(entry, database_->prepare("DELETE FROM entries WHERE key = ?"));
    SLUICE_RETURN_IF_ERROR(entry.bind_text(change.key).step());
  }
  return {};
}

Result<void> SqliteCoordinator::write_revision(Revision revision) {
  SLUICE_ASSIGN_OR_RETURN(state, database_->prepare("UPDATE state SET revision = ?"));
  SLUICE_RETURN_IF_ERROR(state.bind(revision).step());
  return {};
}

Result<Lease> SqliteCoordinator::grant(Nanos ttl) {
  SLUICE_RETURN_IF_ERROR(check_ttl(ttl));
  const auto rounded = static_cast<Nanos>(round_up(static_cast<uint64_t>(ttl), kSecond));
  const std::lock_guard lock(mutex_);
  SLUICE_ASSIGN_OR_RETURN(row, database_->prepare("INSERT INTO leases (ttl) VALUES (?) RETURNING id"));
  SLUICE_ASSIGN_OR_RETURN(has_row, row.bind(rounded).step());
  if (!has_row) return database_->error("add a lease to");
  const LeaseId id = row.integer(0);
  SLUICE_RETURN_IF_ERROR(row.step());  // completes the statement, which commits it
  leases_[id] = {.ttl = rounded, .expiry = monotonic_now() + rounded};
  return Lease{.id = id, .ttl = rounded};
}

Result<bool> SqliteCoordinator::keep_alive(LeaseId lease) {
  const std::lock_guard lock(mutex_);
  SLUICE_RETURN_IF_ERROR(end_expired_leases());
  const auto found = leases_.find(lease);
  if (found == leases_.end()) return false;
  found->second.expiry = monotonic_now() + found->second.ttl;
  return true;
}

Result<void> SqliteCoordinator::revoke(LeaseId lease) {
  const std::lock_guard lock(mutex_);
  SLUICE_RETURN_IF_ERROR(end_expired_leases());
  return leases_.contains(lease) ? end_lease(lease) : Result<void>{};
}

Result<void> SqliteCoordinator::end_expired_leases() {
  const Nanos now = monotonic_now();
  std::vector<LeaseId> expired;
  for (const auto& [id, times] : leases_)
    if (times.expiry <= now) expired.push_back(id);
  for (const LeaseId id : expired) SLUICE_RETURN_IF_ERROR(end_lease(id));
  return {};
}

// All keys of the lease are removed with one revision. A lease without keys changes no revision.
Result<void> SqliteCoordinator::end_lease(LeaseId lease) {
  const Revision revision = revision_ + 1;
  SLUICE_ASSIGN_OR_RETURN(transaction, sqlite::Transaction::begin(*database_));
  SLUICE_ASSIGN_OR_RETURN(
      entry, database_->prepare("DELETE FROM entries WHERE lease = ? AND lease != 0 RETURNING key"));
  entry.bind(lease);
  bool had_keys = false;
  for (;;) {  // the last step completes the statement
    SLUICE_ASSIGN_OR_RETURN(has_row, entry.step());
    if (!has_row) break;
    had_keys = true;
  }
  if (had_keys) SLUICE_RETURN_IF_ERROR(write_revision(revision));
  SLUICE_ASSIGN_OR_RETURN(row, database_->prepare("DELETE FROM leases WHERE id = ?"));
  SLUICE_RETURN_IF_ERROR(row.bind(lease).step());
  SLUICE_RETURN_IF_ERROR(transaction.commit());
  leases_.erase(lease);
  if (had_keys) revision_ = revision;
  return {};
}

}  // namespace sluice::store
