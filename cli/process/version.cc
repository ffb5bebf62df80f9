#include <fmt/format.h>

#include "cli/process/version.h"
#include "core/revision.h"
#include "reducer/kernels/fold.h"
#include "wire/frame.h"
#include "wire/handshake.h"

namespace sluice::cli {

std::string compiler_text() {
#if defined(__clang__)
  return fmt::format("clang {}.{}.{}", __clang_major__, __clang_minor__, __clang_patchlevel__);
#else
  return fmt::format("gcc {}.{}.{}", __GNUC__, __GNUC_MINOR__, __GNUC_PATCHLEVEL__);
#endif
}

std::string version_text() {
  std::string targets;
  for (const kernels::FoldTarget& target : kernels::fold_targets())
    targets += fmt::format(" {}", target.name);
  return fmt::format("sluice {}\nrevision {}\nprotocol {}\ncompiler {}\nkernel targets of this CPU{}",
                     SLUICE_VERSION, revision(), wire::version_range(wire::kVersionMin, wire::kVersionMax),
                     compiler_text(), targets);
}

}  // namespace sluice::cli
