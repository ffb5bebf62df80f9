// A build without libibverbs' headers.
#include "transport/rdma/device_report.h"
#include "transport/rdma/pairing.h"
#include "transport/rdma/rdma_context.h"

namespace sluice::transport::rdma {
namespace {

tl::unexpected<Error> not_built() {
  return fail(Errc::kUnsupported, "no RDMA: this program was built without it");
}

class NoMemory final : public Memory {
 public:
  Result<void> add(std::span<std::byte> /*bytes*/, Use /*use*/) override { return {}; }
  Result<void> add_device(std::span<std::byte> /*bytes*/, const DmaBuf& /*dmabuf*/) override {
    return not_built();
  }
  bool remove(std::span<std::byte> /*bytes*/, Use /*use*/) noexcept override { return true; }
  std::string refused() const override { return {}; }
};

}  // namespace

Result<Rails> rails(const RailChoice& /*choice*/) {
  return not_built();
}

void look_at_devices() {}

std::vector<DeviceReport> device_reports() {
  return {};
}

std::shared_ptr<Memory> Memory::make() {
  return std::make_shared<NoMemory>();
}

Result<ConnectionEnds> ends_of(int /*connection*/) {
  return not_built();
}

Result<PairOffer> offer_pair(const ConnectionEnds& /*ends*/, const RailChoice& /*choice*/,
                             const PairMemory& /*memory*/) {
  return not_built();
}

Result<PairOffer> offer_pair(int /*connection*/, const RailChoice& /*choice*/, const PairMemory& /*memory*/) {
  return not_built();
}

Result<void> check_pair_address(const ConnectionEnds& /*ends*/, std::span<const std::byte> /*address*/) {
  return not_built();
}

Result<void> join_pair(tcp::Companion& /*pair*/, const ConnectionEnds& /*ends*/,
                       std::span<const std::byte> /*address*/) {
  return not_built();
}

Result<void> join_pair(tcp::Companion& /*pair*/, int /*connection*/, std::span<const std::byte> /*address*/) {
  return not_built();
}

Result<void> prove_pair(tcp::Companion& /*pair*/, const tcp::Until& /*until*/) {
  return not_built();
}

Result<void> start_proof(tcp::Companion& /*pair*/) {
  return not_built();
}

Result<void> look_at_proof(tcp::Companion& /*pair*/, Nanos /*since*/, Nanos /*now*/) {
  return not_built();
}

Result<std::unique_ptr<tcp::TcpContext>> make_context() {
  return tcp::make_context();
}

}  // namespace sluice::transport::rdma
