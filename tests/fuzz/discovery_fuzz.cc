// Fuzzes reducer discovery: host lists and the documents of platforms. The first byte selects the parser.
#include <string>
#include <string_view>

#include "config/discovery/discover.h"
#include "config/discovery/hostlist.h"
#include "config/discovery/natural_order.h"
#include "core/assert.h"
#include "tests/fuzz/input.h"

namespace sluice::fuzz {
namespace {

namespace discovery = config::discovery;

// An error text is one printable line.
void check_error(const Error& e) {
  SLUICE_ASSERT(!e.text.empty() && e.text.size() < 2048);
  for (const char c : e.text) SLUICE_ASSERT(c >= ' ' && c <= '~');
}

void hostlist(std::string_view text) {
  const auto names = discovery::expand_hostlist(text);
  if (!names) return check_error(names.error());
  SLUICE_ASSERT(!names->empty() && names->size() <= discovery::kMaxHosts);
  std::string joined;
  for (const std::string& name : *names) {
    SLUICE_ASSERT(!name.empty() && name.find_first_of(",[]") == std::string::npos);
    if (joined.size() < 4096) joined += (joined.empty() ? "" : ",") + name;
  }
  if (joined.size() >= 4096) return;
  // A list without brackets expands to itself.
  const auto again = discovery::expand_hostlist(joined);
  SLUICE_ASSERT(again && *again == *names);
}

void source(const char* name, const char* variable, std::string_view text) {
  discovery::Environment environment;
  environment.variable = [&](std::string_view asked) -> std::optional<std::string> {
    if (asked == variable && !text.empty()) return std::string(text);
    if (asked == "SLURM_HET_SIZE") return "1";
    if (asked == "SM_CURRENT_HOST") return "algo-1";
    if (asked == "SLUICE_REDUCER_COUNT") return "3";
    return std::nullopt;
  };
  environment.read_file = [](const std::string&) -> Result<std::optional<std::string>> {
    return std::optional<std::string>();
  };
  environment.host_name = [] { return std::string("h"); };
  environment.now = [] { return Nanos{1}; };
  environment.sleep = [](Nanos) {};
  const auto outcome = discovery::discover(environment, name);
  if (!outcome) return check_error(outcome.error());
  if (!outcome->result) return;
  const discovery::DiscoveryResult& found = *outcome->result;
  SLUICE_ASSERT(!found.reducers.empty() && found.reducers.size() <= config::kMaxEndpoints);
  if (found.role == discovery::Role::kReducer)
    SLUICE_ASSERT(found.index && *found.index < found.reducers.size());
  if (found.role == discovery::Role::kUnknown) SLUICE_ASSERT(!found.index);
  // The result can be printed and parsed again.
  std::string list;
  for (const config::Endpoint& e : found.reducers) list += (list.empty() ? "" : ",") + config::to_string(e);
  const auto again = config::parse_endpoints(list);
  SLUICE_ASSERT(again && *again == found.reducers);
}

void order(std::string_view text) {
  const size_t third = text.size() / 3;
  const std::string_view a = text.substr(0, third), b = text.substr(third, third), c = text.substr(2 * third);
  using discovery::natural_less;
  SLUICE_ASSERT(!natural_less(a, a) && !(natural_less(a, b) && natural_less(b, a)));
  SLUICE_ASSERT(a == b || natural_less(a, b) || natural_less(b, a));
  if (natural_less(a, b) && natural_less(b, c)) SLUICE_ASSERT(natural_less(a, c));
}

}  // namespace

void fuzz_one(Input in) {
  const uint32_t choice = in.below(7);
  const auto rest = in.at_most(in.left());
  const std::string_view text(reinterpret_cast<const char*>(rest.data()), rest.size());
  switch (choice) {
    case 0: return hostlist(text);
    case 1: return source("cluster-spec", "CLUSTER_SPEC", text);
    case 2: return source("tf-config", "TF_CONFIG", text);
    case 3: return source("sagemaker", "SM_RESOURCE_CONFIG", text);
    case 4: return source("kubernetes", "SLUICE_REDUCER_POD_PATTERN", text);
    case 5: return source("job-hosts", "SKYPILOT_NODE_IPS", text);
    default: return order(text);
  }
}

}  // namespace sluice::fuzz
