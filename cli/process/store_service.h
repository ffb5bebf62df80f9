// Class StoreService runs the models of `sluice reducer --state DIR` beside its reducer.
#pragma once

#include <cstdint>
#include <functional>
#include <memory>
#include <mutex>
#include <optional>
#include <string>

#include "config/secret_file.h"
#include "core/result.h"
#include "reducer/reducer.h"
#include "store/server/limits/model_budgets.h"
#include "transport/tcp/socket.h"

namespace sluice::engine {
struct Identity;
struct TlsSettings;
}  // namespace sluice::engine

namespace sluice::store {
class Coordinator;
class ModelMonitor;
class StoreServer;
}  // namespace sluice::store

namespace sluice::cli {

struct StoreServiceOptions {
  std::string folder = {};       // empty: no models
  std::string coordinator = {};  // "etcd://host:port,..."; empty: a file in `folder`, for one reducer alone
  std::string announce = {};     // host or host:port; empty: the address of --listen, or the host's name
  uint64_t memory_limit = 0;     // bytes; 0: a quarter of config::host_limits()
  std::optional<store::BudgetOptions> budgets = {};  // nothing: by the process's limit of descriptors
  store::Deadlines deadlines = {};
};

class StoreService {
 public:
  explicit StoreService(StoreServiceOptions options);
  StoreService(const StoreService&) = delete;
  StoreService& operator=(const StoreService&) = delete;
  ~StoreService();

  // To be called before Reducer::start() with these options: the reducer then calls open(), gives its
  // connections of models to this object, which must outlive it, and shows the models in its status.
  // Connections before start() are closed.
  void attach(reducer::ReducerOptions& options);
  // Whether the folder can be written. Changes nothing.
  [[nodiscard]] Result<void> check() const;
  // Opens the folder and the coordinator, when the reducer has its port: without it, another one may use
  // them.
  [[nodiscard]] Result<void> open();
  // Serves the models. `reducer`: the options that it runs with. `is_stopping` ends the wait for the
  // coordinator (kShutdown).
  [[nodiscard]] Result<void> start(const reducer::ReducerOptions& reducer, uint16_t port,
                                   std::function<bool()> is_stopping = {});
  // The TLS with which this reducer connects to others; null: none. Changes nothing. Errors: the files.
  [[nodiscard]] Result<std::shared_ptr<const engine::TlsSettings>> read_tls(
      const reducer::ReducerOptions& reducer) const;
  // Connects with these from now on; connections that are open stay. No keys: no authentication. Any thread.
  void use(std::shared_ptr<const engine::TlsSettings> tls, const std::optional<config::SecretFile>& keys);
  // Ends all connections, and the lease: other reducers take over at once.
  void stop() noexcept;

 private:
  [[nodiscard]] std::shared_ptr<const engine::Identity> identity() const;

  const StoreServiceOptions options_;
  const std::shared_ptr<store::ModelMonitor> monitor_;
  std::shared_ptr<store::Coordinator> coordinator_;   // from open() to start()
  mutable std::mutex mutex_;                          // guards all below
  std::shared_ptr<const engine::Identity> identity_;  // as which it connects to other reducers
  std::unique_ptr<store::StoreServer> server_;
};

}  // namespace sluice::cli
