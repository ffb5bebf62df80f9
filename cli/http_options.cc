#include "cli/http_options.h"

#include "bench/e2e/machine_facts.h"
#include "cli/commands.h"
#include "cli/listen_address.h"
#include "reducer/kernels/fold.h"

namespace sluice::cli {

reducer::admin::HttpOptions http_options(const std::string& listen) {
  const ListenAddress address = parse_listen(listen, "--http-listen", kHttpPort);
  std::string simd;
  for (const kernels::FoldTarget& target : kernels::fold_targets()) {
    if (simd.empty()) simd = target.name;  // the one that is used
  }
  return {.host = address.host,
          .port = address.port,
          .build = {{"revision", bench::revision()}, {"compiler", compiler_text()}, {"simd", simd}}};
}

}  // namespace sluice::cli
