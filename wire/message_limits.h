// Limits and feature bits of the control messages (protocol.md sections 4 and 5).
#pragma once

#include <array>
#include <cstddef>
#include <cstdint>
#include <optional>
#include <string_view>

#include "wire/frame.h"

namespace sluice::wire {

inline constexpr uint32_t kNoRank = 0xffffffff;
inline constexpr uint32_t kMaxRanks = 2048;  // 256 groups of eight: the partial sums that one fold can add
inline constexpr uint16_t kMaxReducers = 1024;
inline constexpr uint16_t kMaxViewChange = 512;  // reducers removed, or added: fits VIEW_QUERY
inline constexpr uint16_t kMaxLanes = 64;        // lane connections of one rank to one reducer
inline constexpr size_t kMaxJobText = 128;
inline constexpr size_t kMaxErrorText = 1024;
inline constexpr size_t kMaxStatusText = kMaxControlPayload - 2;
inline constexpr size_t kMaxNamedRanks = 16;
inline constexpr size_t kMaxAddresses = 4000;
inline constexpr size_t kMaxPairAddress = 64;
inline constexpr size_t kMaxReasonText = 256;
inline constexpr size_t kMaxGatherData = 256;      // of one rank: a bit for each rank
inline constexpr size_t kMaxGatheredRanks = 1024;  // of one message; with kMaxGatheredBytes below 16 KiB
inline constexpr size_t kMaxGatheredBytes = 12288;
inline constexpr size_t kMaxRateChanges =
    1024;  // of one message: fits 16 KiB; a longer history takes several

// Begins a text that is complete without what senders have put before it. On rails only.
inline constexpr const char* kWholeText = "#: ";
// What of `text` is complete, if anything is marked so.
[[nodiscard]] constexpr std::optional<std::string_view> whole_text(std::string_view text) noexcept {
  const std::string_view mark = kWholeText;
  const size_t at = text.find(mark);
  if (at == std::string_view::npos) return std::nullopt;
  return text.substr(at + mark.size());
}

// Feature bits of HELLO and WELCOME.
inline constexpr uint64_t kFeatureResume = uint64_t{1} << 0;
inline constexpr uint64_t kFeatureViewChange = uint64_t{1} << 1;
inline constexpr uint64_t kFeatureTls = uint64_t{1} << 2;     // every byte after WELCOME goes through TLS
inline constexpr uint64_t kFeatureRdma = uint64_t{1} << 4;    // PAIR follows ATTACHED on lane connections
inline constexpr uint64_t kFeatureMemory = uint64_t{1} << 6;  // PAIR follows, within one process
inline constexpr uint64_t kFeatureGather = uint64_t{1} << 7;  // of a reducer: it answers GATHER
inline constexpr uint64_t kFeatureRateChanges = uint64_t{1} << 8;  // of a reducer: it accepts RATE_CHANGES
inline constexpr uint64_t kFeatureBlocks = uint64_t{1} << 9;       // of a reducer: it sums block types
inline constexpr uint64_t kFeatureSparse = uint64_t{1} << 10;      // of a reducer: it accepts sparse payloads
inline constexpr uint64_t kFeatureStore = uint64_t{1} << 11;       // of a reducer: it keeps models
inline constexpr uint64_t kFeatureDrain = uint64_t{1} << 12;       // of a reducer: it accepts Purpose::kDrain
// The session sums in the order wire::SumOrder::kTree.
inline constexpr uint64_t kFeatureTreeOrder = uint64_t{1} << 13;
// Of a reducer: it scans contributions, so it must get those of each rank and not the sums of hosts.
inline constexpr uint64_t kFeatureHealth = uint64_t{1} << 14;
// Of a reducer: its mismatch texts name what the callers of CALLER call.
inline constexpr uint64_t kFeatureCaller = uint64_t{1} << 15;
// Of a client of models: FAILED may end a body that it receives.
inline constexpr uint64_t kFeatureBodyEnd = uint64_t{1} << 16;
// A peer offers both of these bits or neither.
inline constexpr uint64_t kFaultToleranceFeatures = kFeatureResume | kFeatureViewChange;

// Feature bits of STREAM_OFFER.
inline constexpr uint64_t kStreamRdma = kFeatureRdma;          // PAIR follows STREAM_ANSWER
inline constexpr uint64_t kStreamRdmaOnly = uint64_t{1} << 5;  // a stream without a queue pair is refused

using Nonce = std::array<uint8_t, 32>;
using Mac = std::array<uint8_t, 32>;

}  // namespace sluice::wire
