// The leader's open door: takes connections until each other node has said who it is. Strangers and half
// words cost nothing but their connection. Also the few bytes in front of every word between the nodes.
#pragma once

#include <array>
#include <cstddef>
#include <cstdint>
#include <span>
#include <string>
#include <vector>

#include "core/ids.h"
#include "core/result.h"
#include "core/units.h"
#include "transport/tcp/socket.h"

namespace sluice::nccl::collnet {

class Gathering {
 public:
  // magic u32 | kind u8 | 0 | code u16 | rank u32 | text_bytes u32
  static constexpr size_t kHeadBytes = 16;
  static constexpr size_t kMostText = 4096;
  static constexpr uint8_t kHello = 1;
  struct Head {
    uint8_t kind = 0;
    uint16_t code = 0;
    uint32_t rank = 0;
    uint32_t text_bytes = 0;
  };
  static void write_head(std::span<std::byte, kHeadBytes> out, const Head& head) noexcept;
  [[nodiscard]] static bool read_head(std::span<const std::byte, kHeadBytes> in, Head& head) noexcept;

  struct Arrival {
    transport::tcp::Socket socket;  // not valid: did not come
    std::string text;               // what it says must be the same on all
  };

  Gathering(transport::tcp::Socket listener, const SessionId& session, size_t nodes)
      : listener_(std::move(listener)), session_(session), arrivals_(nodes) {}
  // Until all have come or `deadline`; who did not come is for the caller to see. An error is the listener's.
  [[nodiscard]] Result<void> run(Nanos deadline);
  [[nodiscard]] std::vector<Arrival>& arrivals() noexcept { return arrivals_; }

 private:
  struct Guest {
    transport::tcp::Socket socket;
    std::vector<std::byte> bytes;
    Nanos deadline = 0;
  };
  void accept_guests(Nanos now);
  // True when the guest is done with: it has become an arrival, or it goes.
  [[nodiscard]] bool listen_to(Guest& guest, Nanos now);
  [[nodiscard]] bool is_complete() const noexcept { return arrived_ + 1 == arrivals_.size(); }

  const transport::tcp::Socket listener_;
  const SessionId session_;
  std::vector<Arrival> arrivals_;
  std::vector<Guest> guests_;
  size_t arrived_ = 0;
};

}  // namespace sluice::nccl::collnet
