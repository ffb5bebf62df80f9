#pragma once

#include <memory>
#include <span>

#include "core/result.h"
#include "nccl_plugin/collnet/comm.h"
#include "nccl_plugin/collnet/listener.h"
#include "nccl_plugin/host/settings.h"

namespace sluice::nccl::collnet {

// Connects the nodes with these handles and joins a session with all reducers. All nodes succeed, or all fail
// with the same error. Blocks, as connect() in collnet.h.
[[nodiscard]] Result<std::unique_ptr<Comm>> connect_session(std::span<void* const> handles,
                                                            Listener& listener, const Settings& settings);

}  // namespace sluice::nccl::collnet
