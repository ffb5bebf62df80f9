// An accepted socket as Asio's composed reads and writes want it, with TLS once that has been agreed on.
// Conductor thread only.
#pragma once

#include <sys/uio.h>

#include <algorithm>
#include <array>
#include <cerrno>
#include <memory>
#include <utility>

#include "reducer/control/asio.h"
#include "transport/tcp/socket.h"

namespace sluice::reducer {

class PeerSocket {
 public:
  // NOLINTNEXTLINE(readability-identifier-naming): Asio asks for this name
  using executor_type = asio::ip::tcp::socket::executor_type;

  explicit PeerSocket(asio::ip::tcp::socket socket) noexcept : socket_(std::move(socket)) {}

  executor_type get_executor() noexcept { return socket_.get_executor(); }
  [[nodiscard]] int fd() { return socket_.native_handle(); }
  [[nodiscard]] bool secured() const noexcept { return secure_ != nullptr; }
  void close() noexcept {
    boost::system::error_code ignored;
    socket_.close(ignored);
  }
  // Says that nothing more comes.
  void end_sending() noexcept {
    // Without room for TLS' last word there is a peer that does not read: it may take the end for a break.
    if (secure_) static_cast<void>(secure_->end());
    boost::system::error_code ignored;
    socket_.shutdown(asio::ip::tcp::socket::shutdown_send, ignored);
  }
  // Not valid when the socket can't be had. Nothing may be under way.
  [[nodiscard]] transport::tcp::Socket release() {
    boost::system::error_code error;
    const int fd = socket_.release(error);
    if (error) return {};
    return transport::tcp::Socket({.fd = fd, .secure = secure_.release()});
  }

  // The handshake, then `handler(why)`: empty when it is done. From here on all bytes go through TLS.
  template <typename Handler>
  void async_secure(const transport::tcp::TlsContext& context, const transport::tcp::TlsPeer& peer,
                    Handler&& handler) {
    boost::system::error_code error;
    socket_.non_blocking(true, error);
    auto stream = context.open(socket_.native_handle(), peer);
    if (!stream) return handler(stream.error().text);
    secure_ = std::move(*stream);
    go_on(std::forward<Handler>(handler));
  }

  // For asio::async_read and asio::async_write.
  template <typename Buffers, typename Handler>
  void async_read_some(const Buffers& buffers, Handler&& handler) {
    if (!secure_) return socket_.async_read_some(buffers, std::forward<Handler>(handler));
    attempt(asio::ip::tcp::socket::wait_read, &transport::tcp::SecureStream::receive, Blocks(buffers),
            std::forward<Handler>(handler));
  }
  template <typename Buffers, typename Handler>
  void async_write_some(const Buffers& buffers, Handler&& handler) {
    if (!secure_) return socket_.async_write_some(buffers, std::forward<Handler>(handler));
    attempt(asio::ip::tcp::socket::wait_write, &transport::tcp::SecureStream::send, Blocks(buffers),
            std::forward<Handler>(handler));
  }

 private:
  // As many of a sequence of buffers as there is room for.
  class Blocks {
   public:
    template <typename Buffers>
    explicit Blocks(const Buffers& buffers) {
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
  using Call = ssize_t (transport::tcp::SecureStream::*)(std::span<const iovec>) noexcept;

  // One try now, another one whenever the socket is ready. The handler never runs within the call.
  template <typename Handler>
  void attempt(asio::ip::tcp::socket::wait_type ready, Call call, const Blocks& blocks, Handler&& handler) {
    const bool nothing = blocks.used().empty();  // a message without a body: no end
    const ssize_t n = nothing ? 0 : (secure_.get()->*call)(blocks.used());
    if (n < 0 && errno == EAGAIN) {
      socket_.async_wait(ready, [this, ready, call, blocks, h = std::forward<Handler>(handler)](
                                    const boost::system::error_code& error) mutable {
        if (error) return h(error, size_t{0});
        attempt(ready, call, blocks, std::move(h));
      });
      return;
    }
    boost::system::error_code result;
    if (n == 0 && !nothing) result = asio::error::eof;
    if (n < 0) result = asio::error::connection_reset;
    asio::post(get_executor(), [result, n = static_cast<size_t>(std::max<ssize_t>(n, 0)),
                                h = std::forward<Handler>(handler)]() mutable { h(result, n); });
  }

  template <typename Handler>
  void go_on(Handler&& handler) {
    using Step = transport::tcp::SecureStream::Step;
    const Step step = secure_->handshake();
    if (step == Step::kDone) return handler(std::string());
    if (step == Step::kFailed) return handler(secure_->why());
    const auto ready =
        step == Step::kWantsRead ? asio::ip::tcp::socket::wait_read : asio::ip::tcp::socket::wait_write;
    socket_.async_wait(
        ready, [this, h = std::forward<Handler>(handler)](const boost::system::error_code& error) mutable {
          if (error) return h("the connection broke");
          go_on(std::move(h));
        });
  }

  asio::ip::tcp::socket socket_;
  std::unique_ptr<transport::tcp::SecureStream> secure_;
};

}  // namespace sluice::reducer
