// From the handles of all nodes to a session, or to one reason for all of them.
#pragma once

#include <memory>
#include <span>

#include "core/result.h"
#include "nccl_plugin/collnet/comm.h"
#include "nccl_plugin/collnet/listener.h"
#include "nccl_plugin/host/settings.h"

namespace sluice::nccl::collnet {

[[nodiscard]] Result<std::unique_ptr<Comm>> join(std::span<void* const> handles, Listener& listener,
                                                 const Settings& settings);

}  // namespace sluice::nccl::collnet
