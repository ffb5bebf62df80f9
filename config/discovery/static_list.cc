#include <utility>

#include "config/discovery/sources.h"
#include "config/pool.h"
#include "config/printable_text.h"

namespace sluice::config::discovery {
namespace {

// Like config::read_pool(), accepts white space before the '@'.
bool names_a_file(const std::string& list) {
  const size_t first = list.find_first_not_of(" \t\r\n\v\f");
  return first != std::string::npos && list[first] == '@';
}

}  // namespace

SourceResult from_static_list(const Environment& env) {
  const auto list = env.variable("SLUICE_REDUCERS");
  if (!list) return NotConfigured{.reason = "SLUICE_REDUCERS is not set"};
  if (names_a_file(*list)) return NotConfigured{.reason = "SLUICE_REDUCERS names a file"};
  auto reducers = parse_endpoints(*list);
  if (!reducers) return add_context("SLUICE_REDUCERS", reducers.error());
  return DiscoveryResult{.reducers = std::move(*reducers)};
}

SourceResult from_file(const Environment& env) {
  const auto list = env.variable("SLUICE_REDUCERS");
  if (!list) return NotConfigured{.reason = "SLUICE_REDUCERS is not set"};
  if (!names_a_file(*list)) return NotConfigured{.reason = "SLUICE_REDUCERS does not name a file"};
  std::string path = list->substr(list->find('@') + 1);
  if (path.empty()) return invalid("SLUICE_REDUCERS: \"@\" must be followed by a file name");
  const auto text = env.read_file(path);
  if (!text) return add_context("SLUICE_REDUCERS", text.error());
  if (!*text) return fail(Errc::kSystem, "SLUICE_REDUCERS: file " + printable(path) + " does not exist");
  auto reducers = parse_pool_file(**text);
  if (!reducers) return fail(reducers.error().code, path + ":" + reducers.error().text);
  return DiscoveryResult{.reducers = std::move(*reducers), .file = std::move(path)};
}

}  // namespace sluice::config::discovery
