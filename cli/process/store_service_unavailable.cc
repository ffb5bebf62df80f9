// StoreService of a build without SQLite 3.
#include "cli/process/store_service.h"

#include <utility>

#include "store/server/store_server.h"

namespace sluice::cli {

StoreService::StoreService(StoreServiceOptions options) : options_(std::move(options)) {}
StoreService::~StoreService() = default;
void StoreService::attach(reducer::ReducerOptions&) {}
Result<void> StoreService::check() const {
  if (options_.folder.empty()) return {};
  return fail(Errc::kUnsupported, "this program was built without SQLite 3, which models need");
}
Result<void> StoreService::open() {
  return check();
}
Result<void> StoreService::start(const reducer::ReducerOptions&, uint16_t, std::function<bool()>) {
  return check();
}
Result<std::shared_ptr<const engine::TlsSettings>> StoreService::read_tls(
    const reducer::ReducerOptions&) const {
  return std::shared_ptr<const engine::TlsSettings>();
}
void StoreService::use(std::shared_ptr<const engine::TlsSettings>, const std::optional<config::SecretFile>&) {
}
void StoreService::stop() noexcept {}

}  // namespace sluice::cli
