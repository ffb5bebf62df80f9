// What streams may go over: SLUICE_TRANSPORT, SLUICE_IB_HCA and SLUICE_IB_TC, as for the lanes of a session.
#pragma once

#include <cstdint>
#include <string>

#include "core/result.h"
#include "gpu_client/engine/greeting.h"

namespace sluice::nccl::net {

using StreamTerms = engine::LaneTerms;

// The process's own, read, and devices looked for, at the first call, which says what is wrong or missing.
// kUnsupported where RDMA alone is wanted and this machine has none; a value that can't be read counts as
// tcp.
[[nodiscard]] const Result<StreamTerms>& stream_terms();

// The features that this end tells the other.
[[nodiscard]] uint64_t features_of(const StreamTerms& terms) noexcept;

// "no RDMA for a stream, and nothing else is allowed: `why`".
[[nodiscard]] Error rdma_is_needed(const std::string& why);

}  // namespace sluice::nccl::net
