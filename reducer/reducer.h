// Class Reducer is a reducer in one object: the control thread and the lane threads that sum.
//
// `sluice reducer` and in-process tests start it. cli/process/reducer_service.h adds the HTTP port.
#pragma once

#include <cstdint>
#include <functional>
#include <map>
#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "config/lane_transport.h"
#include "config/secret_file.h"
#include "core/ids.h"
#include "core/result.h"
#include "core/units.h"
#include "transport/tcp/secure_stream.h"
#include "transport/tcp/socket.h"
#include "wire/sha256.h"

namespace sluice::reducer {

// kOn: TLS for clients that offer it. kRequire: clients that do not offer it are refused.
enum class TlsMode : uint8_t { kOff, kOn, kRequire };

enum class IdleStrategy : uint8_t { kEpoll, kYield, kSpin };  // of a lane without work

inline constexpr uint32_t kMaxWeight = 100;  // of a tenant

// The options that may change while a reducer runs. Limits apply to sessions that join later; no running
// session is ended.
struct ReloadableOptions {
  uint64_t memory_limit = 0;          // bytes for all sessions; 0: half of config::host_limits()
  uint64_t session_memory_limit = 0;  // bytes for one session; 0: up to memory_limit
  uint64_t tenant_memory_limit = 0;   // bytes for the sessions of one tenant; 0: up to memory_limit
  // Percent of memory, connections and file descriptors that one job may take, where tokens prove jobs.
  uint32_t job_share = 90;
  // Shares of the reducer's capacity under contention (docs/guides/operate.md), 1..kMaxWeight.
  std::map<std::string, uint32_t> weights;  // by tenant
  uint32_t default_weight = 1;              // of every other tenant
  // With `ca`, workers must present a certificate of that authority. Reread by reconfigure() for later
  // connections.
  transport::tcp::TlsFiles tls_files = {};
};

// Of the models that run beside a reducer.
struct ModelsUse {
  uint32_t clients = 0;  // open connections, without those of other reducers
  bool has_pushes = false;
};

struct ReducerOptions : ReloadableOptions {
  std::string listen_host = "127.0.0.1";  // empty: all addresses
  uint16_t listen_port = 7470;            // 0: chosen by the OS
  std::string pool_name;                  // for the status, not interpreted
  uint32_t lanes = 0;                     // lane threads; 0: config::host_limits().threads()
  uint32_t max_slot_bytes = kMiB;         // largest slot that a session may request
  uint32_t lanes_per_session = 2;         // lane connections offered to a rank, at most `lanes`
  uint32_t max_connections = 16384;       // handshakes and control connections; more are closed and counted
  // Of these, connections that have proved nothing yet: the oldest is closed for a newer one. A job's ranks
  // come at once, and wait in the handshake for the answers of all reducers.
  uint32_t max_unproved_connections = 4096;
  bool tenant_is_job = false;  // the job is the tenant, whatever tenant the client names
  // Workers prove the token of their job, derived from a key in this file, or `token`. Without both there is
  // no authentication, which a non-loopback address needs unless `insecure` or `only_expected_sessions` is
  // set. reconfigure() reads it again for later connections.
  std::string key_file;
  // Read by reconfigure() in place of key_file, if it exists: systemd copies a credential only at start.
  std::string reload_key_file;
  bool insecure = false;
  // By the job's token, a certificate or both: docs/guides/secure.md.
  TlsMode tls = TlsMode::kOff;
  config::LaneTransport transport = config::LaneTransport::kAuto;
  std::string rdma_devices;        // filter, see config/name_list.h; empty: all devices
  int rdma_gid_index = -1;         // transport/rdma/pairing.h
  uint8_t rdma_traffic_class = 0;  // of RDMA packets
  // Pins threads to the NUMA node of the RDMA devices, if these share one.
  bool use_device_numa_node = true;
  IdleStrategy idle = IdleStrategy::kEpoll;
  Nanos spin = 20 * kMicrosecond;   // how long an idle lane polls before it sleeps, with kEpoll
  bool payload_crc = true;          // results carry a CRC
  bool health = false;              // scan contributions and report ranks with wrong values
  size_t socket_buffer = 4 * kMiB;  // SO_SNDBUF and SO_RCVBUF; 0: chosen by the kernel
  std::string congestion_control;   // of TCP; empty: the host's default
  // Of the network link in each direction, in bits/s; 0: the speed of the interface with the listen address.
  uint64_t link_rate = 0;

  // Deadlines: docs/reference/configuration.md.
  Nanos handshake_timeout = 5 * kSecond;
  Nanos frame_timeout = 10 * kSecond;
  Nanos heartbeat = 1 * kSecond;
  Nanos peer_timeout = 10 * kSecond;
  Nanos join_timeout = 60 * kSecond;  // upper bound of the ranks' own join timeouts
  Nanos linger_timeout = 5 * kSecond;
  Nanos drain_timeout = 25 * kSecond;
  Nanos absence_timeout = 4 * kSecond;  // of a rank of a fault-tolerant session

  // ---- for a reducer in a worker process ----
  std::optional<std::string> job;     // the only job that is served; nothing: every job
  std::optional<wire::Digest> token;  // of `job`, instead of a key file
  // Refuses every connection for a session that expect_session() has not named.
  bool only_expected_sessions = false;
  bool offers_memory = false;      // lanes of clients in this process use memory
  uint64_t withheld_features = 0;  // feature bits that WELCOME omits, as earlier releases do
  bool hosted = false;             // logs warnings and errors only, marked as those of a co-located reducer

