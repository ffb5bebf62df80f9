// Struct LaneSettings selects the transport of a worker's lane connections (docs/design/rdma.md).
#pragma once

#include <memory>
#include <string>

#include "core/result.h"
#include "transport/rdma/memory.h"
#include "transport/rdma/pairing.h"

namespace sluice::engine {

struct LaneSettings {
  // The reducer runs in this process: use memory. Set for one reducer only.
  bool same_process = false;
  bool sparse = true;          // zero blocks do not travel where the reducer supports it
  bool rdma = false;           // use RDMA where the reducer supports it
  bool rdma_required = false;  // a reducer without RDMA is an error
  std::string rdma_error{};    // why this host has no RDMA; empty: TCP was selected
  transport::rdma::RailChoice choice{};
  transport::rdma::Rails rails{};                     // kept open for the life of the settings
  std::shared_ptr<transport::rdma::Memory> memory{};  // of the session; null without RDMA
};

// Reads SLUICE_ZERO_BLOCKS (skip, send; default skip), SLUICE_TRANSPORT (auto, tcp, rdma; default auto),
// SLUICE_IB_HCA, SLUICE_IB_GID_INDEX and SLUICE_IB_TC, and looks for RDMA devices. Returns kInvalidArgument
// with the variable, or kUnsupported when rdma is required and this host has no RDMA device.
[[nodiscard]] Result<LaneSettings> read_lane_settings();

}  // namespace sluice::engine
