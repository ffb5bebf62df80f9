// Which reducers a command asks for their status, and the proof that they want.
#pragma once

#include <string>

#include "bench/e2e/pool_status.h"
#include "cli/option_set.h"
#include "core/units.h"

namespace sluice::cli {

struct PoolFlags {
  std::string reducers = {};
  std::string key_file = {};
  std::string token_file = {};
  std::string job = "default";
  Nanos timeout = 5 * kSecond;

  // Outlives the parse.
  void add_to(OptionSet& set);
  // A Failure of kExitConfig says what of a file is wrong.
  [[nodiscard]] bench::Credentials credentials() const;
};

}  // namespace sluice::cli
