// The functions of this room in a build without the headers of libibverbs: RDMA is unsupported.
#include "transport/rdma/device_report.h"
#include "transport/rdma/pairing.h"
#include "transport/rdma/rdma_context.h"
#include "transport/tcp/blocking_io.h"

namespace sluice::transport::rdma {
namespace {

tl::unexpected<Error> not_built() {
  return fail(Errc::kUnsupported, "no RDMA support: this program was built without libibverbs");
}

class UnsupportedMemory final : public Memory {
 public:
  Result<void> add(std::span<std::byte> /*bytes*/, Use /*use*/) override { return {}; }
  Result<void> add_device(std::span<std::byte> /*bytes*/, const DmaBuf& /*dmabuf*/) override {
    return not_built();
  }
  bool remove(std::span<std::byte> /*bytes*/, Use /*use*/) noexcept override { return true; }
  std::string first_error() const override { return {}; }
};

}  // namespace

Result<Rails> find_rails(const RailChoice& /*choice*/) {
  return not_built();
}

void poll_device_events() {}

std::vector<DeviceReport> device_reports() {
  return {};
}

std::shared_ptr<Memory> Memory::make() {
  return std::make_shared<UnsupportedMemory>();
}

Result<ConnectionGids> connection_gids(int /*connection*/) {
  return not_built();
}

Result<PairOffer> offer_pair(const Result<ConnectionGids>& /*gids*/, const RailChoice& /*choice*/,
                             const PairMemory& /*memory*/) {
  return not_built();
}

Result<void> check_pair_address(const ConnectionGids& /*gids*/, std::span<const std::byte> /*address*/) {
  return not_built();
}

Result<void> connect_pair(tcp::AttachedChannel& /*pair*/, const Result<ConnectionGids>& /*gids*/,
                          std::span<const std::byte> /*address*/) {
  return not_built();
}

Result<void> probe_pair(tcp::AttachedChannel& /*pair*/, const tcp::Deadline& /*until*/) {
  return not_built();
}

Result<void> start_probe(tcp::AttachedChannel& /*pair*/) {
  return not_built();
}

Result<void> poll_probe(tcp::AttachedChannel& /*pair*/, Nanos /*since*/, Nanos /*now*/) {
  return not_built();
}

Result<std::unique_ptr<tcp::TcpContext>> make_context() {
  return tcp::make_context();
}

}  // namespace sluice::transport::rdma
