#include "cli/options/reducer_flags.h"

#include <sys/stat.h>

#include <algorithm>
#include <optional>
#include <utility>

#include "cli/options/configuration.h"
#include "cli/options/listen_address.h"
#include "cli/process/version.h"
#include "config/endpoints.h"
#include "config/host/host_limits.h"
#include "config/printable_text.h"
#include "core/parse_number.h"
#include "core/revision.h"
#include "reducer/kernels/fold.h"
#include "wire/frame.h"
#include "wire/view.h"

namespace sluice::cli {
namespace {

// A pipe is empty after the first reading.
bool is_pipe(const std::string& path) {
  struct stat status = {};
  return ::stat(path.c_str(), &status) == 0 && S_ISFIFO(status.st_mode);
}

constexpr uint32_t kMaxLaneThreads = 1024;
constexpr Nanos kMaxTimeout = 168 * 3600 * kSecond;  // a week
constexpr Bounds<Nanos> kAnyTime = {.min = 0, .max = kMaxTimeout};
constexpr Bounds<Nanos> kPositiveTime = {.min = kMillisecond, .max = kMaxTimeout};

// Parses "acme=3"; a tenant name may contain '='.
std::optional<std::pair<std::string, uint32_t>> parse_weight(const std::string& text) {
  const size_t at = text.rfind('=');
  if (at == std::string::npos || at == 0) return std::nullopt;
  const auto weight = parse_number<uint32_t>(std::string_view(text).substr(at + 1));
  if (!weight) return std::nullopt;
  return std::pair(text.substr(0, at), *weight);
}

// Empty for a rate, and for no rate.
std::string link_rate_error(const std::string& text) {
  if (text.empty()) return text;
  const auto rate = config::parse_rate(text);
  return rate ? std::string() : rate.error().text;
}

std::string weight_error(const std::string& text) {
  const auto weight = parse_weight(text);
  if (!weight) return "expected TENANT=N";
  if (weight->first.size() > wire::kMaxJobText)
    return "tenant name must have at most " + std::to_string(wire::kMaxJobText) + " characters";
  if (std::ranges::any_of(weight->first, [](char c) { return c < ' ' || c > '~'; }))
    return "tenant name must consist of printable ASCII characters";
  return weight->second >= 1 && weight->second <= reducer::kMaxWeight
             ? ""
             : "weight must be 1 to " + std::to_string(reducer::kMaxWeight);
}

}  // namespace

void ReducerFlags::add_to(OptionSet& set) {
  config_file_ = set.add_config_file_options();
  set.group("Address");
  set.text("--listen", listen_, "HOST:PORT",
           "address to listen on; *:PORT means all addresses, port 0 lets the OS choose",
           listen_address_error);
  set.text("--port-file", port_file_, "FILE",
           "write the bound port to this file once connections are accepted");
  set.text("--pool-name", options_.pool_name, "NAME",
           "name of the pool in the status and on its page, not interpreted; empty: none");
  set.text("--http-listen", http_listen_, "HOST:PORT",
           "address of the HTTP server for health, metrics and status, without authentication; empty: none",
           [](const std::string& text) { return text.empty() ? text : listen_address_error(text); });
  set.text("--http-port-file", http_port_file_, "FILE", "write the port of --http-listen to this file");
  add_life_options(set);
  add_capacity_options(set);
  add_security_options(set);
  add_speed_options(set);
  add_deadline_options(set);
  add_model_options(set);
  add_diagnosis_options(set);
}

void ReducerFlags::add_life_options(OptionSet& set) {
  reducer::ReducerOptions& o = options_;
  set.group("Life");
  set.choice(
      "--mode", mode_, "MODE", {"service", "job"},
      "when to exit. service: on a signal; job: after one job, for platforms that wait for every host");
  set.number("--expected-workers", o.expected_workers,
             "with --mode job: ranks that must be connected at the same time before the job can end");
  set.duration("--arrival-timeout", o.arrival_timeout, kAnyTime,
               "with --mode job: time limit for these ranks to connect; 0: no limit");
  set.duration("--idle-timeout", o.idle_timeout, kAnyTime,
               "with --mode job: time without a session or client of models after which the job has ended");
  set.number("--drain-exit-code", drain_exit_code_, {.min = 0, .max = 125},
             "exit code after a drain. Not 0: for a Kubernetes Job, which replaces only pods that failed");
}

void ReducerFlags::add_model_options(OptionSet& set) {
  set.group("Models");
  set.text("--state", models_.folder, "DIR",
           "keep models (sluice store) in this folder, which outlives the process; empty: none");
  set.text("--coordinator", models_.coordinator, "URL",
           "etcd://HOST:PORT,... where the reducers of a pool agree on models; empty: this reducer is alone");
  set.text(
      "--announce", models_.announce, "HOST[:PORT]",
      "where clients and other reducers reach the models; empty: the --listen address or the host's name");
  set.size("--state-memory", models_.memory_limit,
           "bytes that all models may take; 0: a quarter of the memory of the machine or the control group");
}

void ReducerFlags::add_diagnosis_options(OptionSet& set) {
  set.group("Diagnosis");
  set.text("--blackbox", blackbox_, "PATH",
           "write the last events for `sluice blackbox` when a session fails, or on SIGUSR2: a folder, or a "
           "file name in which %h is the host and %p the process");
}

void ReducerFlags::add_capacity_options(OptionSet& set) {
  reducer::ReducerOptions& o = options_;
  set.group("Capacity");
  set.number("--lanes", o.lanes, {0, kMaxLaneThreads},
             "lane threads; 0: one per CPU of the affinity or the control group's quota");
  set.number("--lanes-per-session", o.lanes_per_session, {1, wire::kMaxLanes},
             "connections offered to each rank of a session, at most --lanes");
  set.reloadable().size(
      "--memory-limit", o.memory_limit,
      "bytes that all sessions may reserve; 0: half of the memory of the machine or the control group");
  set.reloadable().size("--session-memory-limit", o.session_memory_limit,
                        "bytes that one session may reserve; 0: --memory-limit");
  set.reloadable().size("--tenant-memory-limit", o.tenant_memory_limit,
                        "bytes that all sessions of one tenant may reserve; 0: --memory-limit");
  set.reloadable().number("--job-share", o.job_share, {1, 100},
                          "percent of memory, connections and file descriptors that one job may take, if the "
                          "reducer has a key and more than one job");
  set.size("--max-slot", o.max_slot_bytes, {wire::kMinSlotBytes, wire::kMaxPayload},
           "largest slot, and so the largest chunk, that a session may request");
  set.number("--max-connections", o.max_connections, {1, UINT32_MAX},
             "limit of simultaneous handshakes and control connections; more are refused");
  set.group("Shares");
  set.reloadable().pairs(
      "--weight", weights_,
      "TENANT=N,...: relative share, 1 to 100, of a scarce resource for this tenant's sessions",
      weight_error);
  set.reloadable().number("--default-weight", o.default_weight, {1, reducer::kMaxWeight},
                          "relative share of every other tenant");
  set.flag("--tenant-is-job", o.tenant_is_job, "use the job name, which the token proves, as the tenant");
}

void ReducerFlags::add_security_options(OptionSet& set) {
  reducer::ReducerOptions& o = options_;
  set.group("Security");
  set.text(
      "--key-file", o.key_file, "FILE",
      "pool key (sluice keygen), and in a second line the old key while it is replaced; every connection "
      "must prove its job's token. SIGHUP rereads the file");
  set.text("--reload-key-file", o.reload_key_file, "FILE",
           "read by SIGHUP in place of --key-file, if it exists: for systemd, which copies a credential only "
           "at start");
  set.flag("--insecure", o.insecure, "allow listening on a non-loopback address without a key");
  set.choice(
      "--tls", o.tls, "MODE",
      {{"off", reducer::TlsMode::kOff},
       {"on", reducer::TlsMode::kOn},
       {"require", reducer::TlsMode::kRequire}},
      "use of TLS. on: with workers that offer it; require: workers that do not offer it are rejected");
  set.reloadable().text(
      "--tls-cert", o.tls_files.certificate, "FILE",
      "server certificate, PEM with its chain; empty: the job's token authenticates both sides");
  set.reloadable().text("--tls-key", o.tls_files.key, "FILE",
                        "private key of the certificate; empty: in the same file");
  set.reloadable().text("--tls-client-ca", o.tls_files.ca, "FILE",
                        "require workers to present a certificate of this authority");
}

void ReducerFlags::add_speed_options(OptionSet& set) {
  using config::LaneTransport;
  using reducer::IdleStrategy;
  reducer::ReducerOptions& o = options_;
  set.group("Speed");
  set.choice("--transport", o.transport, "TRANSPORT",
             {{"auto", LaneTransport::kAuto}, {"tcp", LaneTransport::kTcp}, {"rdma", LaneTransport::kRdma}},
             "transport of lane connections. auto: RDMA if both ends support it, otherwise TCP; rdma: lanes "
             "that cannot use RDMA are rejected");
  set.text("--ib-hca", o.rdma_devices, "LIST",
           "RDMA devices to use: mlx5_0,mlx5_1:2 (prefixes, with a port), =mlx5_0 (exact), ^mlx5_3 (all but "
           "these)");
  set.number("--ib-gid-index", o.rdma_gid_index, {-1, 255},
             "GID table index to use; -1: any entry with the connection's address");
  set.number("--ib-tc", o.rdma_traffic_class, {0, 255}, "traffic class of RoCE packets: DSCP times 4");
  set.flag("--anywhere", anywhere_, "run on all CPUs, not only on those of the RDMA devices' NUMA node");
  set.choice(
      "--idle", o.idle, "MODE",
      {{"epoll", IdleStrategy::kEpoll}, {"yield", IdleStrategy::kYield}, {"spin", IdleStrategy::kSpin}},
      "how a lane thread waits for work");
  set.duration("--spin", o.spin, {0, kSecond},
               "with --idle epoll: time that a lane thread polls before it sleeps");
  set.flag("--no-crc", no_crc_, "send results without a checksum");
  set.flag("--health", o.health,
           "report NaNs, infinities, outliers and ranks that contribute only zeros to the workers");
  set.size("--socket-buffer", o.socket_buffer, {0, INT32_MAX},
           "size of each socket's send and receive buffers; 0: kernel default");
  set.text("--congestion-control", o.congestion_control, "NAME",
           "TCP congestion control algorithm; empty: host default");
  set.text("--link-rate", link_rate_, "RATE",
           "rate of the network link in each direction, for the shares of co-located reducers: 200mbit, "
           "25gbit or bits/s; empty: the speed of the interface with the --listen address",
           link_rate_error);
}

void ReducerFlags::add_deadline_options(OptionSet& set) {
  reducer::ReducerOptions& o = options_;
  set.group("Deadlines");
  set.duration("--handshake-timeout", o.handshake_timeout, kPositiveTime,
               "time limit from accept to the end of the handshake");
  set.duration("--frame-timeout", o.frame_timeout, kPositiveTime,
               "longest pause within a frame that has begun to arrive");
  set.duration("--heartbeat", o.heartbeat, kPositiveTime, "interval between heartbeats");
  set.duration("--peer-timeout", o.peer_timeout, kPositiveTime,
               "silence after which a rank is lost or, in a fault-tolerant session, disconnected");
  set.duration("--absence-timeout", o.absence_timeout, kPositiveTime,
               "in a fault-tolerant session: time that a rank may lack a connection before it is lost");
  set.duration("--join-timeout", o.join_timeout, kAnyTime,
               "longest time that ranks may request to wait for each other");
  set.duration("--linger-timeout", o.linger_timeout, kAnyTime,
               "longest time that a leaving rank waits for the other ranks' last results");
  set.duration("--drain-timeout", o.drain_timeout, kAnyTime,
               "longest time that sessions may continue after SIGTERM");
}

Result<void> ReducerFlags::check() const {
  if (mode_ == "job" && options_.expected_workers == 0)
    return invalid("--mode job requires --expected-workers");
  SLUICE_RETURN_IF_ERROR(config::check_memory_limit("--state-memory", models_.memory_limit));
  if (const std::string& announce = models_.announce; !announce.empty()) {
    const auto address = config::parse_endpoints(announce);
    if (!address || address->size() != 1 || announce.find_first_of("* \r\n\t") != std::string::npos)
      return invalid("--announce " + config::in_quotes(announce) + ": expected HOST[:PORT]" +
                     (address ? "" : "; " + address.error().text));
  }
  // As read_tls_settings() of the clients: --tls off is a decision, its absence beside files a mistake.
  const Configuration* const configuration = config_file_->configuration;
  const bool is_undecided =
      options_.tls == reducer::TlsMode::kOff &&
      (configuration == nullptr || configuration->origin_of("--tls") == Origin::kDefault);
  const transport::tcp::TlsFiles& files = options_.tls_files;
  for (const auto& [option, file] :
       {std::pair("--tls-cert", files.certificate), std::pair("--tls-key", files.key),
        std::pair("--tls-client-ca", files.ca)}) {
    if (!file.empty() && is_undecided)
      return invalid(
          std::string(option) +
          " is set, but TLS is not switched on; add --tls require, or --tls off to run without TLS");
    if (!models_.folder.empty() && is_pipe(file))
      return invalid(std::string(option) + " " + file +
                     ": is a pipe, but with --state it is read twice; use a file");
  }
  if (is_pipe(options_.key_file))
    return invalid("--key-file " + options_.key_file +
                   ": is a pipe, but the key is read more than once, also at SIGHUP; use a file");
  return {};
}

reducer::ReducerOptions ReducerFlags::options() const {
  reducer::ReducerOptions out = options_;
  if (const auto address = parse_listen_address(listen_)) {  // cannot fail: the option's check parsed it
    out.listen_host = address->host;
    out.listen_port = address->port;
  }
  for (const std::string& text : weights_) {
    if (const auto weight = parse_weight(text)) out.weights.insert_or_assign(weight->first, weight->second);
  }
  out.payload_crc = !no_crc_;
  out.use_device_numa_node = !anywhere_;
  if (const auto rate = config::parse_rate(link_rate_)) out.link_rate = *rate;  // checked by the option
  if (mode_ == "service") out.expected_workers = 0;
  return out;
}

std::optional<reducer::admin::HttpOptions> ReducerFlags::http_options() const {
  if (http_listen_.empty()) return std::nullopt;
  const ListenAddress address = require_listen_address(http_listen_, "--http-listen", kHttpPort);
  const auto targets = kernels::fold_targets();  // the first target is the one in use
  return reducer::admin::HttpOptions{.host = address.host,
                                     .port = address.port,
                                     .build = {{"revision", revision()},
                                               {"compiler", compiler_text()},
                                               {"simd", targets.empty() ? "" : targets.front().name}}};
}

}  // namespace sluice::cli
