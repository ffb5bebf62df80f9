// Opens the streams to a listener: all connects at once, then a STREAM on each, then the answers. Never
// blocks.
#pragma once

#include <memory>
#include <string>
#include <vector>

#include "core/result.h"
#include "core/units.h"
#include "nccl_plugin/net/greeted_streams.h"
#include "nccl_plugin/net/greeting.h"
#include "nccl_plugin/net/invitation.h"

namespace sluice::nccl::net {

class Connector {
 public:
  // With fewer than `streams` when descriptors run out (one is needed), which is told. `local_address` as in
  // begin_connect().
  [[nodiscard]] static Result<std::unique_ptr<Connector>> start(const Invitation& invitation,
                                                                const std::string& local_address,
                                                                unsigned streams, Nanos now);
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
    ExactBytes<kAnswerBytes> answer;
  };

  Connector(const Invitation& invitation, Nanos now);
  [[nodiscard]] Result<void> advance(size_t index, Nanos now);
  [[nodiscard]] Result<void> hear_answer(Stream& stream);
  [[nodiscard]] Result<GreetedStreams> streams_that_were_answered();

  const Invitation invitation_;
  const std::string peer_;
  Nanos deadline_;
  std::unique_ptr<transport::tcp::TcpContext> context_;
  std::vector<Stream> streams_;
  size_t greeted_ = 0;
  size_t answers_ = 0;
  size_t answers_to_come_ = 0;  // as the first answer says; 0 before
};

}  // namespace sluice::nccl::net
