// Declares the options of commands that query reducers for their status: the reducers and the credentials.
#pragma once

#include <string>
#include <vector>

#include "cli/options/credential_flags.h"
#include "cli/options/option_set.h"
#include "config/pool.h"
#include "core/units.h"

namespace sluice::cli {

struct PoolFlags {
  std::string reducers = {};
  CredentialFlags credentials = {};
  Nanos timeout = 5 * kSecond;

  // This object must outlive the parse.
  void add_to(OptionSet& set);
};

// Reads the list of an option. Failure kExitUsage: it is not valid; the text names SLUICE_REDUCERS if that is
// where the list comes from.
[[nodiscard]] std::vector<config::Endpoint> reducers_of(const std::string& list);

}  // namespace sluice::cli
