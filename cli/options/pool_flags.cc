#include "cli/options/pool_flags.h"

#include "config/pool.h"

namespace sluice::cli {

void PoolFlags::add_to(OptionSet& set) {
  set.text("--reducers", reducers, "LIST", "reducers to query: host:port,host:port,... or @FILE",
           check_reducer_list)
      ->required();
  credentials.add_to(set);
  set.duration("--timeout", timeout, "time limit per reducer");
}

std::string check_reducer_list(const std::string& list) {
  if (list.empty() || list.starts_with('@')) return "";
  const auto read = config::read_reducers(list);
  return read ? "" : read.error().text;
}

}  // namespace sluice::cli
