#include "nccl_plugin/host/settings.h"

#include <unistd.h>

#include <charconv>
#include <map>
#include <mutex>
#include <string_view>

#include "config/discovery/discover.h"
#include "config/discovery/sources.h"
#include "config/nearest_name.h"
#include "config/sizes.h"
#include "config/variables.h"
#include "nccl_plugin/host/log.h"
#include "wire/frame.h"
#include "wire/messages.h"
#include "wire/view.h"

namespace sluice::nccl {
namespace {

// VariableReader reads environment variables and collects a warning for each invalid value.
class VariableReader {
 public:
  explicit VariableReader(const char* const* environment) {
    warn_about_unknown_names(environment);
    for (; *environment != nullptr; ++environment) {
      const std::string_view entry = *environment;
      const size_t equals = entry.find('=');
      if (equals != entry.npos) values_.emplace(entry.substr(0, equals), entry.substr(equals + 1));
    }
  }

  // Calls `parse` with the value of a variable that is set and not empty. `parse` returns an error text;
  // empty: none.
  template <typename Parse>
  void read(std::string_view name, Parse parse) {
    const auto found = values_.find(name);
    if (found == values_.end() || found->second.empty()) return;
    if (const std::string error = parse(std::string(found->second)); !error.empty()) {
      warnings.push_back(std::string(name) + "=" + std::string(found->second) + " ignored: " + error);
    }
  }
  void text(std::string_view name, std::string& out) {
    read(name, [&out](std::string value) {
      out = std::move(value);
      return std::string();
    });
  }
  void number(std::string_view name, uint32_t& out, uint32_t min, uint32_t max) {
    read(name, [&](const std::string& value) -> std::string {
      uint32_t n = 0;
      const auto [end, error] = std::from_chars(value.data(), value.data() + value.size(), n);
      if (error != std::errc() || end != value.data() + value.size() || n < min || n > max) {
        return "expected a number from " + std::to_string(min) + " to " + std::to_string(max);
      }
      out = n;
      return {};
    });
  }
  void size(std::string_view name, uint64_t& out, uint64_t min, uint64_t max) {
    read(name, [&](const std::string& value) -> std::string {
      const auto parsed = config::parse_size(value);
      if (!parsed) return parsed.error().text;
      if (*parsed < min || *parsed > max) {
        return "expected a size from " + config::size_text(min) + " to " + config::size_text(max);
      }
      out = *parsed;
      return {};
    });
  }
  void deadline(std::string_view name, Nanos& out, Nanos min) {
    read(name, [&out, min](const std::string& value) -> std::string {
      const auto parsed = config::parse_duration(value);
      if (!parsed) return parsed.error().text;
      if (*parsed < min) return "expected at least " + config::duration_text(min);
      out = *parsed;
      return {};
    });
  }
  void flag(std::string_view name, bool& out) {
    read(name, [&out](const std::string& value) -> std::string {
      if (value != "0" && value != "1") return "expected 0 or 1";
      out = value == "1";
      return {};
    });
  }
  template <typename Choice>
  void choice(std::string_view name, Choice& out, const std::map<std::string_view, Choice>& choices) {
    read(name, [&](const std::string& value) -> std::string {
      if (const auto found = choices.find(value); found != choices.end()) {
        out = found->second;
        return {};
      }
      std::string names;
      for (const auto& [text, choice] : choices) names += (names.empty() ? "" : ", ") + std::string(text);
      return "expected one of " + names;
    });
  }

  std::vector<std::string> warnings;

 private:
  void warn_about_unknown_names(const char* const* environment) {
    for (const config::Variable& unknown : config::unknown_variables(environment)) {
      warnings.push_back("unknown variable " + std::string(unknown.name) + "; did you mean " +
                         std::string(config::nearest_name(unknown.name, config::plugin_variables())) + "?");
    }
  }

