#include <utility>

#include "config/discovery/sources.h"
#include "config/plain_text.h"
#include "config/pool.h"

namespace sluice::config::discovery {
namespace {

// As config::read_pool() has it: white space may stand before the '@'.
bool names_a_file(const std::string& list) {
  const size_t first = list.find_first_not_of(" \t\r\n\v\f");
  return first != std::string::npos && list[first] == '@';
}

}  // namespace

Answer from_static_list(const Surroundings& here) {
  const auto list = here.variable("SLUICE_REDUCERS");
  if (!list) return NotHere{.why = "SLUICE_REDUCERS is not set"};
  if (names_a_file(*list)) return NotHere{.why = "SLUICE_REDUCERS names a file"};
  auto reducers = parse_endpoints(*list);
  if (!reducers) return add_context("SLUICE_REDUCERS", reducers.error());
  return Found{.reducers = std::move(*reducers)};
}

Answer from_file(const Surroundings& here) {
  const auto list = here.variable("SLUICE_REDUCERS");
  if (!list) return NotHere{.why = "SLUICE_REDUCERS is not set"};
  if (!names_a_file(*list)) return NotHere{.why = "SLUICE_REDUCERS names no file"};
  std::string path = list->substr(list->find('@') + 1);
  if (path.empty()) return fail(Errc::kInvalidArgument, "SLUICE_REDUCERS: \"@\" without a file behind it");
  const auto text = here.read_file(path);
  if (!text) return add_context("SLUICE_REDUCERS", text.error());
  if (!*text) return fail(Errc::kSystem, "SLUICE_REDUCERS: " + plain(path) + " is not there");
  auto reducers = parse_pool_file(**text);
  if (!reducers) return fail(reducers.error().code, path + ":" + reducers.error().text);
  return Found{.reducers = std::move(*reducers), .file = std::move(path)};
}

}  // namespace sluice::config::discovery
