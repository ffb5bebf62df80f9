// A FaultTolerantTestBed whose ranks enter the next views of the session.
#pragma once

#include <optional>
#include <vector>

#include "tests/support/fault_tolerant_test_bed.h"

namespace sluice::test {

inline constexpr wire::ViewCommit kNextView{.version = 1, .view_hash = 0xfeedface00000077, .base_chunk = 3};
inline constexpr wire::ViewCommit kLaterView{.version = 2, .view_hash = 0x88, .base_chunk = 5};

struct ViewTestBed : FaultTolerantTestBed {
  using FaultTolerantTestBed::FaultTolerantTestBed;
  // The first element of the rank's last result.
  [[nodiscard]] std::optional<float> last_value(uint32_t rank) const {
    const auto all = results(rank);
    return all.empty() ? std::nullopt : std::optional(floats(all.back().payload).at(0));
  }
  void contribute_kept(uint32_t rank, uint64_t sequence, const std::vector<float>& result) {
    wire::FrameHeader h = header(sequence, result.size());
    h.flags |= wire::kFlagKept;
    (void)ranks[rank]->send(h, bytes(result));
    settle();
  }
  [[nodiscard]] std::vector<reducer::LaneEvent> failures() {
    auto all = events();
    std::erase_if(all,
                  [](const reducer::LaneEvent& e) { return e.kind != reducer::LaneEvent::Kind::kFailed; });
    return all;
  }
};

}  // namespace sluice::test
