#include "nccl_plugin/host/names.h"

#include <algorithm>
#include <array>
#include <vector>

namespace sluice::nccl {
namespace {

constexpr std::string_view kOfPlugin[] = {"SLUICE_CONNECT_TIMEOUT",
                                          "SLUICE_DISCOVERY",
                                          "SLUICE_DISCOVERY_TIMEOUT",
                                          "SLUICE_DNS_SERVER",
                                          "SLUICE_IB_GID_INDEX",
                                          "SLUICE_IB_HCA",
                                          "SLUICE_IB_TC",
                                          "SLUICE_IFNAME",
                                          "SLUICE_JOB",
                                          "SLUICE_JOB_ID",
                                          "SLUICE_JOIN_TIMEOUT",
                                          "SLUICE_KEY_FILE",
                                          "SLUICE_LANES",
                                          "SLUICE_MIN_BYTES",
                                          "SLUICE_MIN_NODES",
                                          "SLUICE_NET",
                                          "SLUICE_NET_NAME",
                                          "SLUICE_NO_CRC",
                                          "SLUICE_OFFLOAD",
                                          "SLUICE_REDUCERS",
                                          "SLUICE_REDUCER_COUNT",
                                          "SLUICE_REDUCER_POD_PATTERN",
                                          "SLUICE_REDUCER_SERVICE",
                                          "SLUICE_RESUME_TIMEOUT",
                                          "SLUICE_SLOT",
                                          "SLUICE_SLURM_GROUP",
                                          "SLUICE_SLURM_NODELIST",
                                          "SLUICE_SM_GROUP",
                                          "SLUICE_SM_RESOURCE_CONFIG",
                                          "SLUICE_SPEED",
                                          "SLUICE_STATS_FILE",
                                          "SLUICE_STREAMS",
                                          "SLUICE_SURVIVE",
                                          "SLUICE_TENANT",
                                          "SLUICE_THREADS",
                                          "SLUICE_TLS",
                                          "SLUICE_TLS_CA",
                                          "SLUICE_TLS_CERT",
                                          "SLUICE_TLS_KEY",
                                          "SLUICE_TLS_LIBRARY",
                                          "SLUICE_TOKEN_FILE",
                                          "SLUICE_TRANSPORT",
                                          "SLUICE_WINDOW"};

// What `sluice` and its scripts read: in a container that does both, the plugin has nothing to say about
// them.
constexpr std::string_view kOfProgram[] = {"SLUICE_ABSENCE_TIMEOUT",
                                           "SLUICE_AGG_ITERS",
                                           "SLUICE_ARRIVAL_TIMEOUT",
                                           "SLUICE_AVERAGE",
                                           "SLUICE_BATCH",
                                           "SLUICE_BLOCKING",
                                           "SLUICE_BUCKETING",
                                           "SLUICE_BUCKET_CAP",
                                           "SLUICE_BUDGET",
                                           "SLUICE_BUFFER_LIMIT",
                                           "SLUICE_CHECK",
                                           "SLUICE_CHUNK",
                                           "SLUICE_COMPUTE_SCALE",
                                           "SLUICE_CONGESTION_CONTROL",
                                           "SLUICE_CONNECT",
                                           "SLUICE_CSV",
                                           "SLUICE_CYCLE_TIME",
                                           "SLUICE_DATATYPE",
                                           "SLUICE_DEFAULT_WEIGHT",
                                           "SLUICE_DRAIN_TIMEOUT",
                                           "SLUICE_DURATION",
                                           "SLUICE_EPOCHS",
                                           "SLUICE_EXPECTED_WORKERS",
                                           "SLUICE_FAIL_SLOW",
                                           "SLUICE_FORMAT",
                                           "SLUICE_FRAME_TIMEOUT",
                                           "SLUICE_FUSION_THRESHOLD",
                                           "SLUICE_HANDSHAKE_TIMEOUT",
                                           "SLUICE_HEARTBEAT",
                                           "SLUICE_HIDDEN",
                                           "SLUICE_HTTP",
                                           "SLUICE_HTTP_LISTEN",
                                           "SLUICE_HTTP_PORT_FILE",
                                           "SLUICE_IDLE",
                                           "SLUICE_IDLE_TIMEOUT",
                                           "SLUICE_INSECURE",
                                           "SLUICE_INTERFACE",
                                           "SLUICE_INTERVAL",
                                           "SLUICE_ITERS",
                                           "SLUICE_JOBS",
                                           "SLUICE_JSON",
                                           "SLUICE_LANES_PER_SESSION",
                                           "SLUICE_LEARNING_RATE",
                                           "SLUICE_LINGER_TIMEOUT",
                                           "SLUICE_LIST",
                                           "SLUICE_LISTEN",
                                           "SLUICE_LOG_LEVEL",
                                           "SLUICE_MAXBYTES",
                                           "SLUICE_MAX_CONNECTIONS",
                                           "SLUICE_MAX_GROWTH",
                                           "SLUICE_MAX_RATIO",
                                           "SLUICE_MAX_SIZE",
                                           "SLUICE_MAX_SLOT",
                                           "SLUICE_MEMORY_LIMIT",
                                           "SLUICE_MINBYTES",
                                           "SLUICE_MIN_ACCURACY",
                                           "SLUICE_MIN_BW",
                                           "SLUICE_MODE",
                                           "SLUICE_MODEL",
                                           "SLUICE_MOMENTUM",
                                           "SLUICE_NO_KEEP",
                                           "SLUICE_ONCE",
                                           "SLUICE_OP",
                                           "SLUICE_OPEN",
                                           "SLUICE_OP_TIMEOUT",
                                           "SLUICE_OUT",
                                           "SLUICE_OUTPUT_FILE",
                                           "SLUICE_PATH",
                                           "SLUICE_PEER_TIMEOUT",
                                           "SLUICE_PLAIN",
                                           "SLUICE_PLUGIN",
                                           "SLUICE_PORT_FILE",
                                           "SLUICE_PRINT_TRACE",
                                           "SLUICE_RANK",
                                           "SLUICE_REQUEST",
                                           "SLUICE_ROOT",
                                           "SLUICE_ROUNDS",
                                           "SLUICE_RUN_CYCLES",
                                           "SLUICE_SEED",
                                           "SLUICE_SESSION",
                                           "SLUICE_SESSION_MEMORY_LIMIT",
                                           "SLUICE_SINGLE",
                                           "SLUICE_SIZE",
                                           "SLUICE_SLOW",
                                           "SLUICE_SOCKET_BUFFER",
                                           "SLUICE_SOURCES",
                                           "SLUICE_SPIN",
                                           "SLUICE_STAR",
                                           "SLUICE_STAR_PORT",
                                           "SLUICE_STEPBYTES",
                                           "SLUICE_STEPFACTOR",
                                           "SLUICE_STEPS",
                                           "SLUICE_STEP_TIME",
                                           "SLUICE_TARGETS",
                                           "SLUICE_TENANT_IS_JOB",
                                           "SLUICE_TENANT_MEMORY_LIMIT",
                                           "SLUICE_TEST_DEADLINE_S",
                                           "SLUICE_TEST_JOBS",
                                           "SLUICE_THROUGH_PLUGIN",
                                           "SLUICE_TIMEOUT",
                                           "SLUICE_TLS_CLIENT_CA",
                                           "SLUICE_TRACE",
                                           "SLUICE_UNALIGN",
                                           "SLUICE_WARMUP",
                                           "SLUICE_WARMUP_ITERS",
                                           "SLUICE_WEIGHT",
                                           "SLUICE_WITH_STAR",
                                           "SLUICE_WORKERS"};

size_t distance(std::string_view a, std::string_view b) {  // Levenshtein
  std::vector<size_t> row(b.size() + 1);
  for (size_t j = 0; j <= b.size(); ++j) row[j] = j;
  for (size_t i = 1; i <= a.size(); ++i) {
    size_t diagonal = row[0];
    row[0] = i;
    for (size_t j = 1; j <= b.size(); ++j) {
      const size_t above = row[j];
      row[j] = std::min({above + 1, row[j - 1] + 1, diagonal + (a[i - 1] == b[j - 1] ? 0 : 1)});
      diagonal = above;
    }
  }
  return row.back();
}

}  // namespace

bool is_known_variable(std::string_view name) noexcept {
  const auto is_it = [name](std::string_view known) { return known == name; };
  return std::ranges::any_of(kOfPlugin, is_it) || std::ranges::any_of(kOfProgram, is_it) ||
         name.find("_SERVICE_HOST") != name.npos || name.find("_SERVICE_PORT") != name.npos ||
         name.find("_PORT_") != name.npos || name.ends_with("_PORT");
}

std::string_view nearest_variable(std::string_view name) {
  return *std::ranges::min_element(kOfPlugin, {},
                                   [name](std::string_view known) { return distance(name, known); });
}

}  // namespace sluice::nccl
