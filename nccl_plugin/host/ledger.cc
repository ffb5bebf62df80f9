#include "nccl_plugin/host/ledger.h"

namespace sluice::nccl {

Ledger& ledger() noexcept {
  static Ledger of_process;
  return of_process;
}

}  // namespace sluice::nccl
