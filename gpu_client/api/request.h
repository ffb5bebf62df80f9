// Validates the arguments of an operation and converts them for the engine.
#pragma once

#include <cstddef>
#include <span>

#include "core/ids.h"
#include "gpu_client/engine/data_path/op_table.h"
#include "gpu_client/engine/session/collective_session.h"
#include "gpu_client/include/sluice/sluice.h"

namespace sluice::api {

// Sets `out` and returns null, or returns the reason for which the arguments are invalid.
[[nodiscard]] const char* read_request(const void* send, void* recv, size_t count, sluice_dtype dtype,
                                       sluice_op op, engine::OpRequest& out) noexcept;

// The same for dtype and op alone.
[[nodiscard]] const char* read_types(sluice_dtype dtype, sluice_op op, engine::OpRequest& out) noexcept;

// The same for reduce-scatter and all-gather. `out` has the kind, dtype and op; refers to `counts`.
[[nodiscard]] const char* read_parts(const void* send, void* recv, size_t count,
                                     std::span<const size_t> counts, Rank rank, uint32_t ranks,
                                     engine::OpRequest& out) noexcept;

// The same for the arguments of a whole call. `counts`, an array of as many numbers as ranks, may be null.
[[nodiscard]] const char* read_parts_of_session(const engine::CollectiveSession& session, wire::Kind kind,
                                                const void* send, void* recv, size_t count,
                                                const size_t* counts, sluice_dtype dtype, sluice_op op,
                                                engine::OpRequest& out) noexcept;
[[nodiscard]] const char* read_reduce(const engine::CollectiveSession& session, const void* send, void* recv,
                                      size_t count, sluice_dtype dtype, sluice_op op, uint32_t root,
                                      engine::OpRequest& out) noexcept;
[[nodiscard]] const char* read_broadcast(const engine::CollectiveSession& session, void* buffer, size_t count,
                                         sluice_dtype dtype, uint32_t root, engine::OpRequest& out) noexcept;

}  // namespace sluice::api
