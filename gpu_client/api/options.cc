#include "gpu_client/api/options.h"

#include <unistd.h>

#include <algorithm>
#include <array>
#include <cstddef>
#include <cstdlib>
#include <string>

#include "config/discovery/discover.h"
#include "config/pool.h"
#include "config/sizes.h"
#include "gpu_client/api/sized_struct.h"
#include "gpu_client/engine/credentials.h"
#include "gpu_client/engine/lane_terms.h"
#include "gpu_client/engine/tls_terms.h"
#include "wire/messages.h"
#include "wire/view.h"

namespace sluice::api {
namespace {

// What a reducer accepts (docs/operations.md); checked here too, so that a slip needs no network to be seen.
constexpr uint32_t kSlotMultiple = 64;

struct Deadline {
  const char* variable;
  uint32_t sluice_options::*field;
};
constexpr std::array<Deadline, 5> kDeadlines{{{"SLUICE_CONNECT_TIMEOUT", &sluice_options::connect_timeout_ms},
                                              {"SLUICE_JOIN_TIMEOUT", &sluice_options::join_timeout_ms},
                                              {"SLUICE_OP_TIMEOUT", &sluice_options::op_timeout_ms},
                                              {"SLUICE_LINGER_TIMEOUT", &sluice_options::linger_ms},
                                              {"SLUICE_RESUME_TIMEOUT", &sluice_options::resume_timeout_ms}}};

tl::unexpected<Error> bad(std::string text) {
  return fail(Errc::kInvalidArgument, std::move(text));
}

// Milliseconds of a variable's duration, or why it can't be used.
Result<uint32_t> read_variable(const char* name, const char* value) {
  auto duration = config::parse_duration(value);
  if (!duration) return add_context(std::string("variable ") + name, duration.error());
  const Nanos ms = *duration / kMillisecond;
  if (ms > UINT32_MAX) return bad(std::string("variable ") + name + ": \"" + value + "\" is too long");
  return static_cast<uint32_t>(ms);
}

std::string text_of(const char* s) {
  return s != nullptr ? s : "";
}

// The size of sluice_options in the first version: no caller's is smaller.
constexpr size_t kFirstSize = offsetof(sluice_options, interface_address) + sizeof(char*);

Result<void> check_numbers(const sluice_options& o) {
  const auto within = [](const char* name, uint64_t value, uint64_t least, uint64_t most) -> Result<void> {
    if (value >= least && value <= most) return {};
    return bad(std::string(name) + " " + std::to_string(value) + " is not in " + std::to_string(least) +
               ".." + std::to_string(most));
  };
  if (auto r = within("ranks", o.ranks, 1, wire::kMaxRanks); !r) return r;
  if (auto r = within("rank", o.rank, 0, o.ranks - 1); !r) return r;
  if (auto r = within("lanes", o.lanes, 0, wire::kMaxLanes); !r) return r;
  if (o.slot_bytes != 0) {
    if (auto r = within("slot_bytes", o.slot_bytes, wire::kMinSlotBytes, wire::kMaxPayload); !r) return r;
  }
  if (o.slot_bytes % kSlotMultiple != 0) {
    return bad("slot_bytes " + std::to_string(o.slot_bytes) + " is not a multiple of " +
               std::to_string(kSlotMultiple));
  }
  if (auto r = within("window_bytes", o.window_bytes, std::max(o.slot_bytes, wire::kMinSlotBytes),
                      wire::kMaxWindowBytes);
      !r)
    return r;
  if (auto r = within("progress_threads", o.progress_threads, 0, 1); !r) return r;
  if (auto r = within("payload_crc", o.payload_crc, 0, 1); !r) return r;
  if (auto r = within("keep_results", o.keep_results, 0, 1); !r) return r;
  if (auto r = within("connect_timeout_ms", o.connect_timeout_ms, 1, UINT32_MAX); !r) return r;
  if (auto r = within("resume_timeout_ms", o.resume_timeout_ms, 1, UINT32_MAX); !r) return r;
  return within("join_timeout_ms", o.join_timeout_ms, 1, UINT32_MAX);
}

// SLUICE_GDR: memory of GPUs may be registered.
Result<bool> device_memory_allowed() {
  const char* const set = std::getenv("SLUICE_GDR");
  const std::string_view value = set != nullptr ? set : "";
  if (value.empty() || value == "0") return false;
  if (value == "1") return true;
  return bad("variable SLUICE_GDR is \"" + std::string(value) + "\", not 0 or 1");
}

// Who the caller did not name: SLUICE_REDUCERS, or what the platform says.
Result<config::Pool> find_pool() {
  auto outcome = config::discovery::discover(config::discovery::process_surroundings(environ));
  if (!outcome) return tl::unexpected(outcome.error());
  if (!outcome->found)
    return bad("NULL is given, and neither SLUICE_REDUCERS nor the platform names any (docs/discovery.md)");
  return config::Pool{.reducers = std::move(outcome->found->reducers),
                      .file = std::move(outcome->found->file)};
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
  for (const Deadline& d : kDeadlines) {
    const char* value = std::getenv(d.variable);
    if (value == nullptr) continue;
    try {
      if (auto ms = read_variable(d.variable, value); ms) options.*d.field = *ms;
    } catch (const std::exception&) {
      // No memory for the text of an error that read_options is going to report.
    }
  }
  return options;
}

Result<engine::SessionOptions> read_options(const sluice_options& given) {
  for (const Deadline& d : kDeadlines) {
    const char* value = std::getenv(d.variable);
    if (value == nullptr) continue;
    if (auto ms = read_variable(d.variable, value); !ms) return tl::unexpected(ms.error());
  }
  auto sized = in_our_size(given, default_options(), kFirstSize, "sluice_options");
  if (!sized) return tl::unexpected(sized.error());
  const sluice_options& o = *sized;
  if (auto checked = check_numbers(o); !checked) return tl::unexpected(checked.error());
  auto pool = o.reducers != nullptr ? config::read_pool(o.reducers) : find_pool();
  if (!pool) return add_context("reducers", pool.error());

  engine::SessionOptions out;
  out.join.reducers = std::move(pool->reducers);
  out.join.pool_file = std::move(pool->file);
  engine::Identity& who = out.join.who;
  std::copy(std::begin(o.session_id), std::end(o.session_id), who.session.bytes.begin());
  if (who.session == SessionId{})
    return bad("session_id is all zero: give every session of the pool its own");
  who.rank = o.rank;
  who.ranks = o.ranks;
  if (!text_of(o.job).empty()) who.job = o.job;
  if (who.job.size() > wire::kMaxJobText) {
    return bad("job is longer than " + std::to_string(wire::kMaxJobText) + " characters");
  }
  who.tenant = text_of(o.tenant);
  if (who.tenant.size() > wire::kMaxJobText) {
    return bad("tenant is longer than " + std::to_string(wire::kMaxJobText) + " characters");
  }
  who.interface_address = text_of(o.interface_address);
  auto token = engine::load_token(text_of(o.key_file), text_of(o.token_file), who.job);
  if (!token) return tl::unexpected(token.error());
  who.token = *token;
  auto tls = engine::read_tls_variables();
  if (!tls) return tl::unexpected(tls.error());
  who.tls = std::move(*tls);
  auto lanes = engine::read_transport_variables();
  if (!lanes) return tl::unexpected(lanes.error());
  who.lanes = std::move(*lanes);
  out.join.lanes = o.lanes;
  out.join.window_bytes = o.window_bytes;
  out.join.slot_bytes = o.slot_bytes;
  out.join.connect_timeout = Nanos{o.connect_timeout_ms} * kMillisecond;
  out.join.join_timeout = Nanos{o.join_timeout_ms} * kMillisecond;
  out.own_thread = o.progress_threads == 1;
  out.payload_crc = o.payload_crc == 1;
  out.keep_results = o.keep_results == 1;
  who.survives = out.keep_results;
  const auto device_memory = device_memory_allowed();
  if (!device_memory) return tl::unexpected(device_memory.error());
  out.device_memory = *device_memory;
  out.join.resume_timeout = Nanos{o.resume_timeout_ms} * kMillisecond;
  out.op_timeout = Nanos{o.op_timeout_ms} * kMillisecond;
  out.linger = Nanos{o.linger_ms} * kMillisecond;
  return out;
}

}  // namespace sluice::api
