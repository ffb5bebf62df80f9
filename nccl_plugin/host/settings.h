#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "config/pool.h"
#include "core/units.h"
#include "gpu_client/engine/join/colocation.h"

namespace sluice::nccl {

inline constexpr uint32_t kMaxStreams = 16;  // of a point-to-point comm; protocol.md section 13

enum class NetPolicy { kAuto, kAlways };
enum class OffloadPolicy { kAuto, kAlways, kNever };

// Settings are the plugin's environment variables (docs/guides/nccl.md), read once when NCCL asks
// for the name of the network. An invalid value causes a warning and the default: a typing error must not end
// a training job.
struct Settings {
  std::string net_name = "SLUICE";         // SLUICE_NET_NAME: for images that set NCCL_NET
  std::vector<config::Endpoint> reducers;  // SLUICE_REDUCERS, or the result of discovery
  bool no_pool = false;                    // SLUICE_REDUCERS=none: co-located reducers only
  std::string pool_file;                   // FILE of SLUICE_REDUCERS=@FILE; else empty
  std::string source;                      // the discovery source of `reducers`; empty: SLUICE_REDUCERS
  uint32_t dns_reducer_count = 0;          // of SLUICE_REDUCER_SERVICE; connect() resolves them
  engine::ColocationMode colocated = engine::ColocationMode::kAuto;  // SLUICE_COLOCATED=auto|off|always
  uint64_t link_rate = 0;                        // SLUICE_LINK_RATE in bits/s; 0: the interface's speed
  NetPolicy net = NetPolicy::kAuto;              // SLUICE_NET=auto|always
  std::string interfaces;                        // SLUICE_IFNAME, else NCCL_SOCKET_IFNAME
  uint32_t speed_mbps = 0;                       // SLUICE_SPEED; 0: sysfs
  uint32_t streams = 4;                          // SLUICE_STREAMS: connections of a point-to-point comm
  uint32_t lanes = 0;                            // SLUICE_LANES: connections per reducer; 0: all offered
  uint32_t window_bytes = 2 * kMiB;              // SLUICE_WINDOW: bytes in flight per reducer
  uint32_t slot_bytes = 0;                       // SLUICE_SLOT: largest chunk; 0: by the number of nodes
  bool payload_crc = true;                       // SLUICE_NO_CRC=1 disables it
  bool own_thread = true;                        // SLUICE_THREADS=0|1: progress thread per collective comm
  Nanos connect_timeout = 20 * kSecond;          // SLUICE_CONNECT_TIMEOUT
  Nanos join_timeout = 300 * kSecond;            // SLUICE_JOIN_TIMEOUT: for nodes that connect late
  bool fault_tolerant = true;                    // SLUICE_SURVIVE=0: a lost reducer ends the communicator
  Nanos resume_timeout = 2 * kSecond;            // SLUICE_RESUME_TIMEOUT: until a reducer counts as lost
  OffloadPolicy offload = OffloadPolicy::kAuto;  // SLUICE_OFFLOAD=auto|always|never, for the tuner
  uint64_t min_bytes = 256 * kKiB;               // SLUICE_MIN_BYTES: smaller allreduces stay in NCCL
  uint32_t min_nodes = 3;                        // SLUICE_MIN_NODES: no gain with fewer nodes
  std::string stats_file;                        // SLUICE_STATS_FILE; empty: none (host/stats_file.h)
  std::string job = "default";                   // SLUICE_JOB, for that file

  // The number of dedicated reducers.
  [[nodiscard]] size_t pool_size() const noexcept {
    return reducers.empty() ? dns_reducer_count : reducers.size();
  }
  // False: this process has nothing to offload to.
  [[nodiscard]] bool can_offload() const noexcept {
    return pool_size() != 0 || (no_pool && colocated != engine::ColocationMode::kOff);
  }
  // Whether the sessions of a communicator may use co-located reducers, as engine::JoinOptions decides it.
  [[nodiscard]] bool may_colocate(size_t nodes) const noexcept;
};

struct SettingsResult {
  Settings settings;
  std::vector<std::string> warnings;  // one line each
};

// Reads the settings from `environment` ("NAME=value", ended by null). Warns about unknown SLUICE_ names and
// suggests the nearest known name.
[[nodiscard]] SettingsResult read_settings(const char* const* environment);

// Returns the settings of the process, read at the first call.
[[nodiscard]] const Settings& settings();
// Logs the warnings of the process's settings, once. Call it after set_logger().
void log_settings_warnings() noexcept;

}  // namespace sluice::nccl
