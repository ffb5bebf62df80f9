// Class EtcdCoordinator is the coordinator of several reducers: an etcd cluster of version 3.4 or later, over
// HTTP.
//
// Each change may compact etcd's history, also that of other users of the etcd: etcd keeps all of it
// otherwise, and refuses changes when its database is full.
//
// Threads that call at the same time use connections of their own. It does nothing until the first call, and
// has no threads, except one that waits for a slow name server.
#pragma once

#include "store/coordinator/coordinator.h"
#include "store/coordinator/etcd/etcd_client.h"
#include "store/coordinator/etcd/history_limit.h"

namespace sluice::store {

class EtcdCoordinator final : public Coordinator {
 public:
  // kInvalidArgument: no endpoint, or a root that is no valid key.
  [[nodiscard]] static Result<std::unique_ptr<Coordinator>> make(EtcdOptions options);

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
  explicit EtcdCoordinator(EtcdOptions options)
      : client_(options),
        root_(std::move(options.root)),
        history_(options.history, options.least_compacted) {}
  // A transaction that makes `change` if the key has the revision `expected`, or with 0 does not exist.
  [[nodiscard]] Result<ChangeResult> change_if(std::string_view key, Revision expected,
                                               std::optional<std::string_view> value, LeaseId lease);
  [[nodiscard]] Result<ChangeResult> read_change(const etcd::EtcdClient::Answer& answer) const;

  // Compacts the history if that is due. Without an answer, the next time.
  void limit_history(Revision revision);

  etcd::EtcdClient client_;
  const std::string root_;
  etcd::HistoryLimit history_;
};

}  // namespace sluice::store
