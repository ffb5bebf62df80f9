// Class DescriptorReserve holds file descriptors back, so that a reducer without free ones can tell clients
// why it does not serve them, instead of letting them time out.
//
// Control thread only. Holds at most kSize refused connections, until release().
#pragma once

#include <cstddef>
#include <string>
#include <vector>

#include "transport/tcp/socket.h"

namespace sluice::reducer {

class DescriptorReserve {
 public:
  static constexpr size_t kSize = 8;

  DescriptorReserve() { release(); }

  // Accepts connections that wait at the listener and refuses them with `text`, as many as the reserve
  // allows. Returns their number.
  size_t refuse_waiting(int listener, const std::string& text);
  // Sends REFUSED. Without room in the reserve, closes the connection without a reason.
  void refuse(transport::tcp::Socket socket, const std::string& text);
  // Closes the refused connections, whose clients have had time to read the reason, and fills the reserve.
  void release();

 private:
  std::vector<transport::tcp::Socket> reserved_;
  std::vector<transport::tcp::Socket> refused_;
};

}  // namespace sluice::reducer
