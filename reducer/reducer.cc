#include "reducer/reducer.h"

#include <sched.h>
#include <sys/socket.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <exception>
#include <optional>

#include "config/host/host_limits.h"
#include "config/name_list.h"
#include "reducer/control/control_loop.h"
#include "reducer/lane/lane_thread.h"
#include "reducer/numa_affinity.h"
#include "reducer/signal_block.h"
#include "transport/memory/memory_context.h"
#include "transport/rdma/pairing.h"
#include "transport/tcp/address.h"
#include "transport/tcp/connect.h"
#include "transport/tcp/link_rate.h"
#include "transport/tcp/socket.h"
#include "transport/tcp/tcp_context.h"
#include "wire/view.h"

namespace sluice::reducer {
namespace {

constexpr int kBacklog = 1024;  // for ranks that connect at the same time; net.core.somaxconn may lower it

cpu_set_t allowed_cpus() {
  cpu_set_t set;
  CPU_ZERO(&set);
  if (sched_getaffinity(0, sizeof set, &set) != 0) CPU_SET(0, &set);
  return set;
}

uint32_t count_of(const cpu_set_t& cpus) {
  return static_cast<uint32_t>(std::max(1, CPU_COUNT(&cpus)));
}

// The CPUs that the threads run on; nothing: all allowed ones.
std::optional<NumaCpus> cpus_near_rails(const ReducerOptions& options, const RdmaOffer& offer,
                                        const ReducerLog& log) {
  if (!options.use_device_numa_node) return std::nullopt;
  std::vector<std::string> devices;
  for (const std::string& rail : offer.rails.names) devices.push_back(rail.substr(0, rail.find(' ')));
  auto near = cpus_near(devices, allowed_cpus());
  if (near) {
    log.info("threads run on NUMA node " + std::to_string(near->node) + ", the node of RDMA device " +
             devices.front());
  }
  return near;
}

bool is_loopback(const std::string& host) {
  return host == "localhost" || host == "::1" || host.rfind("127.", 0) == 0;
}

// 0: unknown.
uint64_t link_rate_of(const transport::tcp::Socket& listener) {
  sockaddr_storage local{};
  socklen_t size = sizeof local;
  if (getsockname(listener.fd(), reinterpret_cast<sockaddr*>(&local), &size) != 0) return 0;
  return transport::tcp::link_rate(local);
}

Error invalid(const std::string& text) {
  return {Errc::kInvalidArgument, text};
}

std::optional<Error> check_weight(const std::string& subject, uint32_t weight) {
  if (weight >= 1 && weight <= kMaxWeight) return std::nullopt;
  return invalid(subject + " is " + std::to_string(weight) + "; expected 1 to " + std::to_string(kMaxWeight));
}

std::optional<Error> check_weights(const std::map<std::string, uint32_t>& weights, uint32_t default_weight) {
  for (const auto& [tenant, weight] : weights) {
    if (tenant.empty() || tenant.size() > wire::kMaxJobText)
      return invalid("tenant of a weight must have 1 to " + std::to_string(wire::kMaxJobText) +
                     " characters");
    if (std::ranges::any_of(tenant, [](char c) { return c < ' ' || c > '~'; }))
      return invalid("tenant of a weight must have printable ASCII characters only");
    if (auto error = check_weight("weight of tenant \"" + tenant + "\"", weight)) return error;
  }
  return check_weight("default weight", default_weight);
}

// Rejects options with which every session would be refused or lost at once.
std::optional<Error> check_consistency(const ReducerOptions& o) {
  const auto ms = [](Nanos time) { return std::to_string(time / kMillisecond) + " ms"; };
  if (auto error = check_weights(o.weights, o.default_weight)) return error;
  if (o.transport == config::LaneTransport::kRdma && o.tls == TlsMode::kRequire)
    return invalid("transport \"rdma\" and TLS mode \"require\" exclude each other: RDMA is not encrypted");
  if (o.token && !o.key_file.empty()) return invalid("a token and a key file exclude each other");
  if (o.token && !o.job) return invalid("a token needs the job that it belongs to");
  if (o.job && o.job->size() > wire::kMaxJobText)
    return invalid("job must have at most " + std::to_string(wire::kMaxJobText) + " characters");
  if (o.link_rate != 0 && !wire::is_link_rate(o.link_rate))
    return invalid("no network link has a rate of " + std::to_string(o.link_rate) + " bit/s");
  if (o.lanes_per_session == 0) return invalid("lanes per session must be at least 1");
  if (o.max_slot_bytes < wire::kMinSlotBytes || o.max_slot_bytes > wire::kMaxPayload) {
    return invalid("max slot bytes is " + std::to_string(o.max_slot_bytes) + "; expected " +
                   std::to_string(wire::kMinSlotBytes) + " to " + std::to_string(wire::kMaxPayload));
  }
  if (o.handshake_timeout <= 0) return invalid("handshake timeout must be more than 0");
  if (o.frame_timeout <= 0) return invalid("frame timeout must be more than 0");
  if (o.heartbeat < kMillisecond) return invalid("heartbeat must be at least 1 ms");
  if (o.peer_timeout <= o.heartbeat) {
    return invalid("peer timeout " + ms(o.peer_timeout) + " must be more than the heartbeat, " +
                   ms(o.heartbeat));
  }
  if (o.absence_timeout <= 0) return invalid("absence timeout must be more than 0");
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

// Null if TLS is off.
Result<std::shared_ptr<const transport::tcp::TlsContext>> make_tls(TlsMode mode,
                                                                   const transport::tcp::TlsFiles& files,
                                                                   bool has_token) {
  if (mode == TlsMode::kOff) return std::shared_ptr<const transport::tcp::TlsContext>();
  if (files.certificate.empty() && (!has_token || !files.ca.empty())) {
    return fail(Errc::kInvalidArgument,
                files.ca.empty()
                    ? "TLS needs a key file (--key-file) or a certificate (--tls-cert)"
                    : "a CA for worker certificates (--tls-client-ca) needs a certificate (--tls-cert)");
  }
  return transport::tcp::TlsContext::make(true, files);
}

std::vector<config::Secret> keys_of(const config::SecretFile& file) {
  std::vector<config::Secret> keys = {file.secret};
  if (file.old_secret) keys.push_back(*file.old_secret);
  return keys;
}

struct Credentials {
  std::vector<config::Secret> keys;  // of the pool, the newest first; empty: no authentication
  std::shared_ptr<const transport::tcp::TlsContext> tls;
  std::string warning;  // about the key file; empty: none
};

// The checks that precede opening or starting anything.
Result<Credentials> check_and_load(const ReducerOptions& options) {
  if (auto error = check_consistency(options)) return tl::unexpected(std::move(*error));
  SLUICE_RETURN_IF_ERROR(config::check_memory_limit("--memory-limit", options.memory_limit));
  Credentials credentials;
  if (!options.key_file.empty()) {
    const auto file = read_pool_keys(options, false);
    if (!file) return tl::unexpected(file.error());
    credentials.keys = keys_of(*file);
    credentials.warning = file->warning;
  } else if (!options.token && !options.insecure && !options.only_expected_sessions &&
             !is_loopback(options.listen_host)) {
    return fail(Errc::kInvalidArgument,
                "listening on a non-loopback address needs a key file (--key-file, created by sluice "
                "keygen), or --insecure if every host on the network is trusted");
  }
  auto tls = make_tls(options.tls, options.tls_files, !credentials.keys.empty() || options.token);
  if (!tls) return tl::unexpected(std::move(tls.error()));
  credentials.tls = std::move(*tls);
  return credentials;
}

Result<RdmaOffer> find_rdma_offer(const ReducerOptions& options) {
  RdmaOffer offer;
  offer.required = options.transport == config::LaneTransport::kRdma;
  offer.choice.traffic_class = options.rdma_traffic_class;
  offer.choice.allows = config::port_filter(options.rdma_devices);
  offer.choice.gid_index = options.rdma_gid_index;
  if (options.transport == config::LaneTransport::kTcp) return offer;
  auto rails = transport::rdma::find_rails(offer.choice);
  if (rails) {
    offer.rails = std::move(*rails);
  } else if (offer.required) {
    return tl::unexpected(rails.error());
  } else {
    offer.unavailable_reason = rails.error().text;
  }
  return offer;
}

class RunningReducer final : public Reducer {
 public:
  RunningReducer(const ReducerOptions& options, transport::tcp::Socket listener, uint16_t port,
                 std::vector<config::Secret> keys, std::shared_ptr<const transport::tcp::TlsContext> tls,
                 RdmaOffer rdma, std::unique_ptr<FairPool> fair,
                 std::vector<std::unique_ptr<LaneThread>> lanes)
      : port_(port),
        options_(options),
        fair_(std::move(fair)),
        lanes_(std::move(lanes)),
        control_loop_(options, std::move(listener), std::move(keys), std::move(tls), std::move(rdma), *fair_,
                      lanes_) {
    for (const auto& lane : lanes_) lane->start();
    control_loop_.start();
  }
  ~RunningReducer() override {
    control_loop_.stop();
    (void)wait();
  }

  uint16_t port() const noexcept override { return port_; }
  uint64_t id() const noexcept override { return control_loop_.id(); }
  void expect_session(const SessionId& session, uint32_t ranks) override {
    control_loop_.admission().expect_session(session, ranks);
  }
  void forget_session(const SessionId& session) noexcept override {
    control_loop_.admission().forget_session(session);
    control_loop_.forget_meeting(session);
  }
  bool end_meeting(const SessionId& session) override { return control_loop_.end_meeting(session); }
  bool has_session(const SessionId& session) override { return control_loop_.has_session(session); }
  void drain() noexcept override { control_loop_.drain(); }
  bool is_draining() const noexcept override { return control_loop_.is_draining(); }
  void stop() noexcept override { control_loop_.stop(); }
  ExitReason wait() override {
    const ExitReason reason = control_loop_.wait();
    for (const auto& lane : lanes_) lane->stop();
    return reason;
  }
  std::optional<std::vector<uint64_t>> lane_turns(Nanos timeout) override {
    if (!control_loop_.is_responsive(timeout)) return std::nullopt;
    std::vector<uint64_t> all;
    for (const auto& lane : lanes_) all.push_back(lane->lane().counters().turns.get());
    return all;
  }
  Result<std::optional<config::SecretFile>> reconfigure(const ReloadableOptions& requested) override {
    ReloadableOptions options = requested;
    if (options.memory_limit == 0) options.memory_limit = config::host_limits().memory_bytes / 2;
    SLUICE_RETURN_IF_ERROR(config::check_memory_limit("--memory-limit", options.memory_limit));
    if (auto error = check_weights(options.weights, options.default_weight))
      return tl::unexpected(std::move(*error));
    std::optional<config::SecretFile> file;
    if (!options_.key_file.empty()) {
      SLUICE_ASSIGN_OR_RETURN(read, read_pool_keys(options_, true));
      file = std::move(read);
    }
    auto tls = make_tls(options_.tls, options.tls_files, file || options_.token);
    if (!tls) return tl::unexpected(std::move(tls.error()));
    if (file && !file->warning.empty()) ReducerLog(options_.hosted).warn(file->warning);
    control_loop_.reconfigure(options, std::move(*tls),
                              file ? keys_of(*file) : std::vector<config::Secret>());
    return file;
  }
  std::string status_json() override { return control_loop_.query_status(); }
  void request_status(std::function<void(std::string)> reply) override {
    control_loop_.request_status(std::move(reply));
  }

 private:
  const uint16_t port_;
  const ReducerOptions options_;  // those at the start
  const std::unique_ptr<FairPool> fair_;
  std::vector<std::unique_ptr<LaneThread>> lanes_;
  ControlLoop control_loop_;
};

}  // namespace

Result<config::SecretFile> read_pool_keys(const ReducerOptions& options, bool at_reload) {
  // Only a file that does not exist leaves the key of the start, which may be one that was dropped.
  const bool is_replaced = at_reload && !options.reload_key_file.empty() &&
                           (::access(options.reload_key_file.c_str(), F_OK) == 0 || errno != ENOENT);
  auto file = config::read_secret_file(is_replaced ? options.reload_key_file : options.key_file);
  if (!file) return add_context("key file", file.error());
  return file;
}

Result<void> check_options(const ReducerOptions& options) {
  auto credentials = check_and_load(options);
  if (!credentials) return tl::unexpected(std::move(credentials.error()));
  if (options.transport == config::LaneTransport::kRdma) {
    if (auto rdma = find_rdma_offer(options); !rdma) return tl::unexpected(std::move(rdma.error()));
  }
  if (options.congestion_control.empty()) return {};
  const transport::tcp::Socket probe(::socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0));
  const auto applied = transport::tcp::apply_options(
      probe.fd(), {.buffer_bytes = 0, .congestion_control = options.congestion_control, .local_address = {}});
  if (!applied.congestion_control_set) return fail(Errc::kInvalidArgument, applied.note);
  return {};
}

Result<std::unique_ptr<Reducer>> Reducer::start(const ReducerOptions& requested) {
  ReducerOptions options = requested;
  const config::HostLimits host = config::host_limits();
  if (options.memory_limit == 0) options.memory_limit = host.memory_bytes / 2;
  auto credentials = check_and_load(options);
  if (!credentials) return tl::unexpected(std::move(credentials.error()));
  const ReducerLog log(options.hosted);
  if (!credentials->warning.empty()) log.warn(credentials->warning);
  if (const std::string text = host.text(); !text.empty())
    log.info("control groups limit this process to " + text);
  auto rdma = find_rdma_offer(options);
  if (!rdma) return tl::unexpected(std::move(rdma.error()));
  const auto near = cpus_near_rails(options, *rdma, log);
  if (options.lanes == 0) {
    options.lanes = host.threads();
    if (near) options.lanes = std::min(options.lanes, count_of(near->set));
  }
  const transport::tcp::SocketOptions socket{.buffer_bytes = options.socket_buffer,
                                             .congestion_control = options.congestion_control,
                                             .local_address = {}};
  transport::tcp::AppliedOptions applied;
  auto listener =
      transport::tcp::listen_on(options.listen_host, options.listen_port, socket, kBacklog, &applied);
  if (!listener) return tl::unexpected(std::move(listener.error()));
  if (!applied.congestion_control_set) return fail(Errc::kInvalidArgument, applied.note);
  if (!applied.note.empty()) log.warn(applied.note);
  if (options.link_rate == 0) options.link_rate = link_rate_of(*listener);
  const auto port = transport::tcp::bound_port(listener->fd());
  if (!port) return tl::unexpected(port.error());
  if (options.on_bound) SLUICE_RETURN_IF_ERROR(options.on_bound());

  auto fair = std::make_unique<FairPool>();
  std::vector<std::unique_ptr<LaneThread>> lanes;
  for (uint32_t i = 0; i < options.lanes; ++i) {
    auto context = transport::memory::make_context();
    if (!context) return tl::unexpected(std::move(context.error()));
    lanes.push_back(std::make_unique<LaneThread>(make_lane(std::move(*context), options, *fair), options.idle,
                                                 options.spin));
  }
  const ScopedCpuAffinity affinity(near);
  const ScopedSignalBlock no_signals;
  try {
    return std::make_unique<RunningReducer>(options, std::move(*listener), *port,
                                            std::move(credentials->keys), std::move(credentials->tls),
                                            std::move(*rdma), std::move(fair), std::move(lanes));
  } catch (const std::exception& e) {
    return fail(Errc::kSystem, std::string("cannot start the reducer: ") + e.what());
  }
}

}  // namespace sluice::reducer