  std::map<std::string_view, std::string_view> values_;
};

// Takes the reducers from the platform's environment if SLUICE_REDUCERS is not set. Uses no network. An error
// disables the offload, but not the job.
void discover_reducers(const char* const* environment, SettingsResult& out) {
  namespace discovery = config::discovery;
  discovery::Environment platform = discovery::process_environment(environment);
  platform.resolve_srv = nullptr;  // no DNS query
  if (platform.variable("SLUICE_REDUCERS")) return;
  const auto outcome = discovery::discover(platform);
  if (!outcome) {
    out.warnings.push_back("no offload: " + outcome.error().text);
    return;
  }
  Settings& s = out.settings;
  if (outcome->result) {
    s.reducers = outcome->result->reducers;
    s.source = discovery::to_string(outcome->result->source);
    return;
  }
  const std::string selected = platform.variable("SLUICE_DISCOVERY").value_or("auto");
  if (!discovery::uses_dns(platform) || (selected != "auto" && selected != "kubernetes")) return;
  // The count must be known without a query: all ranks must report the same devices and the same costs to
  // NCCL.
  const auto count = discovery::reducer_count(platform);
  if (!count || !*count) {
    out.warnings.push_back("no offload: " +
                           (count ? "SLUICE_REDUCER_SERVICE is set without SLUICE_REDUCER_COUNT; set both"
                                  : count.error().text));
    return;
  }
  s.dns_reducer_count = **count;
  s.source = discovery::to_string(discovery::Source::kKubernetes);
}
const SettingsResult& process_settings() {
  static const SettingsResult result = read_settings(environ);
  return result;
}

}  // namespace

bool Settings::may_colocate(size_t nodes) const noexcept {
  switch (colocated) {
    case engine::ColocationMode::kOff: return false;
    case engine::ColocationMode::kAlways: return can_offload();
    case engine::ColocationMode::kAuto: break;
  }
  return no_pool ||
         (pool_size() != 0 && nodes > 2 && (reducers.empty() || !config::is_loopback(reducers.front())));
}

SettingsResult read_settings(const char* const* environment) {
  SettingsResult out;
  Settings& s = out.settings;
  VariableReader r(environment);
  r.text("SLUICE_NET_NAME", s.net_name);
  r.read("SLUICE_REDUCERS", [&s](const std::string& value) -> std::string {
    auto pool = config::read_pool(value);
    if (!pool) return pool.error().text;
    s.no_pool = pool->reducers.empty();
    s.reducers = std::move(pool->reducers);
    s.pool_file = std::move(pool->file);
    return {};
  });
  using engine::ColocationMode;
  r.choice(
      "SLUICE_COLOCATED", s.colocated,
      {{"auto", ColocationMode::kAuto}, {"off", ColocationMode::kOff}, {"always", ColocationMode::kAlways}});
  r.read("SLUICE_LINK_RATE", [&s](const std::string& value) -> std::string {
    const auto rate = config::parse_rate(value);
    if (!rate) return rate.error().text;
    s.link_rate = *rate;
    return {};
  });
  r.choice("SLUICE_NET", s.net, {{"auto", NetPolicy::kAuto}, {"always", NetPolicy::kAlways}});
  r.text("NCCL_SOCKET_IFNAME", s.interfaces);
  r.text("SLUICE_IFNAME", s.interfaces);
  r.number("SLUICE_SPEED", s.speed_mbps, 1, 10'000'000);
  r.number("SLUICE_STREAMS", s.streams, 1, kMaxStreams);
  r.number("SLUICE_LANES", s.lanes, 0, 64);
  uint64_t window = s.window_bytes, slot = s.slot_bytes;
  r.size("SLUICE_SLOT", slot, wire::kMinSlotBytes, wire::kMaxPayload);
  r.size("SLUICE_WINDOW", window, std::max<uint64_t>(slot, wire::kMinSlotBytes), wire::kMaxWindowBytes);
  s.slot_bytes = static_cast<uint32_t>(slot / kCacheLine * kCacheLine);
  s.window_bytes = static_cast<uint32_t>(window);
  bool no_crc = false;
  r.flag("SLUICE_NO_CRC", no_crc);
  s.payload_crc = !no_crc;
  r.flag("SLUICE_THREADS", s.own_thread);
  r.deadline("SLUICE_CONNECT_TIMEOUT", s.connect_timeout, kSecond);
  r.deadline("SLUICE_JOIN_TIMEOUT", s.join_timeout, kSecond);
  r.flag("SLUICE_SURVIVE", s.fault_tolerant);
  r.deadline("SLUICE_RESUME_TIMEOUT", s.resume_timeout, kMillisecond);
  r.choice(
      "SLUICE_OFFLOAD", s.offload,
      {{"auto", OffloadPolicy::kAuto}, {"always", OffloadPolicy::kAlways}, {"never", OffloadPolicy::kNever}});
  r.size("SLUICE_MIN_BYTES", s.min_bytes, 0, UINT64_MAX);
  r.number("SLUICE_MIN_NODES", s.min_nodes, 2, 1u << 20);
  r.text("SLUICE_STATS_FILE", s.stats_file);
  r.text("SLUICE_JOB", s.job);
  out.warnings = std::move(r.warnings);
  discover_reducers(environment, out);
  return out;
}

const Settings& settings() {
  return process_settings().settings;
}

void log_settings_warnings() noexcept {
  static std::once_flag logged;
  try {
    std::call_once(logged, [] {
      for (const std::string& line : process_settings().warnings) warn("%s", line.c_str());
    });
  } catch (...) {  // a missing log line must not fail the job
  }
}

}  // namespace sluice::nccl
