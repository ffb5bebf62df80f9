#include <algorithm>
#include <charconv>
#include <utility>

#include "config/discovery/natural_order.h"
#include "config/discovery/sources.h"
#include "config/plain_text.h"
#include "config/sizes.h"

namespace sluice::config::discovery {
namespace {

constexpr Nanos kTimeout = 60 * kSecond;             // SLUICE_DISCOVERY_TIMEOUT
constexpr Nanos kBetweenTries = 500 * kMillisecond;  // pods come one by one, and the DNS hears of them late

Result<Nanos> patience(const Surroundings& here) {
  const auto text = here.variable("SLUICE_DISCOVERY_TIMEOUT");
  if (!text) return kTimeout;
  auto parsed = parse_duration(*text);
  if (!parsed) return add_context("SLUICE_DISCOVERY_TIMEOUT", parsed.error());
  return *parsed;
}

// A pod is called by the first label of its name.
std::string_view first_label(std::string_view host) {
  return host.substr(0, host.find('.'));
}

// A pod that is in the list is a reducer; who looks for reducers and is none of them is a worker.
void take_role(const Surroundings& here, Found& found) {
  const std::string own = here.host_name();
  const auto is_own = [&](const Endpoint& e) {
    return !own.empty() && first_label(e.host) == first_label(own);
  };
  const auto at = std::ranges::find_if(found.reducers, is_own);
  if (at == found.reducers.end()) {
    found.role = Role::kWorker;
  } else {
    found.role = Role::kReducer;
    found.index = static_cast<uint32_t>(at - found.reducers.begin());
  }
}

Answer by_pattern(const Surroundings& here, const std::string& pattern, std::optional<uint32_t> count) {
  constexpr std::string_view kName = "SLUICE_REDUCER_POD_PATTERN";
  const size_t at = pattern.find("%d");
  if (at == std::string::npos || pattern.find('%', at + 1) != std::string::npos || pattern.find('%') != at) {
    return fail(
        Errc::kInvalidArgument,
        std::string(kName) + ": one %d is wanted where a pod's number stands, as in reducer-%d.reducer");
  }
  if (!count) return fail(Errc::kInvalidArgument, std::string(kName) + " needs SLUICE_REDUCER_COUNT");
  Found found;
  for (uint32_t i = 0; i < *count; ++i) {
    const std::string name = pattern.substr(0, at) + std::to_string(i) + pattern.substr(at + 2);
    if (auto added = add_endpoint(name, std::string(kName) + ": ", found.reducers); !added)
      return tl::unexpected(added.error());
  }
  take_role(here, found);
  return found;
}

Result<std::vector<Endpoint>> endpoints_of(std::vector<SrvRecord> records, const std::string& name) {
  std::ranges::sort(records, [](const SrvRecord& a, const SrvRecord& b) {
    return a.target != b.target ? natural_less(a.target, b.target) : a.port < b.port;
  });
  records.erase(std::unique(records.begin(), records.end()), records.end());
  std::vector<Endpoint> out;
  for (const SrvRecord& r : records) {
    if (auto added = add_endpoint(r.target + ":" + std::to_string(r.port), plain(name) + ": ", out); !added)
      return tl::unexpected(added.error());
  }
  return out;
}

Answer by_service(const Surroundings& here, const std::string& service, std::optional<uint32_t> count) {
  const auto timeout = patience(here);
  if (!timeout) return tl::unexpected(timeout.error());
  // What a headless service's port of this name is published as (Kubernetes DNS specification, 2.4.2).
  const std::string name = "_data._tcp." + service;
  const uint32_t least = count.value_or(1);
  const Nanos deadline = here.now() + *timeout;
  std::string last = "nobody was asked yet";
  for (;;) {
    auto records = here.look_up(name, deadline);
    if (!records && records.error().code == Errc::kInvalidArgument) return tl::unexpected(records.error());
    if (records && records->size() >= least) {
      auto list = endpoints_of(std::move(*records), name);
      if (!list) return tl::unexpected(list.error());
      if (list->size() >= least) {
        Found found{.reducers = std::move(*list)};
        // Ranks that look while the service grows must not see different lists.
        if (count) found.reducers.resize(*count);
        take_role(here, found);
        return found;
      }
      last = std::to_string(list->size()) + " found";
    } else {
      last = records ? std::to_string(records->size()) + " found" : records.error().text;
    }
    if (const Nanos left = deadline - here.now(); left > 0) here.pause(std::min(left, kBetweenTries));
    if (here.now() >= deadline) break;  // one more question would be cut off, and say less than the last
  }
  return fail(Errc::kTimeout, plain(name) + ": " + std::to_string(least) +
                                  " reducers wanted, not there within " + duration_text(*timeout) +
                                  " (SLUICE_DISCOVERY_TIMEOUT): " + last);
}

}  // namespace

Result<std::optional<uint32_t>> reducer_count(const Surroundings& here) {
  const auto text = here.variable("SLUICE_REDUCER_COUNT");
  if (!text) return std::optional<uint32_t>();
  uint32_t n = 0;
  const auto [end, error] = std::from_chars(text->data(), text->data() + text->size(), n);
  if (error != std::errc() || end != text->data() + text->size() || n < 1 || n > kMaxEndpoints) {
    return fail(Errc::kInvalidArgument,
                "SLUICE_REDUCER_COUNT: a number from 1 to " + std::to_string(kMaxEndpoints) + " is wanted");
  }
  return n;
}

bool asks_the_dns(const Surroundings& here) {
  return here.variable("SLUICE_REDUCER_SERVICE") && !here.variable("SLUICE_REDUCER_POD_PATTERN");
}

Answer from_kubernetes(const Surroundings& here) {
  const auto pattern = here.variable("SLUICE_REDUCER_POD_PATTERN");
  const auto service = here.variable("SLUICE_REDUCER_SERVICE");
  if (!pattern && !service)
    return NotHere{.why = "neither SLUICE_REDUCER_POD_PATTERN nor SLUICE_REDUCER_SERVICE is set"};
  const auto count = reducer_count(here);
  if (!count) return tl::unexpected(count.error());
  if (pattern) return by_pattern(here, *pattern, *count);
  if (!here.look_up) return NotHere{.why = "SLUICE_REDUCER_SERVICE is not asked for without the network"};
  return by_service(here, *service, *count);
}

}  // namespace sluice::config::discovery
