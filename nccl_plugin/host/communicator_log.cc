#include "nccl_plugin/host/communicator_log.h"

namespace sluice::nccl {

CommunicatorLog& communicator_log() noexcept {
  static CommunicatorLog log;
  return log;
}

}  // namespace sluice::nccl
