// Class StoreServer keeps models in a folder and serves them: `sluice reducer --state DIR`. It has one thread
// for each connection, one for each model that it leads, and two for its place among the reducers.
#pragma once

#include <atomic>
#include <cstdint>
#include <functional>
#include <map>
#include <memory>
#include <mutex>
#include <optional>
#include <set>
#include <string>
#include <thread>

#include "core/result.h"
#include "core/units.h"
#include "store/coordinator/coordinator.h"
#include "store/server/hosted_model.h"
#include "store/server/limits/connection_threads.h"
#include "store/server/limits/deadlines.h"
#include "store/server/limits/query_turns.h"
#include "store/server/model_monitor.h"
#include "store/server/peer_links.h"
#include "store/server/step_leader.h"
#include "transport/tcp/socket.h"

namespace sluice::store {

struct StoreOptions {
  std::string folder;                  // of the models and of this store's id; exists
  std::string address;                 // "host:port", where clients and other reducers reach this one
  Nanos lease_ttl = kSecond;           // after so long without a sign of life, others take over the shards
  Nanos absence = 5 * kSecond;         // the same for a reducer that was not seen since the start
  Nanos start_timeout = 60 * kSecond;  // for the coordinator to answer
  std::function<bool()> is_stopping;   // ends this wait: start() fails with kShutdown; null: never
  std::shared_ptr<Coordinator> coordinator;
  // Connects to another reducer, up to STORE_READY. kReset: no process listens there.
  std::function<Result<transport::tcp::Socket>(const std::string& address, Nanos deadline)> connect;
  std::function<void(const std::string&)> log;  // one line; any thread
  std::shared_ptr<ModelMonitor> monitor;        // with the memory limit and the budgets; not null
  Deadlines deadlines;                          // of connections
};

// A random id that every reader of JSON represents exactly; not 0.
[[nodiscard]] uint64_t random_id();
// The id in `folder`/store-id, which is created if it does not exist.
[[nodiscard]] Result<StoreId> read_store_id(const std::string& folder);

class StoreServer {
 public:
  // Opens the models and announces this store. Errors: of the files and of the coordinator.
  [[nodiscard]] static Result<std::unique_ptr<StoreServer>> start(StoreOptions options);
  StoreServer(const StoreServer&) = delete;
  StoreServer& operator=(const StoreServer&) = delete;
  // Ends all threads, and the lease: copies take over at once.
  ~StoreServer();

  [[nodiscard]] StoreId id() const noexcept { return id_; }
  [[nodiscard]] const Deadlines& deadlines() const noexcept { return options_.deadlines; }
  [[nodiscard]] ModelBudgets& budgets() const noexcept { return options_.monitor->budgets(); }
  [[nodiscard]] QueryTurns& query_turns() noexcept { return query_turns_; }
  // Serves an authenticated connection on a thread of its own. `job`: wire::kReducerJob if the peer is a
  // reducer. `features`: of HELLO. `place`: its place in the budgets, which returns with its end. Any thread.
  void adopt(transport::tcp::Socket socket, const std::string& peer, const std::string& job,
             uint64_t features, std::shared_ptr<void> place) noexcept;

  // ---- for connections ----
  // What this reducer knows already; null: nothing.
  [[nodiscard]] std::shared_ptr<HostedModel> model_here(uint64_t model);
  [[nodiscard]] std::shared_ptr<StepLeader> leader_here(uint64_t model);
  // The model with this id; kUnknownSession if it does not exist or no shard of it is here.
  [[nodiscard]] Result<std::shared_ptr<HostedModel>> find(uint64_t model);
  // The leader; kBadView if another reducer leads, kUnknownSession.
  [[nodiscard]] Result<std::shared_ptr<StepLeader>> find_leader(uint64_t model);
  [[nodiscard]] std::optional<bool> is_started(uint64_t model);
  // Answers of MODEL_QUERY, as JSON.
  [[nodiscard]] Result<std::string> describe(const std::string& name);
  [[nodiscard]] Result<std::string> create(const std::string& specification, const std::string& job);
  [[nodiscard]] Result<std::string> list();
  // kUnauthenticated: the model belongs to another job.
  [[nodiscard]] Result<void> remove(const std::string& name, const std::string& job);
  [[nodiscard]] Result<void> start_model(uint64_t model, uint64_t version);
  // Reads the model's state from the coordinator.
  [[nodiscard]] Result<void> refresh(uint64_t model) { return refresh(model, Shards::kHere); }
  // The model, opened for a copy of a shard if it is not here.
  [[nodiscard]] Result<std::shared_ptr<HostedModel>> find_for_copy(uint64_t model);

