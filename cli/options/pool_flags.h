// Declares the options of commands that query reducers for their status: the reducers and the credentials.
#pragma once

#include <string>

#include "bench/e2e/pool/pool_status.h"
#include "cli/options/option_set.h"
#include "core/units.h"

namespace sluice::cli {

struct PoolFlags {
  std::string reducers = {};
  std::string key_file = {};
  std::string token_file = {};
  std::string job = "default";
  Nanos timeout = 5 * kSecond;

  // This object must outlive the parse.
  void add_to(OptionSet& set);
  // Throws Failure(kExitConfig) when the key or the token file is invalid.
  [[nodiscard]] bench::Credentials credentials() const;
};

}  // namespace sluice::cli
