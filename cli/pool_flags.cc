#include "cli/pool_flags.h"

#include "bench/e2e/exit_codes.h"

namespace sluice::cli {

void PoolFlags::add_to(OptionSet& set) {
  set.text("--reducers", reducers, "LIST", "host:port,host:port,... or @FILE")->required();
  set.text("--key-file", key_file, "FILE", "pool key, or ...");
  set.text("--token-file", token_file, "FILE", "... the token of --job");
  set.text("--job", job, "NAME", "job that the token is for");
  set.duration("--timeout", timeout, "for each reducer");
}

bench::Credentials PoolFlags::credentials() const {
  return bench::value_or_fail(bench::read_credentials(key_file, token_file, job), bench::kExitConfig);
}

}  // namespace sluice::cli
