// Waits for the streams of one sender. Anything else that connects is dropped and disturbs nothing.
#pragma once

#include <deque>
#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "core/result.h"
#include "core/units.h"
#include "nccl_plugin/net/greeted_streams.h"
#include "nccl_plugin/net/greeting.h"
#include "nccl_plugin/net/invitation.h"
#include "nccl_plugin/net/stream_pairing.h"
#include "nccl_plugin/net/stream_terms.h"
#include "transport/tcp/socket.h"
#include "transport/tcp/tcp_context.h"

namespace sluice::nccl::net {

class Listener {
 public:
  // On `address` (numeric), a port of the OS's choice; both are written into `handle`. `terms` outlive it.
  [[nodiscard]] static Result<std::unique_ptr<Listener>> open(const std::string& address,
                                                              const StreamTerms& terms, Handle handle);

  // kWouldBlock until the streams are there. Never blocks. After any other error nothing more will come.
  [[nodiscard]] Result<GreetedStreams> accept(Nanos now);

 private:
  struct Caller {
    transport::tcp::Socket socket;
    Nanos deadline;
    FrameBytes frame;
  };

  Listener(transport::tcp::Socket socket, const Secret& secret, const StreamTerms& terms)
      : socket_(std::move(socket)), secret_(secret), terms_(terms) {}
  // False when descriptors ran out before callers did.
  [[nodiscard]] bool take_callers(Nanos now);
  [[nodiscard]] Result<void> hear_callers(Nanos now);
  [[nodiscard]] Result<void> greet(transport::tcp::Socket socket, const wire::StreamOffer& offer, Nanos now);
  [[nodiscard]] Result<GreetedStreams> answer_all();
  [[nodiscard]] Result<GreetedStreams> agree_on_pairs(GreetedStreams answered, Nanos now);
  [[nodiscard]] Result<GreetedStreams> wait_for_pairs(Nanos now);

  transport::tcp::Socket socket_;
  const Secret secret_;
  const StreamTerms& terms_;
  std::unique_ptr<transport::tcp::TcpContext>
      context_;         // made first: what comes after may use up the descriptors
  Nanos deadline_ = 0;  // 0 before the first accept()
  bool told_exhausted_ = false;
  std::deque<Caller> callers_;
  std::vector<transport::tcp::Socket>
      streams_;  // by index, as many as the sender has opened; those not there yet are not valid
  size_t greeted_ = 0;
  uint8_t version_ = 0;
  uint64_t features_ = 0;                   // the sender's
  std::optional<StreamPairings> pairings_;  // of a sender that was answered
};

}  // namespace sluice::nccl::net
