#include "cli/options/pool_flags.h"

#include "bench/e2e/process/exit_codes.h"

namespace sluice::cli {

void PoolFlags::add_to(OptionSet& set) {
  set.text("--reducers", reducers, "LIST", "reducers to query: host:port,host:port,... or @FILE")->required();
  set.text("--key-file", key_file, "FILE", "pool key; alternative to --token-file");
  set.text("--token-file", token_file, "FILE", "token of --job; alternative to --key-file");
  set.text("--job", job, "NAME", "job name of the token");
  set.duration("--timeout", timeout, "time limit per reducer");
}

bench::Credentials PoolFlags::credentials() const {
  return bench::value_or_fail(bench::read_credentials(key_file, token_file, job), bench::kExitConfig);
}

}  // namespace sluice::cli
