#include "reducer/reducer.h"

#include <sched.h>
#include <unistd.h>

#include <algorithm>
#include <optional>

#include "config/name_list.h"
#include "core/log.h"
#include "reducer/control/conductor.h"
#include "reducer/lane/lane_thread.h"
#include "reducer/near_devices.h"
#include "reducer/security/key_store.h"
#include "transport/rdma/pairing.h"
#include "transport/rdma/rdma_context.h"
#include "transport/tcp/socket.h"
#include "transport/tcp/tcp_context.h"
#include "wire/view.h"

namespace sluice::reducer {
namespace {

constexpr int kBacklog = 1024;  // as many ranks may come at once; the host's net.core.somaxconn bounds it

cpu_set_t usable_processors() {
  cpu_set_t set;
  CPU_ZERO(&set);
  if (sched_getaffinity(0, sizeof set, &set) != 0) CPU_SET(0, &set);
  return set;
}

uint32_t count_of(const cpu_set_t& processors) {
  return static_cast<uint32_t>(std::max(1, CPU_COUNT(&processors)));
}

// Where lanes run; nothing: anywhere.
std::optional<NearProcessors> near_rails(const ReducerOptions& options, const RdmaOffer& offer) {
  if (!options.near_devices) return std::nullopt;
  std::vector<std::string> devices;
  for (const std::string& rail : offer.rails.names) devices.push_back(rail.substr(0, rail.find(' ')));
  auto near = processors_near(devices, usable_processors());
  if (near)
    log::info("threads run on NUMA node " + std::to_string(near->node) + ", where " + devices.front() +
              " is");
  return near;
}

uint64_t half_of_memory() {
  return static_cast<uint64_t>(sysconf(_SC_PHYS_PAGES)) * static_cast<uint64_t>(sysconf(_SC_PAGE_SIZE)) / 2;
}

bool is_loopback(const std::string& host) {
  return host == "localhost" || host == "::1" || host.rfind("127.", 0) == 0;
}

std::string bad_weight(const std::string& whose, uint32_t weight) {
  return "weight " + whose + " is " + std::to_string(weight) + ", not within 1 and " +
         std::to_string(kMaxWeight);
}

std::optional<Error> wrong_weights(const std::map<std::string, uint32_t>& weights, uint32_t default_weight) {
  const auto bad = [](const std::string& text) { return Error{Errc::kInvalidArgument, text}; };
  for (const auto& [tenant, weight] : weights) {
    if (tenant.empty() || tenant.size() > wire::kMaxJobText)
      return bad("a weight's tenant has 1 to " + std::to_string(wire::kMaxJobText) + " characters");
    if (std::ranges::any_of(tenant, [](char c) { return c < ' ' || c > '~'; }))
      return bad("a weight's tenant has printable ASCII characters");
    if (weight < 1 || weight > kMaxWeight) return bad(bad_weight("of tenant " + tenant, weight));
  }
  if (default_weight < 1 || default_weight > kMaxWeight)
    return bad(bad_weight("of the other tenants", default_weight));
  return std::nullopt;
}

// Options with which every session would be refused or lost at once.
std::optional<Error> unlivable(const ReducerOptions& o) {
  const auto bad = [](const std::string& text) { return Error{Errc::kInvalidArgument, text}; };
  const auto ms = [](Nanos time) { return std::to_string(time / kMillisecond) + " ms"; };
  if (auto error = wrong_weights(o.weights, o.default_weight)) return error;
  if (o.transport == config::LaneTransport::kRdma && o.tls == TlsMode::kRequire)
    return bad("with RDMA alone and TLS alone no lane can be served: RDMA is not encrypted");
  if (o.lanes_per_session == 0) return bad("lanes per session must be at least 1");
  if (o.max_slot_bytes < wire::kMinSlotBytes || o.max_slot_bytes > wire::kMaxPayload) {
    return bad("max slot bytes " + std::to_string(o.max_slot_bytes) + " is not within " +
               std::to_string(wire::kMinSlotBytes) + " and " + std::to_string(wire::kMaxPayload));
  }
  if (o.handshake_timeout <= 0) return bad("handshake timeout must be more than 0");
  if (o.frame_timeout <= 0) return bad("frame timeout must be more than 0");
  if (o.heartbeat < kMillisecond) return bad("heartbeat must be at least 1 ms");
  if (o.peer_timeout <= o.heartbeat) {
    return bad("peer timeout " + ms(o.peer_timeout) + " must be more than the heartbeat, " + ms(o.heartbeat));
  }
  if (o.absence_timeout <= 0) return bad("absence timeout must be more than 0");
  return std::nullopt;
}

std::unique_ptr<Lane> make_lane(std::unique_ptr<transport::tcp::TcpContext> context,
                                const ReducerOptions& options, FairPool& fair) {
  transport::tcp::TcpContext& tcp = *context;
  return std::make_unique<Lane>(
      std::move(context),
      [&tcp](transport::tcp::Socket socket, transport::Handler& handler,
             const transport::EndpointOptions& o) { return tcp.adopt(std::move(socket), handler, o); },
      LaneOptions{.frame_timeout = options.frame_timeout, .fair = &fair});
}

// Null: off.
Result<std::shared_ptr<const transport::tcp::TlsContext>> make_tls(TlsMode mode,
                                                                   const transport::tcp::TlsFiles& files,
                                                                   bool has_key) {
  if (mode == TlsMode::kOff) return std::shared_ptr<const transport::tcp::TlsContext>();
  if (files.certificate.empty() && (!has_key || !files.ca.empty())) {
    return fail(Errc::kInvalidArgument, files.ca.empty()
                                            ? "TLS needs a key file or a certificate to be known by"
                                            : "who wants certificates of workers needs one of its own");
  }
  return transport::tcp::TlsContext::make(true, files);
}

struct Secrets {
  KeyStore keys;
  std::shared_ptr<const transport::tcp::TlsContext> tls;
};

// All that is checked before anything is opened or started.
Result<Secrets> check(const ReducerOptions& options) {
  if (auto error = unlivable(options)) return tl::unexpected(std::move(*error));
  Secrets secrets;
  if (!options.key_file.empty()) {
    auto loaded = KeyStore::load(options.key_file);
    if (!loaded) return tl::unexpected(std::move(loaded.error()));
    secrets.keys = std::move(*loaded);
  } else if (!options.insecure && !is_loopback(options.listen_host)) {
    return fail(
        Errc::kInvalidArgument,
        "listening off loopback needs a key file (--key-file, made by sluice keygen; or --insecure, where "
        "everybody on the network is trusted)");
  }
  auto tls = make_tls(options.tls, options.tls_files, secrets.keys.has_key());
  if (!tls) return tl::unexpected(std::move(tls.error()));
  secrets.tls = std::move(*tls);
  return secrets;
}

// What is said of RDMA to workers that ask for it.
Result<RdmaOffer> look_for_rails(const ReducerOptions& options) {
  RdmaOffer offer;
  offer.only = options.transport == config::LaneTransport::kRdma;
  offer.choice.traffic_class = options.rdma_traffic_class;
  offer.choice.allows = config::port_filter(options.rdma_devices);
  offer.choice.gid_index = options.rdma_gid_index;
  if (options.transport == config::LaneTransport::kTcp) return offer;
  auto rails = transport::rdma::rails(offer.choice);
  if (rails) {
    offer.rails = std::move(*rails);
  } else if (offer.only) {
    return tl::unexpected(rails.error());
  } else {
    offer.why_none = rails.error().text;
  }
  return offer;
}

class RunningReducer final : public Reducer {
 public:
  RunningReducer(const ReducerOptions& options, int listen_fd, uint16_t port, KeyStore keys,
                 std::shared_ptr<const transport::tcp::TlsContext> tls, RdmaOffer rdma,
                 std::unique_ptr<FairPool> fair, std::vector<std::unique_ptr<LaneThread>> lanes,
                 std::unique_ptr<admin::HttpServer> http)
      : port_(port),
        tls_(options.tls),
        has_key_(keys.has_key()),
        fair_(std::move(fair)),
        lanes_(std::move(lanes)),
        conductor_(options, listen_fd, std::move(keys), std::move(tls), std::move(rdma), *fair_, lanes_),
        http_(std::move(http)) {
    for (const auto& lane : lanes_) lane->start();
    conductor_.start();
  }
  // Apart from the rest: not on the processors that the lanes have for themselves.
  void serve_http() {
    if (!http_) return;
    http_->start([this](std::function<void(std::string)> tell) { conductor_.ask_status(std::move(tell)); });
  }
  ~RunningReducer() override {
    conductor_.stop();
    (void)wait();
  }

