#include "nccl_plugin/net/stream_settings.h"

#include "gpu_client/engine/join/lane_settings.h"
#include "nccl_plugin/host/log.h"
#include "wire/messages.h"

namespace sluice::nccl::net {
namespace {

Result<StreamSettings> read_settings_once() {
  auto settings = engine::read_lane_settings();
  if (settings && !settings->rdma_error.empty()) info("streams over TCP: %s", settings->rdma_error.c_str());
  if (!settings && settings.error().code == Errc::kInvalidArgument) {
    warn("streams over TCP: %s", settings.error().text.c_str());
    return StreamSettings{};
  }
  return settings;
}

}  // namespace

const Result<StreamSettings>& stream_settings() {
  // Never destroyed: threads of NCCL may still run while static objects are destroyed.
  static const auto& result = *new Result<StreamSettings>(read_settings_once());
  return result;
}

uint64_t stream_features(const StreamSettings& settings) noexcept {
  return (settings.rdma ? wire::kStreamRdma : 0) | (settings.rdma_required ? wire::kStreamRdmaOnly : 0);
}

Error rdma_required_error(const std::string& reason) {
  return {.code = Errc::kUnsupported,
          .text = "RDMA is required (SLUICE_TRANSPORT=rdma), but a stream cannot use it: " + reason};
}

}  // namespace sluice::nccl::net
