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

// One variable after the other, with one line for each that can't be taken.
class Reader {
 public:
  explicit Reader(const char* const* environment) {
    unknown_names(environment);
    for (; *environment != nullptr; ++environment) {
      const std::string_view entry = *environment;
      const size_t equals = entry.find('=');
      if (equals != entry.npos) values_.emplace(entry.substr(0, equals), entry.substr(equals + 1));
    }
  }

  // `take` returns an empty string, or what is wrong with the value. Empty values count as unset.
  template <typename Take>
  void read(std::string_view name, Take take) {
    const auto found = values_.find(name);
    if (found == values_.end() || found->second.empty()) return;
    if (const std::string wrong = take(std::string(found->second)); !wrong.empty()) {
      warnings.push_back(std::string(name) + "=" + std::string(found->second) + " is ignored: " + wrong);
    }
  }
  void text(std::string_view name, std::string& out) {
    read(name, [&out](std::string value) {
      out = std::move(value);
      return std::string();
    });
  }
  void number(std::string_view name, uint32_t& out, uint32_t least, uint32_t most) {
    read(name, [&](const std::string& value) -> std::string {
      uint32_t n = 0;
      const auto [end, error] = std::from_chars(value.data(), value.data() + value.size(), n);
      if (error != std::errc() || end != value.data() + value.size() || n < least || n > most) {
        return "it must be a number from " + std::to_string(least) + " to " + std::to_string(most);
      }
      out = n;
      return {};
    });
  }
  void size(std::string_view name, uint64_t& out, uint64_t least, uint64_t most) {
    read(name, [&](const std::string& value) -> std::string {
      const auto parsed = config::parse_size(value);
      if (!parsed) return parsed.error().text;
      if (*parsed < least || *parsed > most) {
        return "it must be from " + config::size_text(least) + " to " + config::size_text(most);
      }
      out = *parsed;
      return {};
    });
  }
  void deadline(std::string_view name, Nanos& out, Nanos least) {
    read(name, [&out, least](const std::string& value) -> std::string {
      const auto parsed = config::parse_duration(value);
      if (!parsed) return parsed.error().text;
      if (*parsed < least) return "it must be at least " + config::duration_text(least);
      out = *parsed;
      return {};
    });
  }
  void flag(std::string_view name, bool& out) {
    read(name, [&out](const std::string& value) -> std::string {
      if (value != "0" && value != "1") return "it must be 0 or 1";
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
      std::string wrong = "it must be one of";
      for (const auto& [word, choice] : choices) wrong += " " + std::string(word);
      return wrong;
    });
  }

  std::vector<std::string> warnings;

 private:
  void unknown_names(const char* const* environment) {
    for (const config::Variable& unknown : config::unknown_variables(environment)) {
      warnings.push_back(std::string(unknown.name) + " is no variable of Sluice; did you mean " +
                         std::string(config::nearest_name(unknown.name, config::plugin_variables())) + "?");
    }
  }

  std::map<std::string_view, std::string_view> values_;
};

// Reducers that the platform names, where the user names none. Nothing here touches the network, and what is
// malformed costs the offload, not the job.
void look_around(const char* const* environment, SettingsRead& out) {
  namespace discovery = config::discovery;
  discovery::Surroundings here = discovery::process_surroundings(environment);
  here.look_up = nullptr;
  if (here.variable("SLUICE_REDUCERS")) return;
  const auto outcome = discovery::discover(here);
  if (!outcome) {
    out.warnings.push_back("no offload: " + outcome.error().text);
    return;
  }
  Settings& s = out.settings;
  if (outcome->found) {
    s.reducers = outcome->found->reducers;
    s.source = discovery::to_string(outcome->found->source);
    return;
  }
  const std::string wanted = here.variable("SLUICE_DISCOVERY").value_or("auto");
  if (!discovery::asks_the_dns(here) || (wanted != "auto" && wanted != "kubernetes")) return;
  // Every rank must count the same devices before anybody may ask, and price the same pool.
  const auto count = discovery::reducer_count(here);
  if (!count || !*count) {
    out.warnings.push_back("no offload: " + (count ? "SLUICE_REDUCER_SERVICE needs SLUICE_REDUCER_COUNT here"
                                                   : count.error().text));
    return;
  }
  s.reducers_by_dns = **count;
  s.source = discovery::to_string(discovery::Source::kKubernetes);
}

const SettingsRead& own() {
  static const SettingsRead read = read_settings(environ);
  return read;
}

}  // namespace

SettingsRead read_settings(const char* const* environment) {
  SettingsRead out;
  Settings& s = out.settings;
  Reader r(environment);
  r.text("SLUICE_NET_NAME", s.net_name);
  r.read("SLUICE_REDUCERS", [&s](const std::string& value) -> std::string {
    auto pool = config::read_pool(value);
    if (!pool) return pool.error().text;
    s.reducers = std::move(pool->reducers);
    s.pool_file = std::move(pool->file);
    return {};
  });
  const auto name = [&r](const char* variable, std::string& to) {
    r.read(variable, [&to](const std::string& value) -> std::string {
      if (value.size() > wire::kMaxJobText)
        return "longer than " + std::to_string(wire::kMaxJobText) + " characters";
      to = value;
      return {};
    });
  };
  name("SLUICE_JOB", s.job);
  name("SLUICE_TENANT", s.tenant);
  r.text("SLUICE_KEY_FILE", s.key_file);
  r.text("SLUICE_TOKEN_FILE", s.token_file);
  r.choice("SLUICE_NET", s.net, {{"auto", NetPolicy::kAuto}, {"always", NetPolicy::kAlways}});
  r.text("NCCL_SOCKET_IFNAME", s.interfaces);
  r.text("SLUICE_IFNAME", s.interfaces);
  r.number("SLUICE_SPEED", s.speed_mbps, 1, 10'000'000);
  r.number("SLUICE_STREAMS", s.streams, 1, 64);
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
  r.flag("SLUICE_SURVIVE", s.survive);
  r.deadline("SLUICE_RESUME_TIMEOUT", s.resume_timeout, kMillisecond);
  r.choice(
      "SLUICE_OFFLOAD", s.offload,
      {{"auto", OffloadPolicy::kAuto}, {"always", OffloadPolicy::kAlways}, {"never", OffloadPolicy::kNever}});
  r.size("SLUICE_MIN_BYTES", s.min_bytes, 0, UINT64_MAX);
  r.number("SLUICE_MIN_NODES", s.min_nodes, 2, 1u << 20);
  r.text("SLUICE_STATS_FILE", s.stats_file);
  out.warnings = std::move(r.warnings);
  look_around(environment, out);
  return out;
}

const Settings& settings() {
  return own().settings;
}

void tell_settings_warnings() noexcept {
  static std::once_flag told;
  try {
    std::call_once(told, [] {
      for (const std::string& line : own().warnings) warn("%s", line.c_str());
    });
  } catch (...) {  // a line of the log is not worth the job
  }
}

}  // namespace sluice::nccl
