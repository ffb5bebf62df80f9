// Frames that TLS has read ahead are announced by no event: the keeper must ask for them all the same.
#include <gtest/gtest.h>

#include "tests/conformance/transport/tls_pair.h"
#include "tests/unit/gpu_client/keeper_rig.h"

namespace sluice::engine {
namespace {

class KeeperTls : public test::KeeperRig {
 protected:
  void SetUp() override {
    if (!transport::test::find_tls_library())
      GTEST_SKIP() << "needs tls-library: libsluice_tls.so was not built";
  }
};

TEST_F(KeeperTls, TakesWhatWasReadAheadToItsLastFrame) {
  auto pair = transport::test::tls_pair("127.0.0.1", transport::test::same_key());
  ASSERT_TRUE(pair.client.valid());
  std::vector<std::byte> words;
  const auto add = [&words](const std::vector<std::byte>& frame) {
    words.insert(words.end(), frame.begin(), frame.end());
  };
  // More than the keeper takes in a row.
  for (int i = 0; i < 200; ++i) add(wire::encode_message(wire::Heartbeat{}));
  wire::Abort abort;
  abort.code = Errc::kMismatch;
  abort.text = "the last word";
  add(wire::encode_message(abort));
  const Nanos deadline = monotonic_now() + 10 * kSecond;
  ASSERT_TRUE(transport::tcp::write_all(pair.server, words, deadline).ok());

  // One frame is taken before the keeper has the connection, as one is that the handshake waits for.
  ControlLink link(std::move(pair.client), "reducer", 1);
  ControlLink::Frame first;
  while (link.receive(first) == Errc::kWouldBlock) {
    ASSERT_LT(monotonic_now(), deadline);
    pollfd p{.fd = link.fd(), .events = POLLIN, .revents = 0};
    ::poll(&p, 1, 100);
  }
  ASSERT_EQ(first.header.type, wire::FrameType::kHeartbeat);
  pollfd rest{.fd = link.fd(), .events = POLLIN, .revents = 0};
  ASSERT_EQ(::poll(&rest, 1, 0), 0) << "something is left in the socket: this tests nothing";

  keeper_ = Keeper::acquire().value();
  std::vector<Keeper::Peer> peers;
  peers.push_back({.link = std::move(link), .heartbeat = 20 * kSecond, .timeout = 60 * kSecond});
  id_ = keeper_->add(std::move(peers), *this, false);
  EXPECT_TRUE(wait([&] { return losses_ == 1; }));
  EXPECT_EQ(code_, Errc::kMismatch);
}

}  // namespace
}  // namespace sluice::engine
