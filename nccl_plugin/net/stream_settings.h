#pragma once

#include <cstdint>
#include <string>

#include "core/result.h"
#include "gpu_client/engine/join/lane_settings.h"

namespace sluice::nccl::net {

// The transport settings of streams, the same as those of lanes: SLUICE_TRANSPORT, SLUICE_IB_HCA,
// SLUICE_IB_TC.
using StreamSettings = engine::LaneSettings;

// Returns the settings of the process. The first call reads the variables, searches the RDMA devices, and
// logs errors. kUnsupported: RDMA is required and this host has none. An invalid value counts as tcp.
[[nodiscard]] const Result<StreamSettings>& stream_settings();

// The feature bits for the peer.
[[nodiscard]] uint64_t stream_features(const StreamSettings& settings) noexcept;

[[nodiscard]] Error rdma_required_error(const std::string& reason);

}  // namespace sluice::nccl::net
