// The plugin's variables, read once when NCCL first asks for the net's name. Wrong ones are told, never
// fatal: a typing error must not end a training job.
#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "config/pool.h"
#include "core/units.h"

namespace sluice::nccl {

enum class NetPolicy { kAuto, kAlways };
enum class OffloadPolicy { kAuto, kAlways, kNever };

struct Settings {
  std::string net_name = "SLUICE";               // SLUICE_NET_NAME: for images that set NCCL_NET
  std::vector<config::Endpoint> reducers;        // SLUICE_REDUCERS, else found (docs/discovery.md)
  std::string pool_file;                         // where they stand, of SLUICE_REDUCERS=@FILE; else empty
  std::string source;                            // who named them, when SLUICE_REDUCERS did not
  uint32_t reducers_by_dns = 0;                  // so many, of SLUICE_REDUCER_SERVICE, asked for in connect()
  std::string job = "default";                   // SLUICE_JOB
  std::string tenant;                            // SLUICE_TENANT; empty: the job's name counts as one
  std::string key_file;                          // SLUICE_KEY_FILE
  std::string token_file;                        // SLUICE_TOKEN_FILE
  NetPolicy net = NetPolicy::kAuto;              // SLUICE_NET=auto|always
  std::string interfaces;                        // SLUICE_IFNAME, else NCCL_SOCKET_IFNAME
  uint32_t speed_mbps = 0;                       // SLUICE_SPEED; 0: sysfs
  uint32_t streams = 4;                          // SLUICE_STREAMS: connections of a point-to-point comm
  uint32_t lanes = 0;                            // SLUICE_LANES: connections per reducer; 0: what it offers
  uint32_t window_bytes = 2 * kMiB;              // SLUICE_WINDOW: in flight per reducer
  uint32_t slot_bytes = 0;                       // SLUICE_SLOT: largest chunk; 0: by the number of nodes
  bool payload_crc = true;                       // SLUICE_NO_CRC=1 switches it off
  bool own_thread = true;                        // SLUICE_THREADS=0|1 for each collective comm
  Nanos connect_timeout = 20 * kSecond;          // SLUICE_CONNECT_TIMEOUT: docs/timeouts.md
  Nanos join_timeout = 300 * kSecond;            // SLUICE_JOIN_TIMEOUT: for nodes that are late
  bool survive = true;                           // SLUICE_SURVIVE=0: the first loss ends the communicator
  Nanos resume_timeout = 2 * kSecond;            // SLUICE_RESUME_TIMEOUT: then a reducer counts as lost
  OffloadPolicy offload = OffloadPolicy::kAuto;  // SLUICE_OFFLOAD=auto|always|never, for the tuner
  uint64_t min_bytes = 256 * kKiB;               // SLUICE_MIN_BYTES: smaller allreduces are left to NCCL
  uint32_t min_nodes = 3;                        // SLUICE_MIN_NODES: fewer gain nothing
  std::string stats_file;                        // SLUICE_STATS_FILE; empty: none (host/stats_file.h)

  // How many reducers there are; 0: no offload.
  [[nodiscard]] size_t pool_size() const noexcept {
    return reducers.empty() ? reducers_by_dns : reducers.size();
  }
};

struct SettingsRead {
  Settings settings;
  std::vector<std::string> warnings;  // one line each
};

// From `environment` ("NAME=value", ended by null); for tests. Unknown SLUICE_ names are warned of with the
// nearest known one.
[[nodiscard]] SettingsRead read_settings(const char* const* environment);

// The process's own, read at the first call.
[[nodiscard]] const Settings& settings();
// Says the warnings once, when there is a logger to say them to.
void tell_settings_warnings() noexcept;

}  // namespace sluice::nccl
