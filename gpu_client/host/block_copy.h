// The conversions of a GPU between f32 and blocks, done by the CPU. The results have the same bits.
#pragma once

#include <cstddef>
#include <span>

#include "gpu_client/pipeline/cast.h"
#include "gpu_client/pipeline/device.h"

namespace sluice::host {

// What gather() and scatter() of cast_copy.h do for the block types. The segment begins with a block; its
// last block may be partial.
void gather_blocks(std::span<const pipeline::BufferRange> ranges, std::byte* staging,
                   const pipeline::Cast& cast, pipeline::CastError& error) noexcept;
void scatter_blocks(const std::byte* staging, std::span<const pipeline::BufferRange> ranges,
                    const pipeline::Cast& cast) noexcept;

}  // namespace sluice::host
