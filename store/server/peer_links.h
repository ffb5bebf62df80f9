// Class PeerLinks has connections to other reducers, opened when they are first used. One thread at a time.
#pragma once

#include <functional>
#include <map>
#include <memory>
#include <span>
#include <string>

#include "core/clock.h"
#include "core/result.h"
#include "core/units.h"
#include "store/server/model_record.h"
#include "transport/tcp/message_channel.h"

namespace sluice::store {

using transport::tcp::MessageChannel;

// Opens a connection that has received STORE_READY. Any thread.
using ConnectToStore = std::function<Result<MessageChannel>(StoreId store)>;

class PeerLinks {
 public:
  // Time for an answer that needs the other reducer's processor or network.
  static constexpr Nanos kAnswerTime = 30 * kSecond;

  explicit PeerLinks(ConnectToStore connect) : connect_(std::move(connect)) {}

  // Sends a request, whose body `bodies` follow one after another. A connection that the peer has closed
  // since its last answer is opened again. After an error the connection is closed.
  template <typename M>
  [[nodiscard]] Result<void> send(StoreId store, const M& message,
                                  std::initializer_list<std::span<const std::byte>> bodies = {});
  // Sends a body of the last request, in pieces.
  [[nodiscard]] Result<void> send_pieces(StoreId store, uint64_t bytes, const MessageChannel::Fill& fill);
  // The answer to the oldest request without one, within kAnswerTime.
  template <typename M>
  [[nodiscard]] Result<M> receive(StoreId store);
  // The same without a limit, until `is_over`, which is asked several times in a second.
  using IsOver = std::function<bool()>;
  template <typename M>
  [[nodiscard]] Result<M> receive(StoreId store, const IsOver& is_over);

 private:
  [[nodiscard]] Result<MessageChannel*> channel(StoreId store);
  // Waits until an answer begins.
  [[nodiscard]] Result<void> await(StoreId store, const IsOver& is_over);
  [[nodiscard]] tl::unexpected<Error> lost(StoreId store, Status status);

  ConnectToStore connect_;
  std::map<StoreId, MessageChannel> channels_;
};

template <typename M>
Result<void> PeerLinks::send(StoreId store, const M& message,
                             std::initializer_list<std::span<const std::byte>> bodies) {
  auto link = channel(store);
  if (!link) return tl::unexpected(link.error());
  Status status = (*link)->send(message, monotonic_now() + kAnswerTime);
  for (const auto body : bodies) {
    if (status.ok()) status = (*link)->send_body(body);
  }
  if (!status.ok()) return lost(store, status);
  return {};
}

template <typename M>
Result<M> PeerLinks::receive(StoreId store, const IsOver& is_over) {
  if (auto begun = await(store, is_over); !begun) return tl::unexpected(begun.error());
  return receive<M>(store);
}

template <typename M>
Result<M> PeerLinks::receive(StoreId store) {
  const auto found = channels_.find(store);
  if (found == channels_.end())
    return fail(Errc::kReset, "no connection to reducer " + std::to_string(store));
  if (const Status s = found->second.receive(monotonic_now() + kAnswerTime); !s.ok()) return lost(store, s);
  if (found->second.type() == wire::FrameType::kFailed) {
    wire::Failed failed;
    if (const Status s = found->second.decode(failed); !s.ok()) return lost(store, s);
    return fail(failed.code, "reducer " + std::to_string(store) + ": " + failed.text);
  }
  M message;
  if (const Status s = found->second.decode(message); !s.ok()) return lost(store, s);
  return message;
}

}  // namespace sluice::store
