#include "reducer/control/connection.h"

#include <algorithm>

#include "core/crc32c.h"
#include "core/log.h"
#include "reducer/control/conductor.h"
#include "reducer/control/session.h"
#include "transport/transport.h"
#include "wire/handshake.h"

namespace sluice::reducer {
namespace {

Errc reason_of(const boost::system::error_code& error) noexcept {
  return error == asio::error::eof ? Errc::kClosed : Errc::kReset;
}

}  // namespace

Connection::Connection(Conductor& conductor, asio::ip::tcp::socket socket, std::string peer)
    : conductor_(conductor), socket_(std::move(socket)), peer_(std::move(peer)) {}

void Connection::start() {
  deadline_ = conductor_.now() + conductor_.options().handshake_timeout;
  read_header();
}

void Connection::bind(Session& session, uint32_t rank, uint32_t handle) {
  session_ = &session;
  rank_ = rank;
  handle_ = handle;
}

void Connection::close(Errc reason) {
  if (state_ == State::kClosed) return;
  const bool finishing = state_ == State::kFinishing;
  state_ = State::kClosed;
  drop_pair();
  socket_.close();
  conductor_.count_close(finishing ? Errc::kClosed : reason);
  if (Session* const s = std::exchange(session_, nullptr); s != nullptr && !finishing)
    s->control_lost(rank_, reason);
}

void Connection::finish() {
  if (state_ == State::kFinishing || state_ == State::kClosed) return;
  state_ = State::kFinishing;
  drop_pair();
  session_ = nullptr;
  deadline_ = conductor_.now() + conductor_.linger();
  if (!writing_) drain_until_closed();
}

void Connection::supersede() {
  session_ = nullptr;
  close(Errc::kReset);
}

void Connection::refuse(const Error& error, uint32_t rank) {
  wire::Refused refused;
  refused.code = error.code;
  refused.rank = rank;
  refused.text = error.text;
  send(refused);
  conductor_.count_refusal(error.code);
  finish();
}

void Connection::check_deadline(Nanos now) {
  if (deadline_ != 0 && now >= deadline_) close(Errc::kTimeout);
  // The slots that a pair has registered are in no count once their session is gone.
  if (state_ == State::kPairing && conductor_.find_session(hello_.session) == nullptr)
    close(Errc::kUnknownSession);
}

void Connection::send_frame(std::vector<std::byte> frame) {
  if (state_ == State::kClosed || state_ == State::kFinishing) return;
  queued_bytes_ += frame.size();
  outgoing_.push_back(std::move(frame));
  if (!writing_) write_next();
}

void Connection::write_next() {
  writing_ = true;
  asio::async_write(socket_, asio::buffer(outgoing_.front()),
                    [self = shared_from_this()](const boost::system::error_code& error, size_t) {
                      if (self->state_ == State::kClosed) return;
                      if (error) return self->close(reason_of(error));
                      self->written();
                    });
}

void Connection::written() {
  queued_bytes_ -= outgoing_.front().size();
  outgoing_.pop_front();
  writing_ = false;
  if (!outgoing_.empty()) {
    write_next();
  } else if (state_ == State::kFinishing) {
    drain_until_closed();
  } else if (hand_over_) {
    hand_over();
  } else if (state_ == State::kSecuring) {
    begin_tls();
  }
}

void Connection::hand_over() {
  state_ = State::kClosed;
  transport::tcp::Socket socket = socket_.release();
  socket.accompany(std::move(pair_));
  // The session may have ended while ATTACHED was being written.
  Session* const session = conductor_.find_session(hello_.session);
  if (!socket.valid() || session == nullptr || session->handle() != handle_) return;
  session->lane_attached(hello_.rank, hello_.lane, std::move(socket));
}

// Says that nothing more comes and reads until the peer has closed, so that the last words are not lost to a
// reset. A read that is under way keeps its buffer and is the only one that hears of the end: Asio completes
// one read per end of stream.
void Connection::drain_until_closed() {
  socket_.end_sending();
  if (reading_) return;
  body_.resize(4096);
  socket_.async_read_some(asio::buffer(body_),
                          [self = shared_from_this()](const boost::system::error_code& error, size_t) {
                            if (self->state_ == State::kClosed) return;
                            if (error) return self->close(Errc::kClosed);
                            self->drain_until_closed();
                          });
}

// A read of a frame that ends while the connection is being finished: the peer's end, or bytes nobody wants.
void Connection::drain_further(const boost::system::error_code& error) {
  if (state_ == State::kClosed || writing_) return;  // written() drains
  if (error) return close(Errc::kClosed);
  drain_until_closed();
}

void Connection::read_header() {
  reading_ = true;
  asio::async_read(socket_, asio::buffer(header_bytes_),
                   [self = shared_from_this()](const boost::system::error_code& error, size_t) {
                     self->reading_ = false;
                     if (self->state_ >= State::kFinishing) return self->drain_further(error);
                     if (error) return self->close(reason_of(error));
                     const Status status = wire::decode_header(self->header_bytes_, self->header_);
                     if (!status.ok()) return self->close(status.code());
                     if (wire::is_data(self->header_.type)) return self->close(Errc::kUnexpectedMessage);
                     self->read_body();
                   });
}

void Connection::read_body() {
  // Once a frame has begun it must end soon, in any state.
  if (state_ == State::kControl) deadline_ = conductor_.now() + conductor_.options().frame_timeout;
  if (header_.extension_bytes() > transport::kMaxExtensions) return close(Errc::kBadExtension);
  extensions_.resize(header_.extension_bytes());
  body_.resize(header_.length);
  const std::array<asio::mutable_buffer, 2> buffers = {asio::buffer(extensions_), asio::buffer(body_)};
  reading_ = true;
  asio::async_read(
      socket_, buffers, [self = shared_from_this()](const boost::system::error_code& error, size_t) {
        self->reading_ = false;
        if (self->state_ >= State::kFinishing) return self->drain_further(error);
        if (error) return self->close(reason_of(error));
        if (const Status status = wire::verify_header(self->header_bytes_, self->extensions_); !status.ok()) {
          return self->close(status.code());
        }
        if ((self->header_.flags & wire::kFlagPayloadCrc) != 0 &&
            crc32c(self->body_) != self->header_.payload_crc) {
          return self->close(Errc::kBadPayloadCrc);
        }
        if (self->state_ == State::kControl) self->deadline_ = 0;
        self->act_on_frame();
        const bool reads_on = self->state_ >= State::kRequest && self->state_ <= State::kControl;
        // What comes behind PAIR may be the lane's to read.
        if (reads_on && !self->hand_over_ && !self->making_pair_) self->read_header();
      });
}

// Out of memory for what this peer asked ends this peer's connection.
void Connection::act_on_frame() noexcept {
  try {
    on_frame();
  } catch (const std::exception&) {
    try {
      close(Errc::kInternal);
    } catch (const std::exception&) {  // nor is there memory to tell the session: it will miss the rank
    }
  }
}

void Connection::on_frame() {
  switch (state_) {
    case State::kHello: return on_hello();
    case State::kRequest: return on_request();
    case State::kPairing: return pair_ ? on_paired() : on_pair();
    case State::kControl: return on_control();
    case State::kSecuring:
    case State::kFinishing:
    case State::kClosed: return;
  }
}

void Connection::on_hello() {
  if (header_.type != wire::FrameType::kHello) return close(Errc::kUnexpectedMessage);
  if (!take(hello_)) return;
  const auto version = wire::common_version(hello_.min_version, hello_.max_version);
  if (!version) {
    return refuse({Errc::kNoCommonVersion, "no common protocol version: this reducer speaks " +
                                               wire::version_range(wire::kVersionMin, wire::kVersionMax) +
                                               ", the client " +
                                               wire::version_range(hello_.min_version, hello_.max_version)});
  }
  if (hello_.purpose > wire::Purpose::kVerdict) return close(Errc::kBadField);
  welcome_ = conductor_.make_welcome(*version, hello_.session);
  if (conductor_.has_key()) {
    token_ = conductor_.token_for(wire::job_name(hello_));
    welcome_.proof = 1;
    welcome_.mac = wire::server_proof(*token_, hello_, welcome_);
  }
  const bool offered = (hello_.features & wire::kFeatureTls) != 0;
  if (conductor_.options().tls == TlsMode::kRequire && !offered) {
    return refuse({Errc::kUnauthenticated,
                   "this reducer speaks to nobody without TLS, and TLS was not offered (SLUICE_TLS)"},
                  hello_.rank);
  }
  state_ = offered && conductor_.tls() != nullptr ? State::kSecuring : State::kRequest;
  send(welcome_);
}

// WELCOME is out, and nothing has been read behind HELLO.
void Connection::begin_tls() {
  const wire::Digest bound = wire::tls_binding(hello_, welcome_);
  transport::tcp::TlsPeer peer{.identity = wire::job_name(hello_),
                               .psk = std::nullopt,
                               .host = {},
                               .bound = std::as_bytes(std::span(bound))};
  // Where workers must show certificates a token does not do in their place.
  if (token_ && !conductor_.tls()->has_ca()) {
    const wire::Digest key = wire::tls_key(*token_);
    std::ranges::copy(std::as_bytes(std::span(key)), peer.psk.emplace().begin());
  }
  socket_.async_secure(*conductor_.tls(), peer, [self = shared_from_this()](const std::string& why) {
    if (self->state_ != State::kSecuring) return;
    ++(why.empty() ? self->conductor_.tls_counts().agreed : self->conductor_.tls_counts().failed);
    if (!why.empty()) {
      log::debug(self->peer_ + ": " + why);
      return self->close(Errc::kUnauthenticated);
    }
    self->state_ = State::kRequest;
    self->read_header();
  });
}

bool Connection::proven(const wire::Mac& mac, uint64_t view_hash) const {
  return !token_ || wire::equal_digests(mac, wire::client_proof(*token_, hello_, welcome_, view_hash));
}

void Connection::on_request() {
  const Error unproven{Errc::kUnauthenticated,
                       "wrong or missing token for job \"" + wire::job_name(hello_) + "\""};
  switch (hello_.purpose) {
    case wire::Purpose::kControl: {
      wire::Join join;
      if (header_.type == wire::FrameType::kAttach && hello_.incarnation != 0) return on_resume();
      if (header_.type != wire::FrameType::kJoin) return close(Errc::kUnexpectedMessage);
      if (!take(join)) return;
      if (!proven(join.mac, join.view_hash)) return refuse(unproven, hello_.rank);
      deadline_ = 0;
      state_ = State::kControl;
      return conductor_.join(*this, hello_, join);
    }
    case wire::Purpose::kLane: return on_attach();
    case wire::Purpose::kStatus: {
      wire::StatusQuery query;
      if (header_.type != wire::FrameType::kStatusQuery) return close(Errc::kUnexpectedMessage);
      if (!take(query)) return;
      if (!proven(query.mac, 0)) return refuse(unproven);
      send(wire::StatusReply{.json = conductor_.status_json()});
      return finish();
    }
    case wire::Purpose::kVerdict: {
      wire::VerdictQuery query;
      if (header_.type != wire::FrameType::kVerdictQuery) return close(Errc::kUnexpectedMessage);
      if (!take(query)) return;
      if (!proven(query.mac, 0)) return refuse(unproven);
      send(conductor_.find_verdict(hello_));
      return finish();
    }
  }
}

Session* Connection::take_attach(wire::Attach& attach) {
  if (!take(attach)) return nullptr;
  if (!proven(attach.mac, attach.view_hash)) {
    const char* const which = hello_.purpose == wire::Purpose::kLane ? "lane" : "control";
    refuse({Errc::kUnauthenticated, std::string("wrong or missing token on a ") + which + " connection"},
           hello_.rank);
    return nullptr;
  }
  Session* const session = conductor_.find_session(hello_.session);
  if (session == nullptr) {
    refuse({Errc::kUnknownSession, "no session " + to_string(hello_.session) + " here"}, hello_.rank);
  }
  return session;
}

// A control connection of a session that runs, opened again.
void Connection::on_resume() {
  if ((hello_.features & wire::kFeaturesSurvive) != wire::kFeaturesSurvive)
    return close(Errc::kUnexpectedMessage);
  wire::Attach attach;
  Session* const session = take_attach(attach);
  if (session == nullptr) return;
  if (auto error = session->bars_resume(hello_, attach)) return refuse(*error, hello_.rank);
  deadline_ = 0;
  state_ = State::kControl;
  session->resume(shared_from_this(), hello_.rank);
}

void Connection::on_attach() {
  wire::Attach attach;
  if (header_.type != wire::FrameType::kAttach) return close(Errc::kUnexpectedMessage);
  Session* const session = take_attach(attach);
  if (session == nullptr) return;
  const bool pairs = !conductor_.rdma().rails.names.empty() && (hello_.features & wire::kFeatureRdma) != 0 &&
                     !socket_.secured();
  if (conductor_.rdma().only && !pairs)
    return refuse_tcp(socket_.secured() ? "this one goes through TLS" : "it was not asked for");
  if (auto slots = session->admit_lane(hello_, attach); slots) {
    handle_ = attach.handle;
    // Before send(): a lane over TCP is read by this object no further.
    if (pairs) {
      state_ = State::kPairing;
    } else {
      hand_over_ = true;
    }
    deadline_ = conductor_.now() + conductor_.options().handshake_timeout;
    send(wire::Attached{.slots = *slots});
  } else {
    refuse(slots.error(), hello_.rank);
  }
}

void Connection::on_control() {
  if (session_ == nullptr) return close(Errc::kUnexpectedMessage);
  session_->heard(rank_);
  switch (header_.type) {
    case wire::FrameType::kVote: {
      wire::Vote vote;
      if (take(vote)) session_->on_vote(*this, rank_, vote);
      return;
    }
    case wire::FrameType::kCommit: {
      wire::Commit commit;
      if (take(commit)) session_->on_commit(*this, rank_, commit.incarnation);
      return;
    }
    case wire::FrameType::kHeartbeat: {
      wire::Heartbeat heartbeat;
      if (take(heartbeat)) session_->on_heartbeat(rank_, heartbeat);
      return;
    }
    case wire::FrameType::kLeave: {
      wire::Leave leave;
      if (take(leave)) session_->on_leave(*this, rank_, leave);
      return;
    }
    case wire::FrameType::kAbort: {
      wire::Abort abort;
      if (take(abort)) session_->on_abort(rank_, abort);
      return;
    }
    default: return session_->survives() ? on_loss_word() : close(Errc::kUnexpectedMessage);
  }
}

// What only sessions that survive losses have to say.
void Connection::on_loss_word() {
  switch (header_.type) {
    case wire::FrameType::kSuspect: {
      wire::Suspect suspect;
      if (take(suspect)) session_->on_suspect(rank_, suspect);
      return;
    }
    case wire::FrameType::kViewKnown: {
      wire::ViewKnown known;
      if (take(known)) session_->on_view_known(*this, rank_, known);
      return;
    }
    case wire::FrameType::kViewAnswer: {
      wire::ViewAnswer answer;
      if (take(answer)) session_->on_view_answer(rank_, answer);
      return;
    }
    default: return close(Errc::kUnexpectedMessage);
  }
}

}  // namespace sluice::reducer
