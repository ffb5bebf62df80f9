// Class ReservedPort is a loopback port that refuses connections until a server of the test listens on it.
// The system gives it to no other process; a server that sets SO_REUSEADDR, as reducers do, can listen.
#pragma once

#include <gtest/gtest.h>
#include <netinet/in.h>
#include <sys/socket.h>

#include <cstdint>

#include "transport/tcp/address.h"
#include "transport/tcp/socket.h"

namespace sluice::test {

class ReservedPort {
 public:
  ReservedPort() : socket_(::socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0)) {
    const int on = 1;
    EXPECT_EQ(::setsockopt(socket_.fd(), SOL_SOCKET, SO_REUSEADDR, &on, sizeof on), 0);
    sockaddr_in at{};
    at.sin_family = AF_INET;
    at.sin_addr.s_addr = htonl(INADDR_LOOPBACK);
    EXPECT_EQ(::bind(socket_.fd(), reinterpret_cast<sockaddr*>(&at), sizeof at), 0);
  }
  [[nodiscard]] uint16_t number() const { return transport::tcp::bound_port(socket_.fd()).value(); }

 private:
  const transport::tcp::Socket socket_;
};

}  // namespace sluice::test
