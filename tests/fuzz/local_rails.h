// Class LocalRails stands for the rails between the hosts of one process: it compares and computes as
// reducers do, when the script says so.
#pragma once

#include <array>
#include <deque>
#include <memory>
#include <vector>

#include "gpu_client/engine/session/collective_session.h"
#include "tests/fuzz/input.h"

namespace sluice::fuzz {

class LocalRails {
 public:
  static constexpr size_t kMostOpen = 3;  // of each host; then a rail is full

  LocalRails(uint32_t rails, uint32_t hosts);
  ~LocalRails();

  // The member of a host. The object outlives it.
  [[nodiscard]] std::unique_ptr<engine::CollectiveSession> member(uint32_t rail, uint32_t host);

  // Ends the oldest operation of a rail that all hosts have started. Returns false if there is none. When
  // hosts disagree all rails end.
  bool step(uint32_t rail);
  [[nodiscard]] Errc ended() const { return ended_; }

 private:
  class Member;
  struct Operation {
    engine::OpRequest request;
    Bytes piece_of;
  };
  struct OfHost {
    std::deque<Operation> open;
    uint64_t done = 0;  // operations that have ended
  };
  void compute(std::vector<OfHost>& hosts) const;

  std::vector<std::vector<OfHost>> rails_;  // by rail, by host
  Errc ended_ = Errc::kOk;
};

}  // namespace sluice::fuzz
