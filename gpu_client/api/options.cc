#include "gpu_client/api/options.h"

#include <unistd.h>

#include <algorithm>
#include <array>
#include <cstddef>
#include <cstdlib>
#include <string>
#include <utility>

#include "colocated/hosted_reducer.h"
#include "config/discovery/discover.h"
#include "config/pool.h"
#include "config/sizes.h"
#include "gpu_client/api/credential_options.h"
#include "gpu_client/api/sized_struct.h"
#include "gpu_client/engine/join/lane_settings.h"
#include "gpu_client/local/host_agreement.h"
#include "wire/messages.h"
#include "wire/view.h"

namespace sluice::api {
namespace {

// Limits of a reducer, checked here too so that a mistake is reported without network access.
constexpr uint32_t kSlotMultiple = 64;

struct TimeoutVariable {
  const char* variable;
  uint32_t sluice_options::*field;
};
constexpr std::array<TimeoutVariable, 5> kTimeoutVariables{
    {{"SLUICE_CONNECT_TIMEOUT", &sluice_options::connect_timeout_ms},
     {"SLUICE_JOIN_TIMEOUT", &sluice_options::join_timeout_ms},
     {"SLUICE_OP_TIMEOUT", &sluice_options::op_timeout_ms},
     {"SLUICE_LINGER_TIMEOUT", &sluice_options::linger_ms},
     {"SLUICE_RESUME_TIMEOUT", &sluice_options::resume_timeout_ms}}};

tl::unexpected<Error> invalid(std::string text) {
  return fail(Errc::kInvalidArgument, std::move(text));
}

// Returns the milliseconds of a duration in an environment variable.
Result<uint32_t> read_timeout(const char* name, const char* value) {
  auto duration = config::parse_duration(value);
  if (!duration) return add_context(std::string("variable ") + name, duration.error());
  const Nanos ms = *duration / kMillisecond;
  if (ms > UINT32_MAX)
    return invalid(std::string("variable ") + name + ": \"" + value + "\" exceeds " +
                   std::to_string(UINT32_MAX) + " ms");
  return static_cast<uint32_t>(ms);
}

std::string string_or_empty(const char* s) {
  return s != nullptr ? s : "";
}

// The size of the struct in the first release.
constexpr size_t kFirstSize = offsetof(sluice_options, interface_address) + sizeof(char*);

Result<void> check_numbers(const sluice_options& o) {
  const struct {
    const char* name;
    uint64_t value, min, max, multiple_of = 0;
  } ranges[] = {
      {"ranks", o.ranks, 1, wire::kMaxRanks},
      {"rank", o.rank, 0, uint64_t{o.ranks} - 1},
      {"lanes", o.lanes, 0, wire::kMaxLanes},
      {"slot_bytes", o.slot_bytes, o.slot_bytes == 0 ? 0 : wire::kMinSlotBytes, wire::kMaxPayload,
       kSlotMultiple},
      {"window_bytes", o.window_bytes, std::max(o.slot_bytes, wire::kMinSlotBytes), wire::kMaxWindowBytes},
      {"progress_threads", o.progress_threads, 0, 1},
      {"payload_crc", o.payload_crc, 0, 1},
      {"keep_results", o.keep_results, 0, 1},
      {"connect_timeout_ms", o.connect_timeout_ms, 1, UINT32_MAX},
      {"resume_timeout_ms", o.resume_timeout_ms, 1, UINT32_MAX},
      {"join_timeout_ms", o.join_timeout_ms, 1, UINT32_MAX}};
  for (const auto& r : ranges) {
    if (r.value < r.min || r.value > r.max)
      return invalid(std::string(r.name) + " " + std::to_string(r.value) + " is not in " +
                     std::to_string(r.min) + ".." + std::to_string(r.max));
    if (r.multiple_of != 0 && r.value % r.multiple_of != 0)
      return invalid(std::string(r.name) + " " + std::to_string(r.value) + " is not a multiple of " +
                     std::to_string(r.multiple_of));
  }
  return {};
}

// Reads SLUICE_GDR, which allows registration of GPU memory.
Result<bool> read_gdr_variable() {
  const char* const variable = std::getenv("SLUICE_GDR");
  const std::string_view value = variable != nullptr ? variable : "";
  if (value.empty() || value == "0") return false;
  if (value == "1") return true;
  return invalid("variable SLUICE_GDR: \"" + std::string(value) + "\": expected 0 or 1");
}

std::string variable_or(const char* name, const char* otherwise) {
  const char* const value = std::getenv(name);
  return value != nullptr && *value != '\0' ? value : otherwise;
}

bool can_run_without_pool(const engine::ColocationOptions& colocation) {
  return colocation.mode != engine::ColocationMode::kOff && !colocation.rendezvous.host.empty();
}

// Reads SLUICE_COLOCATED, SLUICE_LINK_RATE and, unless the caller says where the ranks meet,
// SLUICE_RENDEZVOUS.
Result<engine::ColocationOptions> read_colocation(const sluice_options& o) {
  engine::ColocationOptions out;
  const auto mode = engine::parse_colocation_mode(variable_or("SLUICE_COLOCATED", "auto"));
  if (!mode) return add_context("variable SLUICE_COLOCATED", mode.error());
  out.mode = *mode;
  if (const std::string text = variable_or("SLUICE_LINK_RATE", ""); !text.empty()) {
    const auto rate = config::parse_rate(text);
    if (!rate) return add_context("variable SLUICE_LINK_RATE", rate.error());
    out.link_rate = *rate;
  }
  // Launchers of PyTorch set the host of rank 0. Their port belongs to another service.
  if (o.rendezvous == nullptr) out.rendezvous.host = variable_or("MASTER_ADDR", "");
  const char* const source = o.rendezvous != nullptr ? "rendezvous" : "variable SLUICE_RENDEZVOUS";
  const std::string meeting_point =
      o.rendezvous != nullptr ? o.rendezvous : variable_or("SLUICE_RENDEZVOUS", "");
  if (!meeting_point.empty()) {
    auto endpoint = config::parse_endpoints(meeting_point);
    if (!endpoint) return add_context(source, endpoint.error());
    if (endpoint->size() != 1) return invalid(std::string(source) + ": expected one host[:port]");
    out.rendezvous = std::move(endpoint->front());
  }
  out.start_reducer = colocated::local_reducer_factory({.payload_crc = o.payload_crc == 1});
  return out;
}

// Reads SLUICE_HOSTS, and checks SLUICE_HOST_ID.
Result<engine::HostSharing> read_host_variables() {
  if (const size_t bytes = local::this_host_name().size(); bytes > local::kMaxHostName)
    return invalid("variable SLUICE_HOST_ID: " + std::to_string(bytes) + " bytes; expected at most " +
                   std::to_string(local::kMaxHostName));
  const std::string value = variable_or("SLUICE_HOSTS", "auto");
  if (value == "auto") return engine::HostSharing::kAuto;
  if (value == "exact") return engine::HostSharing::kExact;
  if (value == "off") return engine::HostSharing::kOff;
  return invalid("variable SLUICE_HOSTS: \"" + value + "\": expected auto, exact or off");
}

// Finds the reducers for a caller that named none: from SLUICE_REDUCERS or from the platform. None is an
// error if the ranks cannot reduce by themselves.
Result<config::Pool> discover_pool(bool needs_pool) {
  if (variable_or("SLUICE_REDUCERS", "") == config::kNoReducers) return config::Pool{};
  auto outcome = config::discovery::discover(config::discovery::process_environment(environ));
  if (!outcome) return tl::unexpected(outcome.error());
  if (!outcome->result && !needs_pool) return config::Pool{};
  if (!outcome->result) {
    return invalid(
        "NULL, but neither SLUICE_REDUCERS nor the platform names reducers; set one of them, or "
        "SLUICE_RENDEZVOUS=host:port of rank 0 to run without dedicated reducers");
  }
  return config::Pool{.reducers = std::move(outcome->result->reducers),
                      .file = std::move(outcome->result->file)};
}

}  // namespace

bool is_on_one_host(const engine::SessionOptions& options) noexcept {
  return options.join.reducers.empty() && !can_run_without_pool(options.join.colocation);
}

sluice_options default_options() noexcept {
  sluice_options options{};
  options.struct_size = sizeof options;
  options.window_bytes = 2 * kMiB;
  options.progress_threads = 1;
  options.payload_crc = 1;
  options.connect_timeout_ms = 10'000;
  options.join_timeout_ms = 60'000;
  options.op_timeout_ms = 0;
  options.linger_ms = 5'000;
  options.keep_results = 1;
  options.resume_timeout_ms = 2'000;
  for (const TimeoutVariable& d : kTimeoutVariables) {
    const char* value = std::getenv(d.variable);
    if (value == nullptr) continue;
    try {
      if (auto ms = read_timeout(d.variable, value); ms) options.*d.field = *ms;
    } catch (const std::exception&) {
      // Out of memory for the error text; read_options() reports the error.
    }
  }
  return options;
}

Result<engine::SessionOptions> read_options(const sluice_options& caller_options) {
  for (const TimeoutVariable& d : kTimeoutVariables) {
    const char* value = std::getenv(d.variable);
    if (value == nullptr) continue;
    if (auto ms = read_timeout(d.variable, value); !ms) return tl::unexpected(ms.error());
  }
  auto sized = read_sized_struct(caller_options, default_options(), kFirstSize, "sluice_options");
  if (!sized) return tl::unexpected(sized.error());
  const sluice_options& o = *sized;
  if (auto checked = check_numbers(o); !checked) return tl::unexpected(checked.error());
  auto colocation = read_colocation(o);
  if (!colocation) return tl::unexpected(colocation.error());
  const auto host_sharing = read_host_variables();
  if (!host_sharing) return tl::unexpected(host_sharing.error());
  const bool needs_pool = *host_sharing == engine::HostSharing::kOff && !can_run_without_pool(*colocation);
  auto pool = o.reducers != nullptr ? config::read_pool(o.reducers) : discover_pool(needs_pool);
  if (!pool) return add_context("reducers", pool.error());
  if (pool->reducers.empty() && needs_pool) {
    return invalid(
        colocation->mode == engine::ColocationMode::kOff
            ? "no reducers, and SLUICE_COLOCATED is off; set SLUICE_REDUCERS, or SLUICE_COLOCATED=auto"
            : "no reducers; set SLUICE_RENDEZVOUS to host:port of rank 0");
  }

  engine::SessionOptions out;
  out.join.colocation = std::move(*colocation);
  out.join.reducers = std::move(pool->reducers);
  out.join.pool_file = std::move(pool->file);
  engine::Identity& identity = out.join.identity;
  std::copy(std::begin(o.session_id), std::end(o.session_id), identity.session.bytes.begin());
  if (identity.session == SessionId{})
    return invalid("session_id is all zero; set 16 bytes that are unique to the session");
  identity.rank = o.rank;
  identity.ranks = o.ranks;
  identity.interface_address = string_or_empty(o.interface_address);
  SLUICE_RETURN_IF_ERROR(engine::read_credentials(credential_options(o), identity));
  auto lanes = engine::read_lane_settings();
  if (!lanes) return tl::unexpected(lanes.error());
  identity.lanes = std::move(*lanes);
  out.join.lanes = o.lanes;
  out.join.window_bytes = o.window_bytes;
  out.join.slot_bytes = o.slot_bytes;
  out.join.connect_timeout = Nanos{o.connect_timeout_ms} * kMillisecond;
  out.join.join_timeout = Nanos{o.join_timeout_ms} * kMillisecond;
  out.own_thread = o.progress_threads == 1;
  out.payload_crc = o.payload_crc == 1;
  out.keep_results = o.keep_results == 1;
  identity.fault_tolerant = out.keep_results;
  const auto device_memory = read_gdr_variable();
  if (!device_memory) return tl::unexpected(device_memory.error());
  out.device_memory = *device_memory;
  out.host_sharing = *host_sharing;
  out.join.resume_timeout = Nanos{o.resume_timeout_ms} * kMillisecond;
  out.op_timeout = Nanos{o.op_timeout_ms} * kMillisecond;
  out.linger = Nanos{o.linger_ms} * kMillisecond;
  return out;
}

}  // namespace sluice::api
