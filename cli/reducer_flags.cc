#include "cli/reducer_flags.h"

#include <algorithm>
#include <charconv>
#include <optional>
#include <utility>

#include "cli/http_options.h"
#include "cli/listen_address.h"
#include "wire/frame.h"
#include "wire/handshake.h"
#include "wire/view.h"

namespace sluice::cli {
namespace {

constexpr uint32_t kMostLanes = 1024;
constexpr Nanos kLongest = 168 * 3600 * kSecond;  // a week, as good as for ever
constexpr Bounds<Nanos> kAnyTime = {.least = 0, .most = kLongest};
constexpr Bounds<Nanos> kSomeTime = {.least = kMillisecond, .most = kLongest};

// "acme=3"; a tenant's name may hold a '='.
std::optional<std::pair<std::string, uint32_t>> parse_weight(const std::string& text) {
  const size_t at = text.rfind('=');
  if (at == std::string::npos || at == 0 || at + 1 == text.size()) return std::nullopt;
  uint32_t weight = 0;
  const char* const end = text.data() + text.size();
  const auto [rest, error] = std::from_chars(text.data() + at + 1, end, weight);
  if (rest != end || error != std::errc()) return std::nullopt;
  return std::pair(text.substr(0, at), weight);
}

std::string wrong_weight(const std::string& text) {
  const auto weight = parse_weight(text);
  if (!weight) return "TENANT=N is wanted";
  if (weight->first.size() > wire::kMaxJobText)
    return "a tenant has at most " + std::to_string(wire::kMaxJobText) + " characters";
  if (std::ranges::any_of(weight->first, [](char c) { return c < ' ' || c > '~'; }))
    return "a tenant has printable ASCII characters";
  return weight->second >= 1 && weight->second <= reducer::kMaxWeight
             ? ""
             : "the weight must be 1 to " + std::to_string(reducer::kMaxWeight);
}

}  // namespace

void ReducerFlags::add_to(OptionSet& set) {
  by_file_ = set.by_file();
  set.group("Address");
  set.text("--listen", listen_, "HOST:PORT",
           "address to listen on; *:PORT is all addresses, port 0 is chosen by the OS", wrong_listen);
  set.text("--port-file", port_file_, "FILE", "write the bound port here once it accepts");
  set.text("--http-listen", http_listen_, "HOST:PORT",
           "serve health, metrics, status and a page there, to everybody who can reach it; none: not served",
           [](const std::string& text) { return text.empty() ? text : wrong_listen(text); });
  set.text("--http-port-file", http_port_file_, "FILE", "write the port of --http-listen here");
  add_life(set);
  add_sessions(set);
  add_security(set);
  add_speed(set);
  add_deadlines(set);
}

void ReducerFlags::add_life(OptionSet& set) {
  reducer::ReducerOptions& o = options_;
  set.group("Life");
  set.choice(
      "--mode", mode_, "HOW", {"service", "job"},
      "service: until it is told to end; job: until one job is over, for platforms that wait for every "
      "host of a job");
  set.number("--expected-workers", o.expected_workers,
             "with --mode job: ranks that must have been here at a time before the job can be over");
  set.duration("--arrival-timeout", o.arrival_timeout, kAnyTime,
               "with --mode job: until they must have come; 0: however late");
  set.duration("--idle-timeout", o.idle_timeout, kAnyTime,
               "with --mode job: how long there must be no session before the job counts as over");
}

void ReducerFlags::add_sessions(OptionSet& set) {
  reducer::ReducerOptions& o = options_;
  set.group("Capacity");
  set.number("--lanes", o.lanes, {0, kMostLanes}, "lane threads; 0: one per CPU");
  set.number("--lanes-per-session", o.lanes_per_session, {1, wire::kMaxLanes},
             "connections that each rank of a session is offered, at most --lanes");
  set.reloadable().size("--memory-limit", o.memory_limit,
                        "bytes that sessions may reserve; 0: half of the machine's memory");
  set.reloadable().size("--session-memory-limit", o.session_memory_limit,
                        "of that, for one session; 0: as much");
  set.reloadable().size("--tenant-memory-limit", o.tenant_memory_limit,
                        "of that, for all sessions of one tenant; 0: as much");
  set.size("--max-slot", o.max_slot_bytes, {wire::kMinSlotBytes, wire::kMaxPayload},
           "largest slot, hence chunk, that a session may ask for");
  set.number(
      "--max-connections", o.max_connections, {1, UINT32_MAX},
      "handshakes and control connections at a time; more are closed at once. Connections of lanes that are "
      "attached do not count");
  set.group("Shares");
  set.reloadable().pairs(
      "--weight", weights_,
      "TENANT=N,...: of what is too little for all, N parts (1 to 100) for this tenant's sessions; "
      "a client that names no tenant counts as one of its job's name",
      wrong_weight);
  set.reloadable().number("--default-weight", o.default_weight, {1, reducer::kMaxWeight},
                          "parts of every other tenant");
  set.flag("--tenant-is-job", o.tenant_is_job,
           "what clients call their tenant does not count; their job, which the token proves, does");
}

void ReducerFlags::add_security(OptionSet& set) {
  reducer::ReducerOptions& o = options_;
  set.group("Security");
  set.text("--key-file", o.key_file, "FILE",
           "pool key (sluice keygen): every connection must prove its job's token");
  set.flag("--insecure", o.insecure, "listen off loopback without a key");
  set.choice(
      "--tls", o.tls, "MODE",
      {{"off", reducer::TlsMode::kOff},
       {"on", reducer::TlsMode::kOn},
       {"require", reducer::TlsMode::kRequire}},
      "off; on: for workers that offer it; require: for workers that offer it, and no others are served");
  set.reloadable().text(
      "--tls-cert", o.tls_files.certificate, "FILE",
      "certificate to be known by, PEM with its chain; without one the job's token proves both "
      "sides");
  set.reloadable().text("--tls-key", o.tls_files.key, "FILE", "its private key; none: in the same file");
  set.reloadable().text("--tls-client-ca", o.tls_files.ca, "FILE",
                        "workers must show a certificate of this authority");
}

void ReducerFlags::add_speed(OptionSet& set) {
  using config::LaneTransport;
  using reducer::Idle;
  reducer::ReducerOptions& o = options_;
  set.group("Speed");
  set.choice(
      "--transport", o.transport, "HOW",
      {{"auto", LaneTransport::kAuto}, {"tcp", LaneTransport::kTcp}, {"rdma", LaneTransport::kRdma}},
      "what lanes go over: auto, RDMA where both ends have it; tcp; rdma, and no lane is served otherwise");
  set.text("--ib-hca", o.rdma_devices, "LIST",
           "RDMA devices that may be used: mlx5_0,mlx5_1:2 (prefixes, port), =mlx5_0 exactly, ^mlx5_3 all "
           "but these");
  set.number("--ib-gid-index", o.rdma_gid_index, {-1, 255},
             "the one entry of a port's address table that may be used; -1: any that has the connection's "
             "address");
  set.number("--ib-tc", o.rdma_traffic_class, {0, 255},
             "traffic class of RoCE's packets: their DSCP times 4");
  set.flag("--anywhere", anywhere_,
           "run on all processors, not only those of the NUMA node that the RDMA devices are at");
  set.choice("--idle", o.idle, "HOW",
             {{"epoll", Idle::kEpoll}, {"yield", Idle::kYield}, {"spin", Idle::kSpin}},
             "what a lane without work does");
  set.duration("--spin", o.spin, {0, kSecond}, "how long it polls before it sleeps, with --idle epoll");
  set.flag("--no-crc", no_crc_, "put no checksum on results");
  set.size("--socket-buffer", o.socket_buffer, {0, INT32_MAX},
           "send and receive buffer of each socket; 0: leave to the kernel");
  set.text("--congestion-control", o.congestion_control, "NAME", "TCP congestion control; none: the host's");
}

void ReducerFlags::add_deadlines(OptionSet& set) {
  reducer::ReducerOptions& o = options_;
  set.group("Deadlines");
  set.duration("--handshake-timeout", o.handshake_timeout, kSomeTime,
               "from accept to the end of the handshake");
  set.duration("--frame-timeout", o.frame_timeout, kSomeTime, "between pieces of a frame once begun");
  set.duration("--heartbeat", o.heartbeat, kSomeTime, "between heartbeats");
  set.duration("--peer-timeout", o.peer_timeout, kSomeTime,
               "silence after which a rank is lost, or, of a session that survives losses, cut off");
  set.duration("--absence-timeout", o.absence_timeout, kSomeTime,
               "of a session that survives losses: how long a rank may lack a connection before it is lost");
  set.duration("--join-timeout", o.join_timeout, kAnyTime, "most that ranks may ask to wait for each other");
  set.duration("--linger-timeout", o.linger_timeout, kAnyTime,
               "most that a leaving rank waits for the others' results");
  set.duration("--drain-timeout", o.drain_timeout, kAnyTime, "most that sessions may go on after SIGTERM");
}

Result<void> ReducerFlags::check() const {
  if (mode_ == "job" && options_.expected_workers == 0)
    return fail(Errc::kInvalidArgument, "--mode job needs --expected-workers");
  return {};
}

reducer::ReducerOptions ReducerFlags::options() const {
  reducer::ReducerOptions out = options_;
  if (const auto address = listen_address(listen_)) {  // an option that took the text has parsed it
    out.listen_host = address->host;
    out.listen_port = address->port;
  }
  for (const std::string& text : weights_) {
    if (const auto weight = parse_weight(text)) out.weights.insert_or_assign(weight->first, weight->second);
  }
  out.payload_crc = !no_crc_;
  out.near_devices = !anywhere_;
  if (!http_listen_.empty()) out.http = http_options(http_listen_);
  if (mode_ == "service") out.expected_workers = 0;
  return out;
}

}  // namespace sluice::cli
