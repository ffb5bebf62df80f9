#include "cli/options/pool_flags.h"

namespace sluice::cli {

void PoolFlags::add_to(OptionSet& set) {
  set.text("--reducers", reducers, "LIST", "reducers to query: host:port,host:port,... or @FILE")->required();
  credentials.add_to(set);
  set.duration("--timeout", timeout, "time limit per reducer");
}

}  // namespace sluice::cli