  uint16_t port() const noexcept override { return port_; }
  uint16_t http_port() const noexcept override { return http_ ? http_->port() : uint16_t{0}; }
  uint64_t id() const noexcept override { return conductor_.id(); }
  void drain() noexcept override { conductor_.drain(); }
  void stop() noexcept override { conductor_.stop(); }
  ExitReason wait() override {
    const ExitReason reason = conductor_.join();
    for (const auto& lane : lanes_) lane->stop();
    return reason;
  }
  std::optional<std::vector<uint64_t>> turns(Nanos patience) override {
    if (!conductor_.answers(patience)) return std::nullopt;
    std::vector<uint64_t> all;
    for (const auto& lane : lanes_) all.push_back(lane->lane().counters().turns.get());
    return all;
  }
  Result<void> reconfigure(const ReloadableOptions& asked) override {
    ReloadableOptions options = asked;
    if (options.memory_limit == 0) options.memory_limit = half_of_memory();
    if (auto error = wrong_weights(options.weights, options.default_weight))
      return tl::unexpected(std::move(*error));
    auto tls = make_tls(tls_, options.tls_files, has_key_);
    if (!tls) return tl::unexpected(std::move(tls.error()));
    conductor_.reconfigure(std::move(options), std::move(*tls));
    return {};
  }
  std::string status_json() override { return conductor_.status_from_outside(); }

