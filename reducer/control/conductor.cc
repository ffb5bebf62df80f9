#include "reducer/control/conductor.h"

#include <sys/eventfd.h>
#include <sys/random.h>
#include <unistd.h>

#include <algorithm>
#include <future>

#include "core/assert.h"
#include "core/clock.h"
#include "core/log.h"
#include "transport/tcp/socket.h"

#ifndef SLUICE_VERSION
#error "SLUICE_VERSION comes from the build"
#endif

namespace sluice::reducer {

Conductor::Conductor(const ReducerOptions& options, int listen_fd, KeyStore keys,
                     std::shared_ptr<const transport::tcp::TlsContext> tls, RdmaOffer rdma, FairPool& fair,
                     std::vector<std::unique_ptr<LaneThread>>& lanes)
    : options_(options),
      keys_(std::move(keys)),
      tls_(std::move(tls)),
      rdma_(std::move(rdma)),
      id_(random64()),
      fair_(fair),
      tenants_(options_),
      lanes_(lanes),
      now_(monotonic_now()),
      started_(now_),
      acceptor_(io_),
      timer_(io_),
      accept_pause_(io_),
      bell_fd_(eventfd(0, EFD_NONBLOCK | EFD_CLOEXEC)),
      bell_(io_),
      waiting_commands_(lanes.size()),
      job_({.expected = options_.expected_workers,
            .arrival = options_.arrival_timeout,
            .idle = options_.idle_timeout},
           now_) {
  SLUICE_ASSERT(bell_fd_ >= 0);
  if (!rdma_.rails.names.empty()) pairing_thread_.emplace(1);
  sockaddr_storage address{};
  socklen_t size = sizeof address;
  getsockname(listen_fd, reinterpret_cast<sockaddr*>(&address), &size);
  acceptor_.assign(address.ss_family == AF_INET6 ? asio::ip::tcp::v6() : asio::ip::tcp::v4(), listen_fd);
  bell_.assign(bell_fd_);
  // Lanes ring after pushing events: one write of 8 bytes, only when something ended or closed.
  for (const auto& lane : lanes_) {
    lane->lane().set_event_bell([fd = bell_fd_] {
      const uint64_t one = 1;
      [[maybe_unused]] const ssize_t n = ::write(fd, &one, sizeof one);  // full means already rung
    });
  }
}

Conductor::~Conductor() {
  if (thread_.joinable()) thread_.join();
}

uint64_t Conductor::random64() {
  uint64_t value = 0;
  SLUICE_ASSERT(getrandom(&value, sizeof value, 0) == sizeof value);
  return value;
}

void Conductor::start() {
  accept();
  listen_to_lanes();
  schedule_tick();
  thread_ = std::thread([this] { run(); });
}

void Conductor::run() {
  for (;;) {
    try {
      io_.run();
      break;
    } catch (const std::exception& e) {  // out of memory in one handler must not end every session
      report(e);
    }
  }
}

void Conductor::report(const std::exception& e) noexcept {
  try {
    log::error(std::string("conductor: ") + e.what());
  } catch (const std::exception&) {
    log::error("conductor: out of memory");
  }
}

ExitReason Conductor::join() {
  const std::lock_guard lock(ended_mutex_);
  if (thread_.joinable()) thread_.join();
  return exit_reason_;
}

void Conductor::drain() noexcept {
  asio::post(io_, [this] { begin_drain(); });
}

void Conductor::stop() noexcept {
  asio::post(io_, [this] { begin_stop(Errc::kShutdown, "the reducer was stopped"); });
}

void Conductor::reconfigure(ReloadableOptions options,
                            std::shared_ptr<const transport::tcp::TlsContext> tls) {
  asio::post(io_, [this, options = std::move(options), tls = std::move(tls)] { take_options(options, tls); });
}

// Streams that were opened by the old context live on: transport/tls/abi.h.
void Conductor::take_options(const ReloadableOptions& options,
                             std::shared_ptr<const transport::tcp::TlsContext> tls) {
  options_.memory_limit = options.memory_limit;
  options_.session_memory_limit = options.session_memory_limit;
  options_.tenant_memory_limit = options.tenant_memory_limit;
  options_.weights = options.weights;
  options_.default_weight = options.default_weight;
  options_.tls_files = options.tls_files;
  tls_ = std::move(tls);
  // Lanes read the weights in their turns.
  fair_.with([this](const FairShares&) { tenants_.weigh_again(); });
}

std::string Conductor::status_from_outside() {
  std::promise<std::string> promise;
  auto future = promise.get_future();
  asio::post(io_, [this, &promise] {
    try {
      promise.set_value(status_json());
    } catch (...) {
      promise.set_exception(std::current_exception());
    }
  });
  // A conductor that has ended runs nothing any more. Its thread may still be on its way out, and others may
  // ask too: one at a time does the work in its place.
  while (future.wait_for(std::chrono::milliseconds(20)) != std::future_status::ready) {
    if (!io_.stopped()) continue;
    const std::lock_guard lock(ended_mutex_);
    if (thread_.joinable()) thread_.join();
    io_.restart();
    io_.poll();
  }
  return future.get();
}

bool Conductor::answers(Nanos patience) {
  const auto come_to = std::make_shared<std::promise<void>>();  // may outlive who asks
  const auto future = come_to->get_future();
  asio::post(io_, [come_to] { come_to->set_value(); });
  const Nanos deadline = monotonic_now() + patience;
  while (future.wait_for(std::chrono::milliseconds(20)) != std::future_status::ready) {
    if (io_.stopped()) return true;
    if (monotonic_now() >= deadline) return false;
  }
  return true;
}

void Conductor::ask_status(std::function<void(std::string)> tell) {
  asio::post(io_, [this, tell = std::move(tell)] {
    attempt([&] {
      now_ = monotonic_now();
      tell(status_json());
    });
  });
}

void Conductor::accept() {
  acceptor_.async_accept([this](const boost::system::error_code& error, asio::ip::tcp::socket socket) {
    if (stopping_ || error == asio::error::operation_aborted) return;
    if (!error) {
      attempt([&] { accepted(std::move(socket)); });
      return accept();
    }
    // Out of descriptors, most likely: pause rather than spin.
    log::warn("accept failed: " + error.message());
    accept_pause_.expires_after(std::chrono::milliseconds(100));
    accept_pause_.async_wait([this](const boost::system::error_code& e) {
      if (!e) accept();
    });
  });
}

void Conductor::accepted(asio::ip::tcp::socket socket) {
  now_ = monotonic_now();
  ++accepted_;
  if (connections_.size() >= options_.max_connections) {
    count_close(Errc::kTooMany);
    return;
  }
  boost::system::error_code ignored;
  socket.set_option(asio::ip::tcp::no_delay(true), ignored);
  std::string peer = transport::tcp::peer_name(socket.native_handle());
  auto connection = std::make_shared<Connection>(*this, std::move(socket), std::move(peer));
  connections_.insert(connection);
  connection->start();
}

void Conductor::schedule_tick() {
  next_tick_ = monotonic_now() + kTick;
  timer_.expires_after(std::chrono::nanoseconds(kTick));
  timer_.async_wait([this](const boost::system::error_code& error) {
    if (error) return;
    attempt([this] { tick(); });
    if (!stopping_ || !ending_.empty() || !connections_.empty()) schedule_tick();
  });
}

void Conductor::tick() {
  const Nanos due = next_tick_;
  now_ = monotonic_now();
  if (due != 0 && now_ - due > kSlept) {
    log::warn("this process stood still for " + std::to_string((now_ - due) / kMillisecond) + " ms");
    for (const auto& [id, session] : sessions_) session->slept(now_ - due);
  }
  flush_commands();
  take_events();
  for (const auto& [id, session] : sessions_) session->tick(now_);
  for (const auto& session : ending_) session->tick(now_);
  for (const auto& connection : connections_) connection->check_deadline(now_);
  std::erase_if(connections_, [](const auto& c) { return c->closed(); });
  std::erase_if(verdicts_, [this](const auto& v) { return v.second.until <= now_; });
  std::erase_if(refusals_, [this](const auto& r) { return r.second.until <= now_; });
  free_ended();
  if (!rdma_.rails.open.empty() && now_ - looked_at_devices_ >= kLookAtDevices) {
    looked_at_devices_ = now_;
    transport::rdma::look_at_devices();
  }
  if (draining_ && !hurried_ && now_ >= drain_deadline_) {
    if (!sessions_.empty()) exit_reason_ = ExitReason::kDrainTimeout;
    begin_stop(Errc::kDraining, "the reducer is draining and its drain timeout has passed");
  }
  end_with_job();
  finish_if_empty();
}

void Conductor::end_with_job() {
  if (draining_) return;
  const JobWatch::Verdict verdict = job_.look(now_, !sessions_.empty() || !ending_.empty());
  if (verdict == JobWatch::Verdict::kGoOn) return;
  const std::string came =
      std::to_string(job_.most()) + " of " + std::to_string(options_.expected_workers) + " expected ranks";
  if (verdict == JobWatch::Verdict::kDone) {
    exit_reason_ = ExitReason::kJobDone;
    log::info("the job is over: " + came + " came and went");
  } else {
    exit_reason_ = ExitReason::kNeverCame;
    log::warn("the job did not come: no more than " + came + " were here at a time");
  }
  begin_drain();
}

void Conductor::listen_to_lanes() {
  bell_.async_read_some(asio::buffer(&bell_count_, sizeof bell_count_),
                        [this](const boost::system::error_code& error, size_t) {
                          if (error || stopping_) return;
                          attempt([this] {
                            now_ = monotonic_now();
                            take_events();
                            free_ended();
                          });
                          listen_to_lanes();
                        });
}

void Conductor::take_events() {
  for (const auto& thread : lanes_) {
    for (LaneEvent event; thread->lane().poll_event(event);) {
      const uint32_t handle = event.session->plan().handle;
      const auto is_it = [handle](const Session& s) { return s.handle() == handle; };
      Session* target = nullptr;
      for (const auto& [id, s] : sessions_) {
        if (is_it(*s)) target = s.get();
      }
      for (const auto& s : ending_) {
        if (is_it(*s)) target = s.get();
      }
      SLUICE_ASSERT(target != nullptr);  // a session lives until its lanes have released it
      target->on_event(event);
    }
  }
}

// Sessions whose ranks have all been told leave the registry at once, so that their id can be used again;
// their memory is freed, and returned to the limit, when the lanes have let go.
void Conductor::free_ended() {
  for (auto it = sessions_.begin(); it != sessions_.end();) {
    if (!it->second->ending()) {
      ++it;
      continue;
    }
    ++(it->second->completed() ? sessions_completed_
       : it->second->moved()   ? sessions_moved_
                               : sessions_failed_);
    ending_.push_back(std::move(it->second));
    it = sessions_.erase(it);
  }
  std::erase_if(ending_, [this](const std::unique_ptr<Session>& s) {
    if (!s->over()) return false;
    reserved_bytes_ -= s->reserved_bytes();
    tenants_.release(s->tenant(), s->reserved_bytes(), s->served_bytes());
    return true;
  });
}

void Conductor::send_command(uint32_t lane, const LaneCommand& command) {
  const uint32_t index = lane % lane_count();
  auto& waiting = waiting_commands_[index];
  if (!waiting.empty() || !lanes_[index]->lane().command(command)) waiting.push_back(command);
}

void Conductor::flush_commands() {
  for (size_t i = 0; i < waiting_commands_.size(); ++i) {
    auto& waiting = waiting_commands_[i];
    while (!waiting.empty() && lanes_[i]->lane().command(waiting.front())) waiting.pop_front();
  }
}

void Conductor::begin_drain() {
  if (draining_) return;
  now_ = monotonic_now();
  draining_ = true;
  drain_deadline_ = now_ + options_.drain_timeout;
  log::info("draining: " + std::to_string(sessions_.size()) + " sessions to finish");
  // A session that is joining goes on too: at other reducers it may be committed already.
  finish_if_empty();
}

void Conductor::begin_stop(Errc code, const char* text) {
  now_ = monotonic_now();
  draining_ = true;
  hurried_ = true;
  for (const auto& [id, session] : sessions_) session->stop(code, text);
  free_ended();
  // Those that were ending before have the usual time yet.
  for (const auto& session : ending_) session->end_by(now_ + linger());
  for (const auto& connection : connections_) connection->end_by(now_ + linger());
  finish_if_empty();
}

Nanos Conductor::linger() const noexcept {
  return hurried_ ? std::min(options_.linger_timeout, kLastLinger) : options_.linger_timeout;
}

void Conductor::finish_if_empty() {
  if (!draining_ || stopping_ || !sessions_.empty() || !ending_.empty()) return;
  stopping_ = true;
  boost::system::error_code ignored;
  acceptor_.close(ignored);
  bell_.cancel(ignored);  // lanes may still ring: a closed descriptor's number could be another's by then
  accept_pause_.cancel();
  // Connections that are saying their last words have their linger deadline; the rest is of nobody's session.
  for (const auto& connection : connections_) {
    if (!connection->finishing()) connection->close(Errc::kShutdown);
  }
}

wire::Welcome Conductor::make_welcome(uint8_t version, const SessionId& session) const {
  wire::Welcome welcome;
  welcome.version = version;
  welcome.lanes =
      static_cast<uint16_t>(std::min({options_.lanes_per_session, lane_count(), uint32_t{wire::kMaxLanes}}));
  welcome.max_slot_bytes = options_.max_slot_bytes;
  welcome.reducer = id_for(session);
  welcome.features = wire::kFeaturesSurvive | (tls_ ? wire::kFeatureTls : 0) |
                     (rdma_.rails.names.empty() ? 0 : wire::kFeatureRdma);
  welcome.software = "sluice " SLUICE_VERSION;
  SLUICE_ASSERT(getrandom(welcome.nonce.data(), welcome.nonce.size(), 0) ==
                static_cast<ssize_t>(welcome.nonce.size()));
  return welcome;
}

std::shared_ptr<void> Conductor::take_pairing() {
  // 0.5 GiB of locked memory beside the slots, which no session's reservation counts. Ranks open their lanes
  // one by one.
  constexpr uint32_t kMostPairing = 512;
  if (pairing_ >= kMostPairing) return nullptr;
  ++pairing_;
  return {this, [](Conductor* self) { --self->pairing_; }};
}

void Conductor::count_refusal(Errc reason) noexcept {
  const auto i = static_cast<size_t>(reason);
  refused_[i < kErrcSlots ? i : 0].add(1);
}

}  // namespace sluice::reducer
