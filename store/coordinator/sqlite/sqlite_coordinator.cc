#include "store/coordinator/sqlite/sqlite_coordinator.h"

#include "config/printable_text.h"
#include "core/clock.h"
#include "store/coordinator/key_range.h"

namespace sluice::store {
namespace {

Entry entry_of(const sqlite::Statement& row) {
  return {.key = row.bytes(0), .value = row.bytes(1), .revision = row.integer(2), .lease = row.integer(3)};
}

}  // namespace

Result<std::unique_ptr<Coordinator>> SqliteCoordinator::open(const std::string& path) {
  auto database = sqlite::Database::open(path);
  if (!database) return add_context("coordinator", std::move(database.error()));
  std::unique_ptr<SqliteCoordinator> coordinator(new SqliteCoordinator(std::move(*database)));
  SLUICE_RETURN_IF_ERROR(coordinator->read_state());
  return coordinator;
}

// Times of another process mean nothing here, so every lease begins anew.
Result<void> SqliteCoordinator::read_state() {
  SLUICE_ASSIGN_OR_RETURN(state, database_->prepare("SELECT revision FROM state"));
  SLUICE_ASSIGN_OR_RETURN(has_state, state.step());
  if (!has_state) return fail(Errc::kMismatch, "coordinator: the file has no revision");
  revision_ = state.integer(0);
  SLUICE_ASSIGN_OR_RETURN(leases, database_->prepare("SELECT id, ttl FROM leases"));
  for (;;) {
    SLUICE_ASSIGN_OR_RETURN(has_lease, leases.step());
    if (!has_lease) return {};
    leases_[leases.integer(0)] = {.ttl = leases.integer(1), .expiry = monotonic_now() + leases.integer(1)};
  }
}

Result<std::optional<Entry>> SqliteCoordinator::find(std::string_view key) {
  SLUICE_ASSIGN_OR_RETURN(
      row, database_->prepare("SELECT key, value, revision, lease FROM entries WHERE key = ?"));
  SLUICE_ASSIGN_OR_RETURN(has_row, row.bind_text(key).step());
  return has_row ? std::optional(entry_of(row)) : std::nullopt;
}

Result<std::optional<Entry>> SqliteCoordinator::get(std::string_view key) {
  SLUICE_RETURN_IF_ERROR(check_key(key));
  const std::lock_guard lock(mutex_);
  SLUICE_RETURN_IF_ERROR(end_expired_leases());
  return find(key);
}

Result<Listing> SqliteCoordinator::list(std::string_view prefix) {
  SLUICE_RETURN_IF_ERROR(check_key(prefix));
  const std::lock_guard lock(mutex_);
  SLUICE_RETURN_IF_ERROR(end_expired_leases());
  const std::string end = prefix_end(prefix);
  SLUICE_ASSIGN_OR_RETURN(row, database_->prepare("SELECT key, value, revision, lease FROM entries "
                                                  "WHERE key >= ? AND key < ? ORDER BY key"));
  row.bind_text(prefix).bind_text(end);
  Listing listing{.entries = {}, .revision = revision_};
  for (;;) {
    SLUICE_ASSIGN_OR_RETURN(has_row, row.step());
    if (!has_row) return listing;
    if (listing.entries.size() == kMaxListEntries)
      return fail(Errc::kTooMany, "more than " + std::to_string(kMaxListEntries) + " keys start with " +
                                      config::in_quotes(prefix));
    listing.entries.push_back(entry_of(row));
  }
}

Result<ChangeResult> SqliteCoordinator::create(std::string_view key, std::string_view value, LeaseId lease) {
  SLUICE_RETURN_IF_ERROR(check_key(key));
  SLUICE_RETURN_IF_ERROR(check_value(key, value));
  return make({.key = key, .expected = 0, .value = value, .lease = lease});
}

Result<ChangeResult> SqliteCoordinator::compare_and_swap(std::string_view key, Revision expected,
                                                         std::string_view value, LeaseId lease) {
  SLUICE_RETURN_IF_ERROR(check_key(key));
  SLUICE_RETURN_IF_ERROR(check_revision(key, expected));
  SLUICE_RETURN_IF_ERROR(check_value(key, value));
  return make({.key = key, .expected = expected, .value = value, .lease = lease});
}

Result<ChangeResult> SqliteCoordinator::remove(std::string_view key, Revision expected) {
  SLUICE_RETURN_IF_ERROR(check_key(key));
  SLUICE_RETURN_IF_ERROR(check_revision(key, expected));
  return make({.key = key, .expected = expected, .value = std::nullopt, .lease = kNoLease});
}

}  // namespace sluice::store
