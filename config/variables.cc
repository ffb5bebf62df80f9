#include "config/variables.h"

#include <algorithm>

namespace sluice::config {
namespace {

// One per line, so that two additions do not conflict.
// clang-format off
constexpr std::string_view kPluginVariables[] = {
    "SLUICE_BITS",
    "SLUICE_BLACKBOX",
    "SLUICE_COLOCATED",
    "SLUICE_CONNECT_TIMEOUT",
    "SLUICE_DISCOVERY",
    "SLUICE_DISCOVERY_TIMEOUT",
    "SLUICE_DNS_SERVER",
    "SLUICE_HOSTS",
    "SLUICE_HOST_ID",
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
    "SLUICE_RENDEZVOUS",
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
    "SLUICE_TRACE",
    "SLUICE_TRANSPORT",
    "SLUICE_WINDOW",
    "SLUICE_WIRE",
    "SLUICE_WIRE_STRICT",
    "SLUICE_ZERO_BLOCKS",
};

constexpr std::string_view kProgramVariables[] = {
    "SLUICE_ABSENCE_TIMEOUT",
    "SLUICE_AGG_ITERS",
    "SLUICE_ALL",
    "SLUICE_ANNOUNCE",
    "SLUICE_ANY",
    "SLUICE_ANYWHERE",
    "SLUICE_ARCH",
    "SLUICE_ARRIVAL_TIMEOUT",
    "SLUICE_AVERAGE",
    "SLUICE_BATCH",
    "SLUICE_BLOCKING",
    "SLUICE_BUCKETING",
    "SLUICE_BUCKET_CAP",
    "SLUICE_BUDGET",
    "SLUICE_BUFFER_LIMIT",
    "SLUICE_BUILD",
    "SLUICE_CHECK",
    "SLUICE_CHUNK",
    "SLUICE_COMMUNICATORS",
    "SLUICE_COMPUTE_SCALE",
    "SLUICE_CONFIG",
    "SLUICE_CONGESTION_CONTROL",
    "SLUICE_CONNECT",
    "SLUICE_COORDINATOR",
    "SLUICE_COUNT",
    "SLUICE_CSV",
    "SLUICE_CUDA_DRIVER",
    "SLUICE_CYCLE_TIME",
    "SLUICE_DATATYPE",
    "SLUICE_DEFAULT_WEIGHT",
    "SLUICE_DEVICE",
    "SLUICE_DRAIN_EXIT_CODE",
    "SLUICE_DRAIN_TIMEOUT",
    "SLUICE_DURATION",
    "SLUICE_EPOCHS",
    "SLUICE_ETHERNET",
    "SLUICE_EVERY",
    "SLUICE_EXPECTED_WORKERS",
    "SLUICE_EXPOSED",
    "SLUICE_FAIL_SLOW",
    "SLUICE_FLOW_GBPS",
    "SLUICE_FRAME_TIMEOUT",
    "SLUICE_FROM",
    "SLUICE_FROM_VERSION",
    "SLUICE_FUSION_THRESHOLD",
    "SLUICE_GDR",
    "SLUICE_GPUS_PER_NODE",
    "SLUICE_HANDSHAKE_TIMEOUT",
    "SLUICE_HEADROOM",
    "SLUICE_HEALTH",
    "SLUICE_HEARTBEAT",
    "SLUICE_HIDDEN",
    "SLUICE_HTTP",
    "SLUICE_HTTP_LISTEN",
    "SLUICE_HTTP_PORT_FILE",
    "SLUICE_IDLE",
    "SLUICE_IDLE_TIMEOUT",
    "SLUICE_INSECURE",
    "SLUICE_INSTALL_DIR",
    "SLUICE_INTERFACE",
    "SLUICE_INTERVAL",
    "SLUICE_ISLANDS",
    "SLUICE_ITERS",
    "SLUICE_JOBS",
    "SLUICE_JOB_SHARE",
    "SLUICE_JSON",
    "SLUICE_LANES_PER_SESSION",
    "SLUICE_LEARNING_RATE",
    "SLUICE_LIBRARY",
    "SLUICE_LINGER_TIMEOUT",
    "SLUICE_LINK_RATE",
    "SLUICE_LIST",
    "SLUICE_LISTEN",
    "SLUICE_LOG_FORMAT",
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
    "SLUICE_NAME",
    "SLUICE_NO_KEEP",
    "SLUICE_ONCE",
    "SLUICE_OP",
    "SLUICE_OPEN",
    "SLUICE_OP_TIMEOUT",
    "SLUICE_ORDER",
    "SLUICE_OUT",
    "SLUICE_OUTER_LEARNING_RATE",
    "SLUICE_OUTER_MOMENTUM",
    "SLUICE_OUTPUT_FILE",
    "SLUICE_PATH",
    "SLUICE_PEER_TIMEOUT",
    "SLUICE_PIECE",
    "SLUICE_PLAIN",
    "SLUICE_PLOT",
    "SLUICE_PLUGIN",
    "SLUICE_POOL_ALONE",
    "SLUICE_POOL_NAME",
    "SLUICE_PORT_FILE",
    "SLUICE_PRICES",
    "SLUICE_PRINT_TRACE",
    "SLUICE_PROVIDER",
    "SLUICE_RANK",
    "SLUICE_RANKS_PER_HOST",
    "SLUICE_REDUCER_CPU_GBPS",
    "SLUICE_REDUCER_GBPS",
    "SLUICE_REDUCER_PRICE",
    "SLUICE_REDUCER_TYPE",
    "SLUICE_REDUCE_IN_HOST",
    "SLUICE_RELOAD_KEY_FILE",
    "SLUICE_REQUEST",
    "SLUICE_RESUMABLE",
    "SLUICE_ROOT",
    "SLUICE_ROUNDS",
    "SLUICE_ROWS",
    "SLUICE_RUN_CYCLES",
    "SLUICE_SEED",
    "SLUICE_SESSION",
    "SLUICE_SESSION_MEMORY_LIMIT",
    "SLUICE_SINCE",
    "SLUICE_SINGLE",
    "SLUICE_SIZE",
    "SLUICE_SLOW",
    "SLUICE_SLOW_WORKER",
    "SLUICE_SOCKET_BUFFER",
    "SLUICE_SOURCES",
    "SLUICE_SPIN",
    "SLUICE_STAGING",
    "SLUICE_STAR",
    "SLUICE_STAR_PORT",
    "SLUICE_STATE",
    "SLUICE_STATE_MEMORY",
    "SLUICE_STEPBYTES",
    "SLUICE_STEPFACTOR",
    "SLUICE_STEPS",
    "SLUICE_STEP_TIME",
    "SLUICE_TARGETS",
    "SLUICE_TENANT_IS_JOB",
    "SLUICE_TENANT_MEMORY_LIMIT",
    "SLUICE_THROUGH_PLUGIN",
    "SLUICE_TIER1",
    "SLUICE_TIMEOUT",
    "SLUICE_TLS_CLIENT_CA",
    "SLUICE_UNALIGN",
    "SLUICE_WARMUP",
    "SLUICE_WARMUP_ITERS",
    "SLUICE_WEIGHT",
    "SLUICE_WITH_HEALTH",
    "SLUICE_WITH_STAR",
    "SLUICE_WITH_TLS",
    "SLUICE_WORKERS",
    "SLUICE_WORKER_GBPS",
    "SLUICE_WORKER_PRICE",
    "SLUICE_WORKER_TYPE",
    "SLUICE_ZEROS",
};
// clang-format on
static_assert(std::ranges::is_sorted(kPluginVariables) && std::ranges::is_sorted(kProgramVariables));

// Matches SLUICE_REDUCER_PORT_7470_TCP and longer names.
bool is_service_port_variable(std::string_view name) noexcept {
  const size_t port = name.find("_PORT_");
  if (port == name.npos) return false;
  const std::string_view rest = name.substr(port + 6);
  return !rest.empty() && rest.front() >= '0' && rest.front() <= '9';
}

// Matches the variables that Kubernetes sets for each Service whose name begins with "sluice".
bool is_service_variable(const Variable& variable) noexcept {
  const std::string_view name = variable.name;
  const bool is_port = name.ends_with("_PORT") && variable.value.find("://") != std::string_view::npos;
  return is_port || name.ends_with("_SERVICE_HOST") || name.ends_with("_SERVICE_PORT") ||
         name.find("_SERVICE_PORT_") != std::string_view::npos || is_service_port_variable(name);
}

}  // namespace

std::span<const std::string_view> plugin_variables() noexcept {
  return kPluginVariables;
}

bool is_known_variable(const Variable& variable) noexcept {
  return std::ranges::binary_search(kPluginVariables, variable.name) ||
         std::ranges::binary_search(kProgramVariables, variable.name) ||
         variable.name.starts_with("SLUICE_TEST_") || is_service_variable(variable);
}

std::vector<Variable> unknown_variables(const char* const* environment) {
  std::vector<Variable> out;
  for (; environment != nullptr && *environment != nullptr; ++environment) {
    const std::string_view entry = *environment;
    const size_t equals = entry.find('=');
    if (equals == std::string_view::npos || !entry.starts_with("SLUICE_")) continue;
    const Variable variable{.name = entry.substr(0, equals), .value = entry.substr(equals + 1)};
    if (!is_known_variable(variable)) out.push_back(variable);
  }
  std::ranges::sort(out, {}, &Variable::name);
  return out;
}

}  // namespace sluice::config
