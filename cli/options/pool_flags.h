// Declares the options of commands that query reducers for their status: the reducers and the credentials.
#pragma once

#include <string>

#include "cli/options/credential_flags.h"
#include "cli/options/option_set.h"
#include "core/units.h"

namespace sluice::cli {

struct PoolFlags {
  std::string reducers = {};
  CredentialFlags credentials = {};
  Nanos timeout = 5 * kSecond;

  // This object must outlive the parse.
  void add_to(OptionSet& set);
};

// An OptionSet::Check of a reducer list: the error then names the option or the variable that has the list. A
// file of reducers, @FILE, is read when it is used.
[[nodiscard]] std::string check_reducer_list(const std::string& list);

}  // namespace sluice::cli
