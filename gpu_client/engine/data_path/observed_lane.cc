#include "gpu_client/engine/data_path/observed_lane.h"

#include "core/clock.h"
#include "gpu_client/engine/data_path/operation_recorder.h"
#include "wire/extension.h"

namespace sluice::engine {

// A contribution that is put again in the same view keeps the time of its first put.
Status ObservedLane::put(const wire::FrameHeader& header, std::span<const std::byte> extensions,
                         std::span<const std::byte> payload, transport::Cookie cookie) noexcept {
  const Status status = endpoint_->put(header, extensions, payload, cookie);
  if (!status.ok() || header.type != wire::FrameType::kContribution) return status;
  Put& p = puts_[header.sequence % puts_.size()];
  if (p.chunk == header.chunk && p.view_version == header.view_version) return status;
  const Nanos now = monotonic_now();
  p = {.chunk = header.chunk,
       .operation = recorder_.chunk_put(header.chunk, now),
       .view_version = header.view_version,
       .at = now};
  return status;
}

// Reports the result first, because it may end the operation.
void ObservedLane::on_frame(transport::Endpoint& ep, const wire::FrameHeader& header,
                            std::span<const std::byte> extensions, std::span<std::byte> payload) noexcept {
  if (header.type == wire::FrameType::kResult) {
    Put& p = puts_[header.sequence % puts_.size()];
    if (p.chunk == header.chunk && p.view_version == header.view_version && p.operation != kNoOperation) {
      recorder_.chunk_result({.chunk = header.chunk,
                              .operation = p.operation,
                              .lane = index_,
                              .put = p.at,
                              .result = monotonic_now(),
                              .info = wire::find_result_info(extensions).value_or(wire::ResultInfo{})});
    }
    p = {};
  }
  lane_.on_frame(ep, header, extensions, payload);
}

}  // namespace sluice::engine
