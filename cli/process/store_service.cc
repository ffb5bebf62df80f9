#include "cli/process/store_service.h"

#include <sys/random.h>
#include <sys/resource.h>
#include <unistd.h>

#include <array>
#include <filesystem>
#include <span>
#include <utility>

#include "config/endpoints.h"
#include "config/host/host_limits.h"
#include "config/host/writable_path.h"
#include "core/assert.h"
#include "core/log.h"
#include "gpu_client/engine/join/handshake.h"
#include "store/coordinator/etcd/etcd_coordinator.h"
#include "store/coordinator/sqlite/sqlite_coordinator.h"
#include "store/server/store_server.h"
#include "transport/tcp/address.h"
#include "wire/handshake.h"

namespace sluice::cli {
namespace {

std::string announced_address(const std::string& announce, const std::string& listen_host, uint16_t port) {
  std::string host = announce.empty() ? listen_host : announce;
  if (const auto given = config::parse_endpoints(announce);
      !announce.empty() && given && given->size() == 1 && announce.find(':') != std::string::npos)
    return announce;
  if (host.empty() || host == "0.0.0.0" || host == "::") {
    std::array<char, 256> name{};
    if (::gethostname(name.data(), name.size() - 1) == 0) host = name.data();
  }
  return transport::tcp::endpoint_text(host, port);
}

Result<std::shared_ptr<store::Coordinator>> open_coordinator(const StoreServiceOptions& options) {
  Result<std::unique_ptr<store::Coordinator>> opened;
  if (options.coordinator.empty()) {
    opened = store::SqliteCoordinator::open(options.folder + "/coordinator.sqlite");
  } else {
    const auto etcd = store::parse_etcd_url(options.coordinator);
    if (!etcd) return tl::unexpected(etcd.error());
    opened = store::EtcdCoordinator::make(*etcd);
  }
  if (!opened) return tl::unexpected(opened.error());
  return std::shared_ptr<store::Coordinator>(std::move(*opened));
}

Result<transport::tcp::Socket> connect_to_store(const engine::Identity& identity, const std::string& address,
                                                Nanos deadline) {
  const auto endpoint = config::parse_endpoints(address);
  if (!endpoint || endpoint->size() != 1)
    return fail(Errc::kBadField, "a reducer announces \"" + address + "\"");
  const std::string name = engine::reducer_name(endpoint->front());
  auto socket = engine::connect_once(endpoint->front(), identity, deadline);
  if (!socket) return add_context(name, socket.error());
  auto handshake = engine::perform_handshake(std::move(*socket), endpoint->front(), name, identity,
                                             wire::Purpose::kStore, 0, 0, deadline);
  if (!handshake) return tl::unexpected(handshake.error());
  const wire::StoreRequest request{.mac = engine::client_proof(*handshake, 0)};
  auto ready = engine::send_request<wire::StoreReady>(*handshake, request, deadline);
  if (!ready) return tl::unexpected(ready.error());
  return std::move(handshake->socket);
}

store::BudgetOptions budgets() {
  rlimit descriptors{};
  const bool is_known = ::getrlimit(RLIMIT_NOFILE, &descriptors) == 0;
  return store::BudgetOptions::for_descriptors(is_known ? descriptors.rlim_cur : 1024);
}

uint64_t memory_limit(const StoreServiceOptions& options) {
  return options.memory_limit != 0 ? options.memory_limit : config::host_limits().memory_bytes / 4;
}

}  // namespace

StoreService::StoreService(StoreServiceOptions options)
    : options_(std::move(options)),
      monitor_(std::make_shared<store::ModelMonitor>(memory_limit(options_),
                                                     options_.budgets ? *options_.budgets : budgets())) {}
StoreService::~StoreService() {
  stop();
}

void StoreService::attach(reducer::ReducerOptions& options) {
  if (options_.folder.empty()) return;
  options.admit_store = [monitor = monitor_](const std::string& job, const std::string& tenant) {
    return monitor->budgets().take_connection(job, tenant);
  };
  options.on_store_connection = [this](transport::tcp::Socket socket, const std::string& peer,
                                       const std::string& job, uint64_t features,
                                       std::shared_ptr<void> place) {
    const std::scoped_lock lock(mutex_);
    if (server_) server_->adopt(std::move(socket), peer, job, features, std::move(place));
  };
  options.models_status = [monitor = monitor_](size_t max_bytes) { return monitor->status_json(max_bytes); };
  options.on_bound = [this] { return open(); };
  options.models_use = [monitor = monitor_] {
    return reducer::ModelsUse{.clients = monitor->clients(), .has_pushes = monitor->has_pushes()};
  };
}

Result<void> StoreService::check() const {
  if (options_.folder.empty()) return {};
  if (!options_.coordinator.empty()) SLUICE_RETURN_IF_ERROR(store::parse_etcd_url(options_.coordinator));
  return config::check_writable_folder(options_.folder);
}

Result<void> StoreService::open() {
  std::error_code error;
  std::filesystem::create_directories(options_.folder, error);
  if (error) return fail(Errc::kSystem, "cannot create " + options_.folder + ": " + error.message());
  auto coordinator = open_coordinator(options_);
  if (!coordinator) return add_context("--state " + options_.folder, coordinator.error());
  coordinator_ = std::move(*coordinator);
  return {};
}

Result<void> StoreService::start(const reducer::ReducerOptions& reducer, uint16_t port,
                                 std::function<bool()> is_stopping) {
  if (options_.folder.empty()) return {};
  std::optional<config::SecretFile> keys;
  if (!reducer.key_file.empty()) {
    SLUICE_ASSIGN_OR_RETURN(read, reducer::read_pool_keys(reducer, false));
    keys = read;
  }
  SLUICE_ASSIGN_OR_RETURN(tls, read_tls(reducer));
  use(std::move(tls), keys);
  const std::string address = announced_address(options_.announce, reducer.listen_host, port);
  auto started = store::StoreServer::start(
      {.folder = options_.folder,
       .address = address,
       .is_stopping = std::move(is_stopping),
       .coordinator = std::move(coordinator_),
       .connect = [this](const std::string& to,
                         Nanos deadline) { return connect_to_store(*identity(), to, deadline); },
       .log = [](const std::string& line) { log::warn(line); },
       .monitor = monitor_,
       .deadlines = options_.deadlines});
  if (!started) return add_context("--state " + options_.folder, started.error());
  log::info("models in " + options_.folder + ", announced as " + address);
  const std::scoped_lock lock(mutex_);
  server_ = std::move(*started);
  return {};
}

// As this reducer serves TLS. It has no option for the authority of the others: SLUICE_TLS_CA.
Result<std::shared_ptr<const engine::TlsSettings>> StoreService::read_tls(
    const reducer::ReducerOptions& reducer) const {
  if (options_.folder.empty()) return std::shared_ptr<const engine::TlsSettings>();
  const bool has_tls = reducer.tls != reducer::TlsMode::kOff;
  return engine::read_tls_settings({.tls = !has_tls                               ? "off"
                                           : reducer.tls == reducer::TlsMode::kOn ? "on"
                                                                                  : "require",
                                    .tls_cert = reducer.tls_files.certificate.c_str(),
                                    .tls_key = reducer.tls_files.key.c_str()});
}

void StoreService::use(std::shared_ptr<const engine::TlsSettings> tls,
                       const std::optional<config::SecretFile>& keys) {
  // Of the pool's keys only: a job's token is not enough.
  const auto token_of = [](const config::Secret& key) {
    return wire::job_token(std::as_bytes(std::span(key)), wire::kReducerJob);
  };
  auto identity = std::make_shared<engine::Identity>();
  const ssize_t random = ::getrandom(identity->session.bytes.data(), identity->session.bytes.size(), 0);
  SLUICE_ASSERT(random == static_cast<ssize_t>(identity->session.bytes.size()));
  identity->ranks = 1;
  identity->job = wire::kReducerJob;
  identity->tls = std::move(tls);
  if (keys) identity->token = token_of(keys->secret);
  if (keys && keys->old_secret) identity->old_token = token_of(*keys->old_secret);
  const std::scoped_lock lock(mutex_);
  identity_ = std::move(identity);
}

std::shared_ptr<const engine::Identity> StoreService::identity() const {
  const std::scoped_lock lock(mutex_);
  return identity_;
}

void StoreService::stop() noexcept {
  std::unique_ptr<store::StoreServer> server;
  {
    const std::scoped_lock lock(mutex_);
    server = std::move(server_);
  }
}

}  // namespace sluice::cli