 private:
  const uint16_t port_;
  const TlsMode tls_;
  const bool has_key_;
  const std::unique_ptr<FairPool> fair_;
  std::vector<std::unique_ptr<LaneThread>> lanes_;
  Conductor conductor_;
  // Ends before the conductor, whose thread has ended before: it may call back no more.
  const std::unique_ptr<admin::HttpServer> http_;
};

}  // namespace

ReloadableOptions reloadable(const ReducerOptions& options) {
  return {.memory_limit = options.memory_limit,
          .session_memory_limit = options.session_memory_limit,
          .tenant_memory_limit = options.tenant_memory_limit,
          .weights = options.weights,
          .default_weight = options.default_weight,
          .tls_files = options.tls_files};
}

Result<void> check_options(const ReducerOptions& options) {
  auto secrets = check(options);
  if (!secrets) return tl::unexpected(std::move(secrets.error()));
  return {};
}

Result<std::unique_ptr<Reducer>> Reducer::start(const ReducerOptions& asked) {
  ReducerOptions options = asked;
  if (options.memory_limit == 0) options.memory_limit = half_of_memory();
  auto secrets = check(options);
  if (!secrets) return tl::unexpected(std::move(secrets.error()));
  auto rdma = look_for_rails(options);
  if (!rdma) return tl::unexpected(std::move(rdma.error()));
  const auto near = near_rails(options, *rdma);
  if (options.lanes == 0) options.lanes = count_of(near ? near->set : usable_processors());
  const transport::tcp::SocketOptions socket{.buffer_bytes = options.socket_buffer,
                                             .congestion_control = options.congestion_control,
                                             .local_address = {}};
  transport::tcp::AppliedOptions applied;
  auto listener =
      transport::tcp::listen_on(options.listen_host, options.listen_port, socket, kBacklog, &applied);
  if (!listener) return tl::unexpected(std::move(listener.error()));
  if (!applied.congestion_control_set) return fail(Errc::kInvalidArgument, applied.note);
  if (!applied.note.empty()) log::warn(applied.note);
  const auto port = transport::tcp::bound_port(listener->fd());
  if (!port) return tl::unexpected(port.error());

  std::unique_ptr<admin::HttpServer> http;
  if (options.http) {
    auto bound = admin::HttpServer::bind(*options.http, options.listen_host);
    if (!bound) return tl::unexpected(std::move(bound.error()));
    http = std::move(*bound);
  }

  auto fair = std::make_unique<FairPool>();
  std::vector<std::unique_ptr<LaneThread>> lanes;
  for (uint32_t i = 0; i < options.lanes; ++i) {
    auto context = transport::rdma::make_context();
    if (!context) return tl::unexpected(std::move(context.error()));
    lanes.push_back(std::make_unique<LaneThread>(make_lane(std::move(*context), options, *fair), options.idle,
                                                 options.spin));
  }
  std::unique_ptr<RunningReducer> running;
  {
    const StartThreadsOn there(near);
    running = std::make_unique<RunningReducer>(options, listener->release(), *port, std::move(secrets->keys),
                                               std::move(secrets->tls), std::move(*rdma), std::move(fair),
                                               std::move(lanes), std::move(http));
  }
  running->serve_http();
  return running;
}

}  // namespace sluice::reducer
