#include "gpu_client/api/options.h"

#include <unistd.h>

#include <algorithm>
#include <array>
#include <cstddef>
#include <cstdlib>
#include <cstring>
#include <string>
#include <utility>

#include "colocated/hosted_reducer.h"
#include "config/discovery/discover.h"
#include "config/pool.h"
#include "config/sizes.h"
#include "gpu_client/engine/join/credentials.h"
#include "gpu_client/engine/join/lane_settings.h"
#include "wire/messages.h"
#include "wire/view.h"

namespace sluice::api {
namespace {

// Limits of a reducer, checked here too so that a mistake is reported without network access.
constexpr uint32_t kSlotMultiple = 64;

constexpr uint64_t kMaxStaging = 64 * kGiB;
constexpr uint32_t kSegmentMultiple = 64 * kKiB;

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

// The sizes of the structs in the first release.
constexpr size_t kFirstSize = offsetof(sluice_options, interface_address) + sizeof(char*);
constexpr size_t kFirstStreamSize = offsetof(sluice_stream_options, fusion_bytes) + sizeof(uint64_t);

// Reads a struct of a caller that was compiled against an older or newer header than this library.
// Copies the fields of `caller_struct` that the caller's version has over `defaults`. `first_size` is the
// size of the struct in the first release; no caller has a smaller one. Returns kInvalidArgument if the
// struct was not initialized, kUnsupported if it sets a field that this library does not know.
template <typename Struct>
Result<Struct> read_sized_struct(const Struct& caller_struct, Struct defaults, size_t first_size,
                                 const std::string& name) {
  if (caller_struct.struct_size < first_size) {
    return fail(Errc::kInvalidArgument, name + " is not initialized; call " + name + "_init first");
  }
  const auto* const unknown = reinterpret_cast<const unsigned char*>(&caller_struct) + sizeof(Struct);
  if (caller_struct.struct_size > sizeof(Struct) &&
      std::any_of(unknown, unknown + (caller_struct.struct_size - sizeof(Struct)),
                  [](unsigned char b) { return b != 0; })) {
    return fail(Errc::kUnsupported, name + " sets options of a newer version than this library (" +
                                        std::string(sluice_version()) + ")");
  }
  std::memcpy(&defaults, &caller_struct, std::min(caller_struct.struct_size, sizeof(Struct)));
  return defaults;
}

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

Result<void> check_sizes(const sluice_stream_options& o) {
  if (o.piece_bytes == 0 || o.piece_bytes % kSegmentMultiple != 0)
    return invalid("piece_bytes " + std::to_string(o.piece_bytes) + " is not a multiple of 64 KiB");
  if (o.staging_bytes > kMaxStaging)
    return invalid("staging_bytes " + std::to_string(o.staging_bytes) + " exceeds 64 GiB");
  if (o.piece_bytes > o.staging_bytes / 4) {
    return invalid("piece_bytes " + std::to_string(o.piece_bytes) + " exceeds a quarter of staging_bytes " +
                   std::to_string(o.staging_bytes));
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
  out.rendezvous.host = variable_or("MASTER_ADDR", "");
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

// Finds the reducers for a caller that named none: from SLUICE_REDUCERS or from the platform. Without any the
// ranks reduce by themselves if they know where to meet.
Result<config::Pool> discover_pool(const engine::ColocationOptions& colocation) {
  if (variable_or("SLUICE_REDUCERS", "") == config::kNoReducers) return config::Pool{};
  auto outcome = config::discovery::discover(config::discovery::process_environment(environ));
  if (!outcome) return tl::unexpected(outcome.error());
  if (!outcome->result && can_run_without_pool(colocation)) return config::Pool{};
  if (!outcome->result) {
    return invalid(
        "NULL, but neither SLUICE_REDUCERS nor the platform names reducers; set one of them, or "
        "SLUICE_RENDEZVOUS=host:port of rank 0 to run without dedicated reducers");
  }
  return config::Pool{.reducers = std::move(outcome->result->reducers),
                      .file = std::move(outcome->result->file)};
}

}  // namespace

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
  options.tenant = std::getenv("SLUICE_TENANT");
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
  auto pool = o.reducers != nullptr ? config::read_pool(o.reducers) : discover_pool(*colocation);
  if (!pool) return add_context("reducers", pool.error());
  if (pool->reducers.empty() && !can_run_without_pool(*colocation)) {
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
  if (!string_or_empty(o.job).empty()) identity.job = o.job;
  identity.tenant = string_or_empty(o.tenant);
  for (const auto& [name, text] : {std::pair("job", identity.job), std::pair("tenant", identity.tenant)}) {
    if (text.size() > wire::kMaxJobText)
      return invalid(std::string(name) + " has " + std::to_string(text.size()) +
                     " characters; the limit is " + std::to_string(wire::kMaxJobText));
  }
  identity.interface_address = string_or_empty(o.interface_address);
  auto token = engine::load_token(string_or_empty(o.key_file), string_or_empty(o.token_file), identity.job);
  if (!token) return tl::unexpected(token.error());
  identity.token = *token;
  auto tls = engine::read_tls_settings();
  if (!tls) return tl::unexpected(tls.error());
  identity.tls = std::move(*tls);
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
  out.join.resume_timeout = Nanos{o.resume_timeout_ms} * kMillisecond;
  out.op_timeout = Nanos{o.op_timeout_ms} * kMillisecond;
  out.linger = Nanos{o.linger_ms} * kMillisecond;
  return out;
}

sluice_stream_options default_stream_options() noexcept {
  const pipeline::StreamsOptions streams;
  sluice_stream_options o{};
  o.struct_size = sizeof o;
  o.device_kind = SLUICE_DEVICE_HOST;
  o.device = -1;
  o.staging_bytes = streams.staging_bytes;
  o.piece_bytes = streams.segment_bytes;
  o.wire_dtype = SLUICE_WIRE_AS_GIVEN;
  o.fusion_bytes = streams.fusion_bytes;
  return o;
}

Result<StreamSettings> read_stream_options(const sluice_stream_options& caller_options) {
  auto sized =
      read_sized_struct(caller_options, default_stream_options(), kFirstStreamSize, "sluice_stream_options");
  if (!sized) return tl::unexpected(sized.error());
  const sluice_stream_options& o = *sized;
  if (auto checked = check_sizes(o); !checked) return tl::unexpected(checked.error());
  StreamSettings out;
  switch (o.device_kind) {
    case SLUICE_DEVICE_HOST: out.kind = SLUICE_DEVICE_HOST; break;
    case SLUICE_DEVICE_CUDA: out.kind = SLUICE_DEVICE_CUDA; break;
    default:
      return invalid("device_kind " + std::to_string(o.device_kind) +
                     ": expected SLUICE_DEVICE_HOST or SLUICE_DEVICE_CUDA");
  }
  if (o.device < -1)
    return invalid("device " + std::to_string(o.device) + ": expected the ordinal of a GPU or -1");
  out.device = o.device;
  switch (o.wire_dtype) {
    case SLUICE_WIRE_AS_GIVEN: break;
    case SLUICE_BF16: out.streams.cast = pipeline::WireCast::kBf16; break;
    case SLUICE_F16: out.streams.cast = pipeline::WireCast::kScaledF16; break;
    default:
      return invalid("wire_dtype " + std::to_string(o.wire_dtype) +
                     ": expected SLUICE_WIRE_AS_GIVEN, SLUICE_BF16 or SLUICE_F16");
  }
  const auto flag = [](const char* name, uint32_t value) -> Result<bool> {
    if (value > 1) return invalid(std::string(name) + " " + std::to_string(value) + ": expected 0 or 1");
    return value == 1;
  };
  const auto measure = flag("measure_error", o.measure_error);
  if (!measure) return tl::unexpected(measure.error());
  const auto staged = flag("always_staged", o.always_staged);
  if (!staged) return tl::unexpected(staged.error());
  if (*staged && out.kind == SLUICE_DEVICE_CUDA)
    return invalid(
        "always_staged requires SLUICE_DEVICE_HOST, because GPU copies of host memory would block the "
        "caller");
  out.streams.staging_bytes = o.staging_bytes;
  out.streams.segment_bytes = o.piece_bytes;
  out.streams.measure_error = *measure;
  out.streams.always_staged = *staged;
  out.streams.fusion_bytes = o.fusion_bytes;
  return out;
}

}  // namespace sluice::api
