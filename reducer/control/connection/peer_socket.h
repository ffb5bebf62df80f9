// Class PeerSocket adapts an accepted socket to Asio's composed reads and writes, through TLS after its
// handshake.
//
// Control thread only.
#pragma once

#include <sys/uio.h>

#include <algorithm>
#include <array>
#include <cerrno>
#include <memory>
#include <span>
#include <string>
#include <utility>

#include "core/result.h"
#include "reducer/control/asio.h"
#include "transport/tcp/socket.h"

namespace sluice::reducer {

class PeerSocket {
 public:
  // NOLINTNEXTLINE(readability-identifier-naming): the name that Asio requires
  using executor_type = asio::ip::tcp::socket::executor_type;

  explicit PeerSocket(asio::ip::tcp::socket socket) noexcept : socket_(std::move(socket)) {}

  executor_type get_executor() noexcept { return socket_.get_executor(); }
  [[nodiscard]] int fd() { return socket_.native_handle(); }
  [[nodiscard]] bool has_tls() const noexcept { return tls_ != nullptr; }
  void close() noexcept {
    boost::system::error_code ignored;
    socket_.close(ignored);
  }
  void shutdown_send() noexcept {
    // If the socket has no room for the close_notify, the peer does not read and sees a broken connection.
    if (tls_) static_cast<void>(tls_->send_close_notify());
    boost::system::error_code ignored;
    socket_.shutdown(asio::ip::tcp::socket::shutdown_send, ignored);
  }
  // Gives the descriptor and TLS state away; invalid if Asio cannot release it. No operation may be pending.
  [[nodiscard]] transport::tcp::Socket release() {
    boost::system::error_code error;
    const int fd = socket_.release(error);
    if (error) return {};
    return transport::tcp::Socket({.fd = fd, .tls = tls_.release()});
  }

  // Runs the TLS handshake, then calls `handler(result)`. All later bytes use TLS. Errors: kClosed when the
  // peer left, kUnauthenticated.
  template <typename Handler>
  void async_handshake(const transport::tcp::TlsContext& context, const transport::tcp::TlsPeer& peer,
                       Handler&& handler) {
    boost::system::error_code error;
    socket_.non_blocking(true, error);
    auto stream = context.open(socket_.native_handle(), peer);
    if (!stream) return handler(fail(Errc::kUnauthenticated, stream.error().text));
    tls_ = std::move(*stream);
    continue_handshake(std::forward<Handler>(handler));
  }

  // For asio::async_read and asio::async_write.
  template <typename Buffers, typename Handler>
  void async_read_some(const Buffers& buffers, Handler&& handler) {
    if (!tls_) return socket_.async_read_some(buffers, std::forward<Handler>(handler));
    try_tls_call(asio::ip::tcp::socket::wait_read, &transport::tcp::SecureStream::receive, IoVectors(buffers),
                 std::forward<Handler>(handler));
  }
  template <typename Buffers, typename Handler>
  void async_write_some(const Buffers& buffers, Handler&& handler) {
    if (!tls_) return socket_.async_write_some(buffers, std::forward<Handler>(handler));
    try_tls_call(asio::ip::tcp::socket::wait_write, &transport::tcp::SecureStream::send, IoVectors(buffers),
                 std::forward<Handler>(handler));
  }

 private:
  // The first non-empty buffers of a sequence.
  class IoVectors {
   public:
    template <typename Buffers>
    explicit IoVectors(const Buffers& buffers) {
      for (auto b = asio::buffer_sequence_begin(buffers); b != asio::buffer_sequence_end(buffers); ++b) {
        const auto buffer = *b;
        if (count_ < all_.size() && buffer.size() > 0)
          all_[count_++] = {const_cast<void*>(static_cast<const void*>(buffer.data())), buffer.size()};
      }
    }
    [[nodiscard]] std::span<const iovec> used() const noexcept { return std::span(all_).first(count_); }

   private:
    std::array<iovec, 4> all_;
    size_t count_ = 0;
  };
  using TlsCall = ssize_t (transport::tcp::SecureStream::*)(std::span<const iovec>) noexcept;

  // Calls `call` now and, while it would block, whenever the socket is ready. The handler never runs within
  // this function.
  template <typename Handler>
  void try_tls_call(asio::ip::tcp::socket::wait_type ready, TlsCall call, const IoVectors& vectors,
                    Handler&& handler) {
    const bool is_empty = vectors.used().empty();  // a message without a body, not an end of stream
    const ssize_t n = is_empty ? 0 : (tls_.get()->*call)(vectors.used());
    if (n < 0 && errno == EAGAIN) {
      socket_.async_wait(ready, [this, ready, call, vectors, h = std::forward<Handler>(handler)](
                                    const boost::system::error_code& error) mutable {
        if (error) return h(error, size_t{0});
        try_tls_call(ready, call, vectors, std::move(h));
      });
      return;
    }
    boost::system::error_code result;
    if (n == 0 && !is_empty) result = asio::error::eof;
    if (n < 0) result = asio::error::connection_reset;
    asio::post(get_executor(), [result, n = static_cast<size_t>(std::max<ssize_t>(n, 0)),
                                h = std::forward<Handler>(handler)]() mutable { h(result, n); });
  }

  template <typename Handler>
  void continue_handshake(Handler&& handler) {
    using Step = transport::tcp::SecureStream::Step;
    const Step step = tls_->handshake();
    if (step == Step::kDone) return handler({});
    if (step == Step::kFailed) return handler(fail(Errc::kUnauthenticated, tls_->error()));
    if (step == Step::kPeerEnded) return handler(fail(Errc::kClosed, tls_->error()));
    const auto ready =
        step == Step::kWantsRead ? asio::ip::tcp::socket::wait_read : asio::ip::tcp::socket::wait_write;
    socket_.async_wait(
        ready, [this, h = std::forward<Handler>(handler)](const boost::system::error_code& error) mutable {
          if (error) return h(fail(Errc::kClosed, "connection closed"));
          continue_handshake(std::move(h));
        });
  }

  asio::ip::tcp::socket socket_;
  std::unique_ptr<transport::tcp::SecureStream> tls_;
};

}  // namespace sluice::reducer
