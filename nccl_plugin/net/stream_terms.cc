#include "nccl_plugin/net/stream_terms.h"

#include <utility>

#include "gpu_client/engine/lane_terms.h"
#include "nccl_plugin/host/log.h"
#include "wire/messages.h"

namespace sluice::nccl::net {
namespace {

Result<StreamTerms> read_terms() {
  auto terms = engine::read_transport_variables();
  if (terms && !terms->no_rdma.empty()) info("streams over TCP: %s", terms->no_rdma.c_str());
  if (!terms && terms.error().code == Errc::kInvalidArgument) {
    warn("streams over TCP: %s", terms.error().text.c_str());
    return StreamTerms{};
  }
  return terms;
}

}  // namespace

const Result<StreamTerms>& stream_terms() {
  // Never destroyed: threads of NCCL may run on while statics end.
  static const auto& own = *new Result<StreamTerms>(read_terms());
  return own;
}

uint64_t features_of(const StreamTerms& terms) noexcept {
  return (terms.rdma ? wire::kStreamRdma : 0) | (terms.only_rdma ? wire::kStreamRdmaAlone : 0);
}

Error rdma_is_needed(const std::string& why) {
  return {.code = Errc::kUnsupported, .text = "no RDMA for a stream, and nothing else is allowed: " + why};
}

}  // namespace sluice::nccl::net
