#include "store/server/store_server.h"

#include <sys/eventfd.h>
#include <sys/random.h>
#include <unistd.h>

#include <filesystem>
#include <fstream>
#include <utility>

#include "config/output_file.h"
#include "core/clock.h"
#include "store/model/memory_needed.h"
#include "store/server/store_connection.h"
#include "transport/tcp/socket_options.h"
#include "wire/handshake.h"

namespace sluice::store {

uint64_t random_id() {
  uint64_t id = 0;
  while (id == 0) {
    if (::getrandom(&id, sizeof id, 0) != sizeof id) id = 0;
    id &= (uint64_t{1} << 53) - 1;  // exact in the numbers of every JSON reader
  }
  return id;
}

Result<StoreId> read_store_id(const std::string& folder) {
  const std::string path = folder + "/store-id";
  StoreId id = kNoStore;
  if (std::ifstream in(path); in >> id) return id;
  // A new identity would give up the shards of the old one.
  if (std::error_code unknown; std::filesystem::exists(path, unknown) || unknown)
    return fail(Errc::kSystem, "cannot read " + path);
  id = random_id();
  SLUICE_RETURN_IF_ERROR(config::write_output_file(path, std::to_string(id) + "\n"));
  return id;
}

StoreServer::StoreServer(StoreOptions options, StoreId id)
    : options_(std::move(options)),
      id_(id),
      interrupt_fd_(::eventfd(0, EFD_CLOEXEC | EFD_NONBLOCK)),
      started_(monotonic_now()) {}

Result<std::unique_ptr<StoreServer>> StoreServer::start(StoreOptions options) {
  const auto id = read_store_id(options.folder);
  if (!id) return tl::unexpected(id.error());
  std::unique_ptr<StoreServer> server(new StoreServer(std::move(options), *id));
  if (server->interrupt_fd_ < 0) return fail(Errc::kSystem, "no descriptor left");
  const auto names = server->at_start([&] { return server->options_.coordinator->list(kModelKeys); });
  if (!names) return add_context("the coordinator", names.error());
  for (const Entry& entry : names->entries) {
    const auto known = server->at_start([&] { return server->read(entry.key.substr(kModelKeys.size())); });
    if (!known) return tl::unexpected(known.error());
    if (*known) SLUICE_RETURN_IF_ERROR(server->take(**known));
  }
  server->log_unknown_folders(*names);
  SLUICE_RETURN_IF_ERROR(server->at_start([&] { return server->announce(); }));
  server->renewal_ = std::thread([s = server.get()] { s->renew_lease(); });
  server->membership_ = std::thread([s = server.get()] { s->run_membership(); });
  return server;
}

// The coordinator may be started at the same time, or be slow on a busy machine.
template <typename Call>
auto StoreServer::at_start(const Call& call) -> decltype(call()) {
  const Nanos deadline = started_ + options_.start_timeout;
  for (bool is_first = true;; is_first = false) {
    auto result = call();
    if (result || !is_unavailable(result.error()) || monotonic_now() >= deadline) return result;
    if (options_.is_stopping && options_.is_stopping())
      return fail(Errc::kShutdown, "stopped before the coordinator answered");
    if (is_first) options_.log("waiting for the coordinator: " + result.error().text);
    std::this_thread::sleep_for(std::chrono::milliseconds(100));
  }
}

// A model that was deleted while this reducer was down. Its files stay: the coordinator may be the wrong one.
void StoreServer::log_unknown_folders(const Listing& models) const {
  std::set<std::string> known;
  for (const Entry& entry : models.entries) {
    if (const auto record = parse_record(entry)) known.insert(model_folder(record->id));
  }
  std::error_code error;
  for (const auto& file : std::filesystem::directory_iterator(options_.folder, error)) {
    const std::string path = file.path().string();
    if (file.path().filename().string().starts_with("model-") && !known.contains(path))
      options_.log(path + " is of no model in the coordinator; delete it if the model was deleted");
  }
}

StoreServer::~StoreServer() {
  is_stopping_ = true;
  const uint64_t one = 1;
  static_cast<void>(::write(interrupt_fd_, &one, sizeof one));
  if (renewal_.joinable()) renewal_.join();
  if (membership_.joinable()) membership_.join();
  if (lease_ != kNoLease) static_cast<void>(options_.coordinator->revoke(lease_));
  std::map<uint64_t, Model> models;
  {
    const std::scoped_lock lock(mutex_);
    models.swap(models_);
  }
  for (auto& [model, entry] : models) {
    if (entry.leader) entry.leader->end();
    entry.hosted->end();
  }
  connections_.join();
  if (interrupt_fd_ >= 0) ::close(interrupt_fd_);
}

void StoreServer::adopt(transport::tcp::Socket socket, const std::string& peer, const std::string& job,
                        uint64_t features, std::shared_ptr<void> place) noexcept {
  if (is_stopping_) return;
  try {
    transport::tcp::enable_keepalive(socket.fd());  // the machine of an idle client may be gone
    const Deadlines& limits = options_.deadlines;
    const transport::tcp::BodyLimits body{.frame = limits.of(ConnectionState::kReceiving),
                                          .time = limits.body,
                                          .slowest_rate = limits.body_rate};
    auto channel = std::make_shared<MessageChannel>(std::move(socket), interrupt_fd_, body);
    connections_.start([this, channel, peer, job, features, place = std::move(place)] {
      serve_store_connection(*this, *channel, peer, job, features, options_.log);
    });
  } catch (const std::exception& e) {
    options_.log("cannot serve models to " + peer + ": " + e.what());
  }
}

std::string StoreServer::model_folder(uint64_t model) const {
  return options_.folder + "/model-" + std::to_string(model);
}

// ---- models ----

Result<std::optional<StoreServer::Known>> StoreServer::read(const std::string& name) {
  auto entry = options_.coordinator->get(model_key(name));
  if (!entry) return add_context("the coordinator", entry.error());
  if (!*entry) return std::optional<Known>();
  auto record = parse_record(**entry);
  if (!record) return tl::unexpected(record.error());
  auto state_entry = options_.coordinator->get(state_key(name));
  if (!state_entry) return add_context("the coordinator", state_entry.error());
  if (!*state_entry) return std::optional<Known>();  // its creator has stopped in between, or is about to
  auto state = parse_state(**state_entry);
  if (!state) return tl::unexpected(state.error());
  if (state->model != 0 && state->model != record->id) return std::optional<Known>();
  return std::optional<Known>({std::move(*record), std::move(*state)});
}

Result<void> StoreServer::take(const Known& known, Shards shards) {
  // One that was deleted, and created again. Before the locks, because it waits for the end of a leader.
  drop([&](const HostedModel& model) {
    return model.spec().name == known.record.spec.name && model.id() != known.record.id;
  });
  // Declared before the locks, so that no request waits for the end of its thread.
  std::shared_ptr<StepLeader> ended;
  const std::scoped_lock taking(take_mutex_);
  std::shared_ptr<HostedModel> hosted;
  {
    const std::scoped_lock lock(mutex_);
    if (const auto found = models_.find(known.record.id); found != models_.end())
      hosted = found->second.hosted;
  }
  if (hosted) {
    SLUICE_RETURN_IF_ERROR(hosted->apply(known.state));
  } else {
    const auto is_here = [&](const ShardHolders& s) { return s.owner == id_ || s.copy == id_; };
    if (shards == Shards::kHere && std::ranges::none_of(known.state.shards, is_here)) return {};
    const std::string folder = model_folder(known.record.id);
    std::error_code error;
    std::filesystem::create_directories(folder, error);
    if (error) return fail(Errc::kSystem, "cannot create " + folder + ": " + error.message());
    auto opened = HostedModel::open(folder, id_, known.record, known.state, options_.monitor->budget(),
                                    [this](StoreId store) { return connect_to(store); });
    if (!opened) return tl::unexpected(opened.error());
    hosted = std::move(*opened);
    options_.monitor->add(hosted->counters());
  }
  const bool leads = hosted->is_owner(0) && known.state.is_started;
  const std::scoped_lock lock(mutex_);
  Model& model = models_[known.record.id];
  model.hosted = hosted;
  if (!model.held) {
    const auto needed = memory_needed(hosted->spec(), hosted->layout(), kExpectedWorkers);
    model.held = budgets().hold_model(hosted->job(), needed.files());
  }
  if (model.leader && (!leads || model.leader->has_ended())) {
    model.leader->end();
    ended = std::exchange(model.leader, nullptr);
  }
  if (leads && !model.leader) {
    model.leader = std::make_shared<StepLeader>(
        hosted, *options_.coordinator, [this](StoreId store) { return connect_to(store); }, options_.log);
  }
  return {};
}

std::shared_ptr<HostedModel> StoreServer::model_here(uint64_t model) {
  const std::scoped_lock lock(mutex_);
  const auto found = models_.find(model);
  return found == models_.end() ? nullptr : found->second.hosted;
}

std::shared_ptr<StepLeader> StoreServer::leader_here(uint64_t model) {
  const std::scoped_lock lock(mutex_);
  const auto found = models_.find(model);
  const bool leads =
      found != models_.end() && found->second.leader != nullptr && !found->second.leader->has_ended();
  return leads ? found->second.leader : nullptr;
}

Result<std::shared_ptr<HostedModel>> StoreServer::find(uint64_t model) {
  for (int attempt = 0; attempt < 2; ++attempt) {
    if (auto found = model_here(model)) return found;
    if (attempt == 0) SLUICE_RETURN_IF_ERROR(refresh(model));
  }
  return fail(Errc::kUnknownSession, "no model with id " + std::to_string(model) + " is on this reducer");
}

Result<std::shared_ptr<StepLeader>> StoreServer::find_leader(uint64_t model) {
  for (int attempt = 0; attempt < 2; ++attempt) {
    if (auto found = leader_here(model)) return found;
    if (attempt == 0) SLUICE_RETURN_IF_ERROR(refresh(model));
  }
  return fail(Errc::kBadView, "this reducer does not lead the model");
}

std::optional<bool> StoreServer::is_started(uint64_t model) {
  const std::scoped_lock lock(mutex_);
  const auto found = models_.find(model);
  if (found == models_.end()) return std::nullopt;
  return found->second.hosted->state().is_started;
}

Result<std::shared_ptr<HostedModel>> StoreServer::find_for_copy(uint64_t model) {
  if (auto found = find(model)) return found;
  SLUICE_RETURN_IF_ERROR(refresh(model, Shards::kComing));
  return find(model);
}

Result<void> StoreServer::refresh(uint64_t model, Shards shards) {
  std::string name;
  {
    const std::scoped_lock lock(mutex_);
    if (const auto found = models_.find(model); found != models_.end())
      name = found->second.hosted->spec().name;
  }
  if (!name.empty()) {
    const auto known = read(name);
    if (!known) return tl::unexpected(known.error());
    return *known ? take(**known, shards) : Result<void>();
  }
  const auto names = options_.coordinator->list(kModelKeys);
  if (!names) return add_context("the coordinator", names.error());
  for (const Entry& entry : names->entries) {
    const auto record = parse_record(entry);
    if (!record || record->id != model) continue;
    const auto known = read(record->spec.name);
    if (!known) return tl::unexpected(known.error());
    if (*known) return take(**known, shards);
  }
  return {};
}

Result<std::map<StoreId, std::string>> StoreServer::live_stores() {
  const auto listed = options_.coordinator->list(kStoreKeys);
  if (!listed) return add_context("the coordinator", listed.error());
  std::map<StoreId, std::string> live;
  for (const Entry& entry : listed->entries)
    live[std::strtoull(entry.key.c_str() + kStoreKeys.size(), nullptr, 10)] = entry.value;
  return live;
}

Result<MessageChannel> StoreServer::connect_to(StoreId store) {
  const auto live = live_stores();
  if (!live) return tl::unexpected(live.error());
  const auto found = live->find(store);
  if (found == live->end()) return fail(Errc::kReset, "reducer " + std::to_string(store) + " is not running");
  return connect_to(found->second, monotonic_now() + 5 * kSecond);
}

Result<MessageChannel> StoreServer::connect_to(const std::string& address, Nanos deadline) {
  auto socket = options_.connect(address, deadline);
  if (!socket) return tl::unexpected(socket.error());
  transport::tcp::enable_keepalive(socket->fd());  // answers may take long
  return MessageChannel(std::move(*socket), interrupt_fd_);
}

}  // namespace sluice::store
