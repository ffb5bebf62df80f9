#include <algorithm>
#include <utility>

#include "config/discovery/natural_order.h"
#include "config/discovery/sources.h"
#include "config/printable_text.h"
#include "config/sizes.h"
#include "core/parse_number.h"

namespace sluice::config::discovery {
namespace {

constexpr Nanos kDefaultTimeout = 60 * kSecond;       // SLUICE_DISCOVERY_TIMEOUT
constexpr Nanos kRetryInterval = 500 * kMillisecond;  // pods start one by one, and DNS records follow late

Result<Nanos> discovery_timeout(const Environment& env) {
  const auto text = env.variable("SLUICE_DISCOVERY_TIMEOUT");
  if (!text) return kDefaultTimeout;
  auto parsed = parse_duration(*text);
  if (!parsed) return add_context("SLUICE_DISCOVERY_TIMEOUT", parsed.error());
  return *parsed;
}

// The first label of a pod's DNS name is its host name.
std::string_view first_label(std::string_view host) {
  return host.substr(0, host.find('.'));
}

// A pod in the list is a reducer; any other pod that runs discovery is a worker.
void set_role(const Environment& env, DiscoveryResult& result) {
  const std::string own = env.host_name();
  const auto is_own = [&](const Endpoint& e) {
    return !own.empty() && first_label(e.host) == first_label(own);
  };
  const auto at = std::ranges::find_if(result.reducers, is_own);
  if (at == result.reducers.end()) {
    result.role = Role::kWorker;
  } else {
    result.role = Role::kReducer;
    result.index = static_cast<uint32_t>(at - result.reducers.begin());
  }
}

SourceResult by_pattern(const Environment& env, const std::string& pattern, std::optional<uint32_t> count) {
  constexpr std::string_view kName = "SLUICE_REDUCER_POD_PATTERN";
  const size_t at = pattern.find("%d");
  if (at == std::string::npos || pattern.find('%', at + 1) != std::string::npos || pattern.find('%') != at) {
    return invalid(std::string(kName) +
                   ": expected exactly one %d for the pod number, as in reducer-%d.reducer");
  }
  if (!count) return invalid(std::string(kName) + " requires SLUICE_REDUCER_COUNT");
  DiscoveryResult result;
  for (uint32_t i = 0; i < *count; ++i) {
    const std::string name = pattern.substr(0, at) + std::to_string(i) + pattern.substr(at + 2);
    SLUICE_RETURN_IF_ERROR(add_endpoint(name, std::string(kName) + ": ", result.reducers));
  }
  set_role(env, result);
  return result;
}

Result<std::vector<Endpoint>> endpoints_of(std::vector<SrvRecord> records, const std::string& name) {
  std::ranges::sort(records, [](const SrvRecord& a, const SrvRecord& b) {
    return a.target != b.target ? natural_less(a.target, b.target) : a.port < b.port;
  });
  records.erase(std::unique(records.begin(), records.end()), records.end());
  std::vector<Endpoint> out;
  for (const SrvRecord& r : records) {
    SLUICE_RETURN_IF_ERROR(
        add_endpoint(r.target + ":" + std::to_string(r.port), printable(name) + ": ", out));
  }
  return out;
}

SourceResult by_service(const Environment& env, const std::string& service, std::optional<uint32_t> count) {
  SLUICE_ASSIGN_OR_RETURN(timeout, discovery_timeout(env));
  // The SRV name of port "data" of a headless service (Kubernetes DNS specification, 2.4.2).
  const std::string name = "_data._tcp." + service;
  const uint32_t required = count.value_or(1);
  const Nanos deadline = env.now() + timeout;
  std::string status = "no DNS query was sent";
  for (;;) {
    auto records = env.resolve_srv(name, deadline);
    if (!records && records.error().code == Errc::kInvalidArgument) return tl::unexpected(records.error());
    if (records && records->size() >= required) {
      SLUICE_ASSIGN_OR_RETURN(list, endpoints_of(std::move(*records), name));
      if (list.size() >= required) {
        DiscoveryResult result{.reducers = std::move(list)};
        // Ranks that run discovery while the service grows must get the same list.
        if (count) result.reducers.resize(*count);
        set_role(env, result);
        return result;
      }
      status = std::to_string(list.size()) + " found";
    } else {
      status = records ? std::to_string(records->size()) + " found" : records.error().text;
    }
    if (const Nanos left = deadline - env.now(); left > 0) env.sleep(std::min(left, kRetryInterval));
    if (env.now() >= deadline) break;  // another query would be cut off, and its error would hide this status
  }
  return fail(Errc::kTimeout, printable(name) + ": fewer than " + std::to_string(required) +
                                  " reducers after " + duration_text(timeout) +
                                  " (SLUICE_DISCOVERY_TIMEOUT): " + status);
}

}  // namespace

Result<std::optional<uint32_t>> reducer_count(const Environment& env) {
  const auto text = env.variable("SLUICE_REDUCER_COUNT");
  if (!text) return std::optional<uint32_t>();
  const auto n = parse_number<uint32_t>(*text);
  if (!n || *n < 1 || *n > kMaxEndpoints)
    return invalid("SLUICE_REDUCER_COUNT: expected an integer from 1 to " + std::to_string(kMaxEndpoints));
  return n;
}

bool uses_dns(const Environment& env) {
  return env.variable("SLUICE_REDUCER_SERVICE") && !env.variable("SLUICE_REDUCER_POD_PATTERN");
}

SourceResult from_kubernetes(const Environment& env) {
  const auto pattern = env.variable("SLUICE_REDUCER_POD_PATTERN");
  const auto service = env.variable("SLUICE_REDUCER_SERVICE");
  if (!pattern && !service)
    return NotConfigured{.reason = "neither SLUICE_REDUCER_POD_PATTERN nor SLUICE_REDUCER_SERVICE is set"};
  SLUICE_ASSIGN_OR_RETURN(count, reducer_count(env));
  if (pattern) return by_pattern(env, *pattern, count);
  if (!env.resolve_srv)
    return NotConfigured{.reason = "SLUICE_REDUCER_SERVICE is set, but DNS lookups are disabled"};
  return by_service(env, *service, count);
}

}  // namespace sluice::config::discovery
