// What platforms, name servers and people may say of where the reducers are, on any bytes: lists of hosts,
// documents, messages. The first byte picks which.
#include <string>
#include <string_view>

#include "config/discovery/discover.h"
#include "config/discovery/hostlist.h"
#include "config/discovery/natural_order.h"
#include "config/discovery/resolv_conf.h"
#include "config/discovery/srv_message.h"
#include "core/assert.h"
#include "tests/fuzz/input.h"

namespace sluice::fuzz {
namespace {

namespace discovery = config::discovery;

// One line, which names where it is wrong.
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
  // What has no brackets left means itself.
  const auto again = discovery::expand_hostlist(joined);
  SLUICE_ASSERT(again && *again == *names);
}

void source(const char* name, const char* variable, std::string_view text) {
  discovery::Surroundings here;
  here.variable = [&](std::string_view asked) -> std::optional<std::string> {
    if (asked == variable && !text.empty()) return std::string(text);
    if (asked == "SLURM_HET_SIZE") return "1";
    if (asked == "SM_CURRENT_HOST") return "algo-1";
    if (asked == "SLUICE_REDUCER_COUNT") return "3";
    return std::nullopt;
  };
  here.read_file = [](const std::string&) -> Result<std::optional<std::string>> {
    return std::optional<std::string>();
  };
  here.host_name = [] { return std::string("h"); };
  here.now = [] { return Nanos{1}; };
  here.pause = [](Nanos) {};
  const auto outcome = discovery::discover(here, name);
  if (!outcome) return check_error(outcome.error());
  if (!outcome->found) return;
  const discovery::Found& found = *outcome->found;
  SLUICE_ASSERT(!found.reducers.empty() && found.reducers.size() <= config::kMaxEndpoints);
  if (found.role == discovery::Role::kReducer)
    SLUICE_ASSERT(found.index && *found.index < found.reducers.size());
  if (found.role == discovery::Role::kUnknown) SLUICE_ASSERT(!found.index);
  // What is found can be written down and read back.
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

void reply(std::string_view text) {
  const std::span<const uint8_t> bytes(reinterpret_cast<const uint8_t*>(text.data()), text.size());
  const uint16_t id = bytes.size() < 2 ? uint16_t{0} : static_cast<uint16_t>(bytes[0] << 8 | bytes[1]);
  const auto read = discovery::read_srv_reply(bytes, id);
  if (!read) return;
  SLUICE_ASSERT((read->kind == discovery::SrvReply::Kind::kRecords) == !read->records.empty());
  for (const auto& record : read->records) SLUICE_ASSERT(record.target.size() <= 253);
}

void resolver(std::string_view text) {
  const auto conf = discovery::parse_resolv_conf(text);
  SLUICE_ASSERT(!conf.servers.empty() && conf.servers.size() <= 3);
  for (const auto& server : conf.servers) SLUICE_ASSERT(!server.address.empty());
  for (const std::string& name : discovery::candidates("_data._tcp.r", conf)) {
    const auto query = discovery::srv_query(name, 1);
    if (!query) check_error(query.error());
  }
}

void one(Input in) {
  const uint32_t what = in.below(8);
  const auto rest = in.some(in.left());
  const std::string_view text(reinterpret_cast<const char*>(rest.data()), rest.size());
  switch (what) {
    case 0: return hostlist(text);
    case 1: return source("cluster-spec", "CLUSTER_SPEC", text);
    case 2: return source("tf-config", "TF_CONFIG", text);
    case 3: return source("sagemaker", "SM_RESOURCE_CONFIG", text);
    case 4: return source("kubernetes", "SLUICE_REDUCER_POD_PATTERN", text);
    case 5: return order(text);
    case 6: return reply(text);
    default: return resolver(text);
  }
}

}  // namespace
}  // namespace sluice::fuzz

extern "C" int LLVMFuzzerTestOneInput(const uint8_t* data, size_t size) {
  sluice::fuzz::one({data, size});
  return 0;
}
