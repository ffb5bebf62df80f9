// Class SqliteCoordinator keeps the coordinator's map in a file, for a reducer that is alone.
//
// A change is on the disk before its call returns. Threads share one lock, and calls block for as long as the
// disk needs. Leases end by the monotonic clock of this process: a call finds that one has ended.
#pragma once

#include <map>
#include <mutex>
#include <optional>

#include "store/coordinator/coordinator.h"
#include "store/coordinator/sqlite/database.h"

namespace sluice::store {

class SqliteCoordinator final : public Coordinator {
 public:
  // Opens or creates the file `path`. Only one process can have it open. Errors: sqlite::Database::open().
  [[nodiscard]] static Result<std::unique_ptr<Coordinator>> open(const std::string& path);

  [[nodiscard]] Result<std::optional<Entry>> get(std::string_view key) override;
  [[nodiscard]] Result<Listing> list(std::string_view prefix) override;
  [[nodiscard]] Result<ChangeResult> create(std::string_view key, std::string_view value,
                                            LeaseId lease) override;
  [[nodiscard]] Result<ChangeResult> compare_and_swap(std::string_view key, Revision expected,
                                                      std::string_view value, LeaseId lease) override;
  [[nodiscard]] Result<ChangeResult> remove(std::string_view key, Revision expected) override;
  [[nodiscard]] Result<Lease> grant(Nanos ttl) override;
  [[nodiscard]] Result<bool> keep_alive(LeaseId lease) override;
  [[nodiscard]] Result<void> revoke(LeaseId lease) override;

 private:
  struct LeaseTimes {
    Nanos ttl = 0;
    Nanos expiry = 0;
  };
  struct Change {
    std::string_view key;
    Revision expected = 0;                  // 0: the key must not exist
    std::optional<std::string_view> value;  // none: remove the key
    LeaseId lease = kNoLease;
  };
  explicit SqliteCoordinator(std::unique_ptr<sqlite::Database> database) : database_(std::move(database)) {}

  // The rest requires mutex_.
  [[nodiscard]] Result<void> read_state();
  [[nodiscard]] Result<std::optional<Entry>> find(std::string_view key);
  [[nodiscard]] Result<ChangeResult> make(const Change& change);
  [[nodiscard]] Result<void> write(const Change& change, Revision revision);
  [[nodiscard]] Result<void> write_revision(Revision revision);
  [[nodiscard]] Result<void> end_expired_leases();
  [[nodiscard]] Result<void> end_lease(LeaseId lease);

  std::mutex mutex_;
  const std::unique_ptr<sqlite::Database> database_;
  std::map<LeaseId, LeaseTimes> leases_;
  Revision revision_ = 0;  // is on the disk
};

}  // namespace sluice::store