  // The place of an authenticated connection with purpose kStore, which it has as long as the object, or why
  // there is none. Null: every one has a place. Any thread, not blocking.
  std::function<Result<std::shared_ptr<void>>(const std::string& job, const std::string& tenant)> admit_store;
  // Takes such a connection, with the peer's address, job and features. Any thread, not blocking. Null: this
  // reducer keeps no models, and refuses them.
  std::function<void(transport::tcp::Socket, const std::string& peer, const std::string& job,
                     uint64_t features, std::shared_ptr<void> place)>
      on_store_connection;
  // Of the same models. The first returns the keys "models" and "store" of the status, as a JSON object that
  // is not much longer than `max_bytes`. Any thread, not blocking. Null: no models.
  std::function<std::string(size_t max_bytes)> models_status;
  std::function<ModelsUse()> models_use;
  // Called once by start() when the port is bound, before a connection is accepted. An error ends the start.
  // Null: nothing.
  std::function<Result<void>()> on_bound;

  // For platforms that wait for every host of a job (reducer/control/job_monitor.h). 0: runs until stopped.
  uint32_t expected_workers = 0;
  Nanos arrival_timeout = 600 * kSecond;
  Nanos idle_timeout = 120 * kSecond;
};

// The pool keys of these options, read when a reducer starts or when it is reconfigured. Requires a key_file.
[[nodiscard]] Result<config::SecretFile> read_pool_keys(const ReducerOptions& options, bool at_reload);

// The checks of start() that need no listening socket and no thread. Errors: kInvalidArgument (contradicting
// options, unusable key or certificate), kSystem.
[[nodiscard]] Result<void> check_options(const ReducerOptions& options);

// kJobDone: the expected workers joined and all sessions have ended. kJobNeverStarted: they did not join in
// time.
enum class ExitReason : uint8_t { kDrained, kDrainTimeout, kJobDone, kJobNeverStarted };

class Reducer {
 public:
  virtual ~Reducer() = default;

  // Binds the port and starts the threads; accepts connections when it returns. Errors, with details in the
  // text: kInvalidArgument (contradicting options, no key off loopback), kUnsupported (RDMA required, but no
  // device), kAddressInUse, kSystem (key file unreadable, no descriptor or thread left).
  [[nodiscard]] static Result<std::unique_ptr<Reducer>> start(const ReducerOptions& options);

  [[nodiscard]] virtual uint16_t port() const noexcept = 0;
  [[nodiscard]] virtual uint64_t id() const noexcept = 0;

  // With only_expected_sessions: names a session that may connect from now on, or ends that. Connections that
  // exist stay. The ranks of all these sessions determine how many connections there may be. Any thread.
  virtual void expect_session(const SessionId& session, uint32_t ranks) = 0;
  virtual void forget_session(const SessionId& session) noexcept = 0;
  // With `hosted`, before forget_session(): the rank that has this reducer needs it no more. Ranks that wait
  // here for the others of the session are refused. True while some ranks may not have learned why the
  // session was refused. Blocks until the control thread answers. Any thread.
  [[nodiscard]] virtual bool end_meeting(const SessionId& session) = 0;
  // True while a rank has not left the session and the session has not failed. Blocks until the control
  // thread answers. Any thread.
  [[nodiscard]] virtual bool has_session(const SessionId& session) = 0;

  // Refuses new sessions, lets fault-tolerant sessions move to their other reducers, serves the other
  // sessions to their end, then stops. After drain_timeout the remaining sessions end with `draining`. Any
  // thread; not from a signal handler.
  virtual void drain() noexcept = 0;
  // True from the beginning of a drain on, whoever asked for it. Any thread.
  [[nodiscard]] virtual bool is_draining() const noexcept = 0;
  // Stops now. Every session ends with `shutdown`, except that a fault-tolerant session with other reducers
  // only loses its connections to this one.
  virtual void stop() noexcept = 0;
  // Blocks until the reducer has drained or stopped and all threads are joined.
  virtual ExitReason wait() = 0;

  // The number of turns that each lane's loop has made. An idle lane makes ten per second, so a number that
  // does not change within a second indicates a lane that hangs. Nothing if the control loop does not respond
  // within `timeout`, the longest time that this call blocks. Any thread, until wait() has returned.
  [[nodiscard]] virtual std::optional<std::vector<uint64_t>> lane_turns(Nanos timeout) = 0;

  // Applies all options before it returns, or none of them and returns the error of check_options(). New
  // weights apply to the shares of the capacity at once; the order of folds keeps the weight that a session
  // started with. Returns the pool keys that it has read, if there is a key file. Any thread.
  [[nodiscard]] virtual Result<std::optional<config::SecretFile>> reconfigure(
      const ReloadableOptions& options) = 0;

  // The status that `sluice status` prints, as one JSON object with the keys of docs/guides/operate.md. Any
  // thread.
  [[nodiscard]] virtual std::string status_json() = 0;
  // The same without blocking. Calls `reply` at most once: on the control thread, never after it has ended
  // unless another thread calls status_json() then. Any thread.
  virtual void request_status(std::function<void(std::string)> reply) = 0;
};

}  // namespace sluice::reducer