 private:
  struct Model {
    std::shared_ptr<HostedModel> hosted;
    std::shared_ptr<StepLeader> leader;  // null: another reducer leads, or the model is not started
    std::shared_ptr<void> held;          // its place in the budgets
  };
  struct Known {
    ModelRecord record;
    CoordinatedState state;
  };

  explicit StoreServer(StoreOptions options, StoreId id);
  // Calls the coordinator until it answers, the start has taken too long, or the reducer stops.
  template <typename Call>
  [[nodiscard]] auto at_start(const Call& call) -> decltype(call());
  void log_unknown_folders(const Listing& models) const;
  // What the coordinator knows of a model; nothing if there is none.
  [[nodiscard]] Result<std::optional<Known>> read(const std::string& name);
  // Opens a model of which shards are here, or are about to come, or gives it a newer state; starts its
  // leader.
  enum class Shards : uint8_t { kHere, kComing };
  [[nodiscard]] Result<void> take(const Known& known, Shards shards = Shards::kHere);
  [[nodiscard]] Result<std::map<StoreId, std::string>> live_stores();
  [[nodiscard]] Result<MessageChannel> connect_to(StoreId store);
  // The end of this server interrupts the connection.
  [[nodiscard]] Result<MessageChannel> connect_to(const std::string& address, Nanos deadline);
  // Writes the first state of a model, in place of one that is left from a deleted model.
  [[nodiscard]] Result<void> write_first_state(const std::string& name, const CoordinatedState& state);
  // Removes the state of a model whose record is gone, and what this reducer has of it. `model` 0: unknown.
  [[nodiscard]] Result<void> remove_state(const std::string& name, uint64_t model);
  // Ends the models for which `which` holds, and deletes their files.
  void drop(const std::function<bool(const HostedModel&)>& which);
  // Drops models that were deleted while another reducer was asked.
  [[nodiscard]] Result<void> drop_deleted(const Listing& states);
  [[nodiscard]] std::string model_folder(uint64_t model) const;
  [[nodiscard]] Result<std::string> answer(const Known& known, std::optional<bool> created);

  // ---- membership.cc: the thread of this store's place among the reducers ----
  // False when the server stops.
  [[nodiscard]] bool pause(Nanos time) const;
  void renew_lease();
  void run_membership();
  [[nodiscard]] Result<void> refresh(uint64_t model, Shards shards);
  [[nodiscard]] Result<void> take_and_supply(const Known& known);
  [[nodiscard]] Result<void> announce();
  [[nodiscard]] Result<void> check_holders();
  [[nodiscard]] Result<void> check_model(const Entry& entry, const std::map<StoreId, std::string>& live);
  [[nodiscard]] bool refuses_connections(StoreId store, const std::string& address);
  [[nodiscard]] bool is_gone(StoreId store, const std::map<StoreId, std::string>& live);
  [[nodiscard]] StoreId next_store(const std::map<StoreId, std::string>& live);
  void balance_owners(const HostedModel& hosted, const CoordinatedState& state,
                      const std::map<StoreId, std::string>& live, std::vector<ShardHolders>& shards);
  [[nodiscard]] Result<void> balance_copies(HostedModel& hosted, const CoordinatedState& state,
                                            const std::map<StoreId, std::string>& live);
  [[nodiscard]] std::shared_ptr<HostedModel> hosted_model(const std::string& name);
  // The holders after the loss of reducers, or the arrival of a copy; nothing to change: equal.
  [[nodiscard]] std::vector<ShardHolders> repaired(const std::string& name, const CoordinatedState& state,
                                                   const std::map<StoreId, std::string>& live);

  const StoreOptions options_;
  const StoreId id_;
  int interrupt_fd_;  // an eventfd, readable from the beginning of the end
  std::atomic<bool> is_stopping_{false};
  LeaseId lease_ = kNoLease;
  const Nanos started_;
  // Of the membership thread:
  std::set<StoreId> seen_;  // since the start
  // Connections without requests, whose end shows that of the peer.
  std::map<StoreId, MessageChannel> probes_;
  std::map<StoreId, bool> refuses_;  // results of this turn

  std::mutex take_mutex_;  // held while models are opened
  std::mutex mutex_;
  std::map<uint64_t, Model> models_;
  QueryTurns query_turns_;
  ConnectionThreads connections_;
  std::thread renewal_;
  std::thread membership_;
};

}  // namespace sluice::store
