// Opens the streams to a listener: all connects at once, then a STREAM on each, then the answers, then queue
// pairs where both ends offer them. Never blocks.
#pragma once

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

namespace sluice::nccl::net {

class Connector {
 public:
  // With fewer than `streams` when descriptors run out (one is needed), which is told. `local_address` as in
  // begin_connect(). `terms` outlive it.
  [[nodiscard]] static Result<std::unique_ptr<Connector>> start(const Invitation& invitation,
                                                                const std::string& local_address,
                                                                unsigned streams, const StreamTerms& terms,
                                                                Nanos now);
  // kWouldBlock until the streams are there. After any other error it is over.
  [[nodiscard]] Result<GreetedStreams> progress(Nanos now);

  [[nodiscard]] const Secret& secret() const noexcept { return invitation_.secret; }
  // Far past its deadlines: nobody has called progress() for a long time.
  [[nodiscard]] bool forgotten(Nanos now) const noexcept;

 private:
  struct Stream {
    transport::tcp::Socket socket;
    bool greeted = false;  // STREAM is sent
    bool answered = false;
    FrameBytes answer;
  };

  Connector(const Invitation& invitation, const StreamTerms& terms, Nanos now);
  // Both ends offer queue pairs.
  [[nodiscard]] bool pairs() const noexcept;
  // Either end takes nothing else.
  [[nodiscard]] bool pairs_alone() const noexcept;
  [[nodiscard]] Result<void> advance(size_t index, Nanos now);
  [[nodiscard]] Result<void> hear_answer(Stream& stream);
  [[nodiscard]] Result<GreetedStreams> hear_answers(Nanos now);
  [[nodiscard]] GreetedStreams streams_that_were_answered();

  const Invitation invitation_;
  const StreamTerms& terms_;
  const std::string peer_;
  Nanos deadline_;
  std::unique_ptr<transport::tcp::TcpContext> context_;
  std::vector<Stream> streams_;
  size_t greeted_ = 0;
  size_t answers_ = 0;
  size_t answers_to_come_ = 0;              // as the first answer says; 0 before
  std::optional<StreamPairings> pairings_;  // once all are answered
};

}  // namespace sluice::nccl::net
