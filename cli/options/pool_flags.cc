#include "cli/options/pool_flags.h"

#include <cstdlib>

#include "bench/e2e/process/exit_codes.h"

namespace sluice::cli {

void PoolFlags::add_to(OptionSet& set) {
  set.text("--reducers", reducers, "LIST", "reducers to query: host:port,host:port,... or @FILE")->required();
  credentials.add_to(set);
  set.duration("--timeout", timeout, "time limit per reducer");
}

std::vector<config::Endpoint> reducers_of(const std::string& list) {
  auto read = config::read_reducers(list);
  if (read) return std::move(*read);
  const char* const variable = std::getenv("SLUICE_REDUCERS");
  const bool is_of_variable = variable != nullptr && variable == list;
  throw bench::Failure(bench::kExitUsage, (is_of_variable ? "SLUICE_REDUCERS: " : "") + read.error().text);
}

}  // namespace sluice::cli
