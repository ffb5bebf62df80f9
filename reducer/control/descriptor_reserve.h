// Class DescriptorReserve holds file descriptors back, so that a reducer without free ones can tell clients
// why it does not serve them, instead of letting them time out.
//
// Control thread only. Holds at most kMaxRefused refused connections, until release(), which tick() calls in
// time.
#pragma once

#include <cstddef>
#include <string>
#include <vector>

#include "core/units.h"
#include "transport/tcp/socket.h"

namespace sluice::reducer {

class DescriptorReserve {
 public:
  static constexpr size_t kMaxRefused = 8;
  static constexpr Nanos kReadTime = 100 * kMillisecond;  // for a client to read the reason

  // `size`: how many descriptors to hold back.
  explicit DescriptorReserve(size_t size) : size_(size) { release(); }

  // Accepts connections that wait at the listener and refuses them with `text`, as many as the reserve
  // allows. Returns their number.
  size_t refuse_waiting(int listener, const std::string& text);
  // Sends REFUSED. Without room in the reserve, closes the connection without a reason.
  void refuse(transport::tcp::Socket socket, const std::string& text);
  // Releases connections that were refused kReadTime ago.
  void tick(Nanos now);
  // Closes the refused connections, whose clients have had time to read the reason, and fills the reserve.
  void release();

 private:
  const size_t size_;
  std::vector<transport::tcp::Socket> reserved_;
  std::vector<transport::tcp::Socket> refused_;
  Nanos refused_at_ = 0;  // the last of them
};

}  // namespace sluice::reducer
