// A reducer process in one object: one conductor thread (accept, handshake, sessions) and the lane threads
// that sum. What `sluice reducer` starts and what in-process tests start.
#pragma once

#include <cstdint>
#include <map>
#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "config/lane_transport.h"
#include "core/result.h"
#include "core/units.h"
#include "reducer/admin/http_server.h"
#include "transport/tcp/secure_stream.h"

namespace sluice::reducer {

// kOn: who offers TLS gets it; kRequire: nobody else is served.
enum class TlsMode : uint8_t { kOff, kOn, kRequire };

enum class Idle : uint8_t { kEpoll, kYield, kSpin };  // what a lane does when it has nothing to do

struct ReducerOptions {
  std::string listen_host = "127.0.0.1";  // empty: all addresses
  uint16_t listen_port = 7470;            // 0: chosen by the OS
  uint32_t lanes = 0;                     // lane threads; 0: one per CPU that this process may use
  uint64_t memory_limit = 0;              // bytes that sessions may reserve; 0: half of the machine's memory
  uint64_t session_memory_limit = 0;      // the same of one session; 0: no limit of its own
  uint64_t tenant_memory_limit = 0;       // the same of all sessions of one tenant; 0: no limit of its own
  uint32_t max_slot_bytes = kMiB;         // largest slot a session may ask for
  uint32_t lanes_per_session = 2;         // lane connections per rank offered, at most `lanes`
  uint32_t max_connections = 16384;       // handshakes and control connections; more are closed and counted
  // Shares of what is too little for all: docs/fair-pool.md. Weights are 1..kMaxWeight.
  std::map<std::string, uint32_t> weights;  // by tenant
  uint32_t default_weight = 1;              // of every other tenant
  bool tenant_is_job = false;               // what clients call their tenant does not count, their job does
  std::string key_file;                     // empty: no authentication
  bool insecure = false;                    // allows an address off loopback without a key
  TlsMode tls = TlsMode::kOff;  // by the job's token, by a certificate, or both (docs/security.md)
  transport::tcp::TlsFiles tls_files = {};  // certificate; ca: workers must show one of its certificates
  config::LaneTransport transport = config::LaneTransport::kAuto;
  std::string rdma_devices;        // config/name_list.h; empty: any
  int rdma_gid_index = -1;         // transport/rdma/pairing.h
  uint8_t rdma_traffic_class = 0;  // of its packets
  bool near_devices = true;        // threads run on the NUMA node of those devices, where that is one
  Idle idle = Idle::kEpoll;
  Nanos spin = 20 * kMicrosecond;   // how long an idle lane polls before it sleeps (Idle::kEpoll)
  bool payload_crc = true;          // put a CRC on results
  size_t socket_buffer = 4 * kMiB;  // SO_SNDBUF and SO_RCVBUF; 0: leave to the kernel
  std::string congestion_control;   // empty: the host's default

  std::optional<admin::HttpOptions> http;  // health, metrics, status, page; none: not served

  // Deadlines: docs/timeouts.md.
  Nanos handshake_timeout = 5 * kSecond;
  Nanos frame_timeout = 10 * kSecond;
  Nanos heartbeat = 1 * kSecond;
  Nanos peer_timeout = 10 * kSecond;
  Nanos join_timeout = 60 * kSecond;  // upper bound of what ranks may ask
  Nanos linger_timeout = 5 * kSecond;
  Nanos drain_timeout = 25 * kSecond;
  Nanos absence_timeout = 4 * kSecond;  // of a rank, in sessions that survive losses

  // For platforms that wait for every host of a job (reducer/control/job_watch.h). 0: serves until it is told
  // to end.
  uint32_t expected_workers = 0;
  Nanos arrival_timeout = 600 * kSecond;
  Nanos idle_timeout = 120 * kSecond;
};

// Of a tenant.
inline constexpr uint32_t kMaxWeight = 100;

// What may change while a reducer runs; each as in ReducerOptions.
struct ReloadableOptions {
  uint64_t memory_limit = 0;  // of sessions that join from now on, as the other two: none that runs is ended
  uint64_t session_memory_limit = 0;
  uint64_t tenant_memory_limit = 0;
  std::map<std::string, uint32_t> weights;
  uint32_t default_weight = 1;
  transport::tcp::TlsFiles tls_files = {};  // read again, and used by connections from now on
};
[[nodiscard]] ReloadableOptions reloadable(const ReducerOptions& options);

// What start() would refuse, as far as that can be told without a socket, a device or a thread: options that
// contradict (kInvalidArgument), a key or a certificate that is of no use (kInvalidArgument, kSystem).
[[nodiscard]] Result<void> check_options(const ReducerOptions& options);

// kJobDone, kNeverCame: the expected workers came and went, or did not come.
enum class ExitReason : uint8_t { kDrained, kDrainTimeout, kJobDone, kNeverCame };

class Reducer {
 public:
  virtual ~Reducer() = default;

  // Binds and starts the threads; ready to accept when it returns. Errors: kInvalidArgument (options that
  // contradict, off loopback without key), kUnsupported (RDMA alone, and no device), kSystem (port in use,
  // key file unreadable; the text says which).
  [[nodiscard]] static Result<std::unique_ptr<Reducer>> start(const ReducerOptions& options);

  [[nodiscard]] virtual uint16_t port() const noexcept = 0;
  [[nodiscard]] virtual uint16_t http_port() const noexcept = 0;  // 0: not served
  [[nodiscard]] virtual uint64_t id() const noexcept = 0;

  // Refuse new sessions, let those go that survive losses and have another reducer, serve the others to their
  // end, then stop; after drain_timeout the rest is ended with `draining`. Any thread; from a signal handler
  // only through a pipe or signalfd of the caller.
  virtual void drain() noexcept = 0;
  // Ends every session with `shutdown` now; one that can go on elsewhere only loses its connections.
  virtual void stop() noexcept = 0;
  // Blocks until drained or stopped and all threads are joined.
  virtual ExitReason wait() = 0;

  // Turns that each lane's loop has made; an idle lane makes ten a second. Who asks again after a second and
  // finds a number unchanged knows a lane that hangs. Nothing where the conductor does not answer within
  // `patience`, for which this blocks at most. Any thread, until wait() has returned.
  [[nodiscard]] virtual std::optional<std::vector<uint64_t>> turns(Nanos patience) = 0;

  // Takes other options, or refuses all of them with what check_options() would say. New weights count for
  // shares of the link at once; in the order of folding a session keeps the weight that it began with. Any
  // thread.
  [[nodiscard]] virtual Result<void> reconfigure(const ReloadableOptions& options) = 0;

  // One JSON object: sessions with their missing ranks, counters, bytes, CPU seconds. Any thread; what
  // `sluice status` prints. Keys: see docs/operations.md.
  [[nodiscard]] virtual std::string status_json() = 0;
};

}  // namespace sluice::reducer
