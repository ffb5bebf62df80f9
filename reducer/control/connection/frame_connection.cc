#include "reducer/control/connection/frame_connection.h"

#include <exception>
#include <utility>

#include "core/crc32c.h"
#include "reducer/control/control_loop.h"
#include "transport/transport.h"

namespace sluice::reducer {
namespace {

Errc reason_of(const boost::system::error_code& error) noexcept {
  return error == asio::error::eof ? Errc::kClosed : Errc::kReset;
}

}  // namespace

FrameConnection::FrameConnection(ControlLoop& loop, asio::ip::tcp::socket socket, std::string peer)
    : loop_(loop), socket_(std::move(socket)), peer_(std::move(peer)) {}

void FrameConnection::start() {
  set_deadline(loop_.now() + loop_.options().handshake_timeout);
  read_header();
}

void FrameConnection::set_deadline(Nanos deadline) {
  deadline_ = deadline;
  if (deadline != 0) loop_.deadlines().bring_forward(this, deadline);
}

void FrameConnection::close(Errc reason) {
  if (phase_ == Phase::kClosed) return;
  const bool was_finishing = phase_ == Phase::kFinishing;
  phase_ = Phase::kClosed;
  on_closing();
  socket_.close();
  loop_.note_closed(*this);
  count_reason(loop_.counters().closed, was_finishing ? Errc::kClosed : reason);
  if (!was_finishing) on_closed(reason);
}

void FrameConnection::finish() {
  if (phase_ != Phase::kOpen) return;
  phase_ = Phase::kFinishing;
  on_finishing();
  set_deadline(loop_.now() + loop_.linger());
  if (!is_writing_) drain_until_closed();
}

transport::tcp::Socket FrameConnection::release_socket() {
  phase_ = Phase::kClosed;
  loop_.note_closed(*this);
  return socket_.release();
}

// ---- writing ----

void FrameConnection::send_frame(std::shared_ptr<const std::vector<std::byte>> frame) {
  if (phase_ != Phase::kOpen) return;
  queued_bytes_ += frame->size();
  outgoing_.push_back(std::move(frame));
  if (!is_writing_) write_next();
}

void FrameConnection::write_next() {
  is_writing_ = true;
  asio::async_write(socket_, asio::buffer(*outgoing_.front()),
                    [self = shared_from_this()](const boost::system::error_code& error, size_t) {
                      if (self->phase_ == Phase::kClosed) return;
                      if (error) return self->close(reason_of(error));
                      self->on_written();
                    });
}

void FrameConnection::on_written() {
  queued_bytes_ -= outgoing_.front()->size();
  outgoing_.pop_front();
  is_writing_ = false;
  if (!outgoing_.empty()) {
    write_next();
  } else if (phase_ == Phase::kFinishing) {
    drain_until_closed();
  } else {
    on_all_written();
  }
}

// ---- reading ----

void FrameConnection::read_header() {
  is_reading_ = true;
  asio::async_read(socket_, asio::buffer(header_bytes_),
                   [self = shared_from_this()](const boost::system::error_code& error, size_t) {
                     self->is_reading_ = false;
                     if (!self->is_open()) return self->continue_draining(error);
                     if (error) return self->close(reason_of(error));
                     const Status status = wire::decode_header(self->header_bytes_, self->header_);
                     if (!status.ok()) return self->close(status.code());
                     if (wire::is_data(self->header_.type)) return self->close(Errc::kUnexpectedMessage);
                     self->read_body();
                   });
}

void FrameConnection::read_body() {
  if (limits_each_frame_) set_deadline(loop_.now() + loop_.options().frame_timeout);
  if (header_.extension_bytes() > transport::kMaxExtensionBytes) return close(Errc::kBadExtension);
  extensions_.resize(header_.extension_bytes());
  body_.resize(header_.length);
  const std::array<asio::mutable_buffer, 2> buffers = {asio::buffer(extensions_), asio::buffer(body_)};
  is_reading_ = true;
  asio::async_read(
      socket_, buffers, [self = shared_from_this()](const boost::system::error_code& error, size_t) {
        self->is_reading_ = false;
        if (!self->is_open()) return self->continue_draining(error);
        if (error) return self->close(reason_of(error));
        if (const Status status = wire::verify_header(self->header_bytes_, self->extensions_); !status.ok()) {
          return self->close(status.code());
        }
        if ((self->header_.flags & wire::kFlagPayloadCrc) != 0 &&
            crc32c(self->body_) != self->header_.payload_crc) {
          return self->close(Errc::kBadPayloadCrc);
        }
        if (self->limits_each_frame_) self->deadline_ = 0;
        self->handle_frame();
        if (self->is_open() && self->expects_frame()) self->read_header();
      });
}

// A frame that exhausts memory ends only the connection of its peer.
void FrameConnection::handle_frame() noexcept {
  try {
    on_frame();
  } catch (const std::exception&) {
    try {
      close(Errc::kInternal);
    } catch (const std::exception&) {  // no memory to notify the session either: it will miss the rank
    }
  }
}

// ---- finishing ----

// Half-closes and reads until the peer has closed, so that no reset destroys the last frames on their way. A
// pending read keeps its buffer and alone sees the end of the stream: Asio completes one read per end of
// stream.
void FrameConnection::drain_until_closed() {
  socket_.shutdown_send();
  if (is_reading_) return;
  body_.resize(4096);
  socket_.async_read_some(asio::buffer(body_),
                          [self = shared_from_this()](const boost::system::error_code& error, size_t) {
                            if (self->phase_ == Phase::kClosed) return;
                            if (error) return self->close(Errc::kClosed);
                            self->drain_until_closed();
                          });
}

// The pending read of a frame has ended while the connection is finishing: end of stream, or bytes to
// discard.
void FrameConnection::continue_draining(const boost::system::error_code& error) {
  if (phase_ == Phase::kClosed || is_writing_) return;  // on_written() drains
  if (error) return close(Errc::kClosed);
  drain_until_closed();
}

}  // namespace sluice::reducer
