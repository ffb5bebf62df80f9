// The leader's open door: takes connections until each other node has said who it is. Strangers and half
// words cost nothing but their connection. Also the few bytes in front of every word between the nodes.
#pragma once

#include <array>
#include <cstddef>
#include <cstdint>
#include <span>
#include <string>
#include <vector>

#include "core/result.h"
#include "core/units.h"
#include "nccl_plugin/collnet/party.h"
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
  // session 16 | milliseconds u32 for which the node still waits for the others | what must be the same on
  // all
  [[nodiscard]] static std::string hello_text(const Party& party, Nanos wait);

  struct Arrival {
    transport::tcp::Socket socket;  // not valid: did not come
    std::string text;               // what it says must be the same on all
  };

  // `party` outlives this.
  Gathering(const Party& party, transport::tcp::Socket listener, Patience patience)
      : party_(party), patience_(patience), listener_(std::move(listener)), arrivals_(party.nodes.size()) {}
  // Until all have come. An error names the node that is late, is gone or can't be reached; what has come is
  // in arrivals() all the same.
  [[nodiscard]] Result<void> run();
  [[nodiscard]] std::vector<Arrival>& arrivals() noexcept { return arrivals_; }

 private:
  struct Guest {
    transport::tcp::Socket socket;
    std::vector<std::byte> bytes;
    Nanos deadline = 0;
  };
  [[nodiscard]] Result<void> wait(Nanos until);
  // Calls the ports of nodes that have not come: the host of one that lives takes the connection, though
  // nobody answers, and ends it when that node gives up or its process ends.
  [[nodiscard]] Result<void> call_missing();
  void accept_guests(Nanos now);
  // True when the guest is done with: it has become an arrival, or it goes.
  [[nodiscard]] bool listen_to(Guest& guest, Nanos now);
  void arrive(uint32_t rank, Guest& guest, Nanos now);
  [[nodiscard]] bool is_complete() const noexcept { return arrived_ + 1 == arrivals_.size(); }
  [[nodiscard]] uint32_t first_missing() const noexcept;
  [[nodiscard]] tl::unexpected<Error> late(uint32_t rank, const char* how) const;

  const Party& party_;
  const Patience patience_;
  const transport::tcp::Socket listener_;
  std::vector<Arrival> arrivals_;
  std::vector<transport::tcp::Socket> calls_;  // by rank, once calling has begun
  std::vector<Guest> guests_;
  size_t arrived_ = 0;
  uint32_t last_ = 0;  // who came last; 0: the leader itself
  Nanos begin_ = 0;
  Nanos deadline_ = 0;
};

}  // namespace sluice::nccl::collnet
