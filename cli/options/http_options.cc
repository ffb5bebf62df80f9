#include "cli/options/http_options.h"

#include "bench/e2e/report/machine_facts.h"
#include "cli/options/listen_address.h"
#include "cli/process/version.h"
#include "reducer/kernels/fold.h"

namespace sluice::cli {

reducer::admin::HttpOptions http_options(const std::string& listen) {
  const ListenAddress address = require_listen_address(listen, "--http-listen", kHttpPort);
  std::string simd;
  for (const kernels::FoldTarget& target : kernels::fold_targets()) {
    if (simd.empty()) simd = target.name;  // the first target is the one in use
  }
  return {.host = address.host,
          .port = address.port,
          .build = {{"revision", bench::revision()}, {"compiler", compiler_text()}, {"simd", simd}}};
}

}  // namespace sluice::cli
