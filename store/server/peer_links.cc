#include "store/server/peer_links.h"

namespace sluice::store {
namespace {

constexpr Nanos kOverInterval = 100 * kMillisecond;

}  // namespace

Result<MessageChannel*> PeerLinks::channel(StoreId store) {
  if (const auto found = channels_.find(store); found != channels_.end()) return &found->second;
  auto opened = connect_(store);
  if (!opened) return tl::unexpected(opened.error());
  return &channels_.emplace(store, std::move(*opened)).first->second;
}

Result<void> PeerLinks::send_pieces(StoreId store, uint64_t bytes, const MessageChannel::Fill& fill) {
  const auto found = channels_.find(store);
  if (found == channels_.end())
    return fail(Errc::kReset, "no connection to reducer " + std::to_string(store));
  if (const Status s = found->second.send_pieces(bytes, fill); !s.ok()) return lost(store, s);
  return {};
}

Result<void> PeerLinks::await(StoreId store, const IsOver& is_over) {
  const auto found = channels_.find(store);
  if (found == channels_.end())
    return fail(Errc::kReset, "no connection to reducer " + std::to_string(store));
  Status status;
  do {
    status = found->second.wait(monotonic_now() + kOverInterval);
  } while (status == Errc::kTimeout && !is_over());
  if (!status.ok()) return lost(store, status);
  return {};
}

tl::unexpected<Error> PeerLinks::lost(StoreId store, Status status) {
  channels_.erase(store);
  return fail(Errc::kReset,
              "reducer " + std::to_string(store) + ": " + std::string(to_string(status.code())));
}

}  // namespace sluice::store
