// A build without libibverbs' headers.
#include "transport/rdma/device_report.h"
#include "transport/rdma/pairing.h"
#include "transport/rdma/rdma_context.h"

namespace sluice::transport::rdma {
namespace {

tl::unexpected<Error> not_built() {
  return fail(Errc::kUnsupported, "no RDMA: this program was built without it");
}

}  // namespace

Result<Rails> rails(const RailChoice& /*choice*/) {
  return not_built();
}

void look_at_devices() {}

std::vector<DeviceReport> device_reports() {
  return {};
}

Result<PairOffer> offer_pair(int /*connection*/, const RailChoice& /*choice*/) {
  return not_built();
}

Result<void> check_pair_address(int /*connection*/, std::span<const std::byte> /*address*/) {
  return not_built();
}

Result<void> join_pair(tcp::Companion& /*pair*/, int /*connection*/, std::span<const std::byte> /*address*/) {
  return not_built();
}

Result<void> prove_pair(tcp::Companion& /*pair*/, const tcp::Until& /*until*/) {
  return not_built();
}

Result<std::unique_ptr<tcp::TcpContext>> make_context() {
  return tcp::make_context();
}

}  // namespace sluice::transport::rdma
