// Class CredentialFlags declares the options with which every command proves its job and uses TLS. An option
// replaces its variable in the environment of this process, where the library, the NCCL plugin, and the
// workers and reducers that the command starts read it (gpu_client/engine/join/credentials.h).
#pragma once

#include <string>

#include "cli/options/option_set.h"
#include "gpu_client/engine/join/handshake.h"

namespace sluice::cli {

class CredentialFlags {
 public:
  // This object must outlive the parse.
  void add_to(OptionSet& set);
  // For a command that needs the pool key. --token-file is hidden, and there for a clear refusal.
  void add_pool_key_to(OptionSet& set);
  // Exports the options and reads the result. Call it before other threads start. Throws Failure: kExitUsage
  // for contradictory options, kExitConfig for a file that cannot be used, kExitUnavailable without TLS.
  // `job` replaces the option and its variable; null: they decide.
  [[nodiscard]] engine::Identity identity(const char* job = nullptr) const;

 private:
  void add_tls_to(OptionSet& set);

  std::string job_ = "default";
  std::string tenant_;
  std::string key_file_;
  std::string token_file_;
  std::string tls_;
  std::string tls_ca_;
  std::string tls_cert_;
  std::string tls_key_;
};

}  // namespace sluice::cli
