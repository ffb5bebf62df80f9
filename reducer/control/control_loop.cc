#include "reducer/control/control_loop.h"

#include <sys/random.h>

#include <algorithm>
#include <utility>

#include "core/assert.h"
#include "core/clock.h"
#include "transport/tcp/address.h"
#include "transport/tcp/socket.h"

#ifndef SLUICE_VERSION
#error "SLUICE_VERSION is defined by the build"
#endif

namespace sluice::reducer {
namespace {

constexpr Nanos kTick = 50 * kMillisecond;
constexpr Nanos kStall = 500 * kMillisecond;  // a tick this late: the process was suspended or starved of CPU
constexpr uint32_t kRefusalsPerSecond = 20;   // recorded ones
constexpr Nanos kDevicePollInterval = 1 * kSecond;
// Linger of a reducer that stops. With the drain timeout it must stay below the orchestrator's grace period.
constexpr Nanos kStopLinger = 1 * kSecond;

}  // namespace

ControlLoop::ControlLoop(const ReducerOptions& options, transport::tcp::Socket listener,
                         std::vector<config::Secret> keys,
                         std::shared_ptr<const transport::tcp::TlsContext> tls, RdmaOffer rdma,
                         FairPool& fair, std::vector<std::unique_ptr<LaneThread>>& lanes)
    : options_(options),
      log_(options.hosted),
      admission_(options_, std::move(keys)),
      tls_(std::move(tls)),
      rdma_(std::move(rdma)),
      id_(random64()),
      blackbox_(blackbox::EventSource::of_reducer(id_)),
      fair_(fair),
      lanes_(lanes),
      now_(monotonic_now()),
      started_(now_),
      acceptor_(io_),
      tick_timer_(io_),
      accept_timer_(io_),
      mailbox_(io_, lanes),
      queue_pairs_(io_, rdma_),
      sessions_(*this, options_, id_),
      gathers_(options_.join_timeout, options_.hosted),
      job_({.expected_ranks = options_.expected_workers,
            .arrival_timeout = options_.arrival_timeout,
            .idle_timeout = options_.idle_timeout},
           now_) {
  sockaddr_storage address{};
  socklen_t size = sizeof address;
  getsockname(listener.fd(), reinterpret_cast<sockaddr*>(&address), &size);
  const std::string host = options_.listen_host.empty() ? "*" : options_.listen_host;
  const uint16_t port = transport::tcp::bound_port(listener.fd()).value_or(options_.listen_port);
  address_ = transport::tcp::endpoint_text(host, port);
  blackbox_.record(blackbox::EventKind::kReducerListening, {.a = lane_count()}, address_);
  acceptor_.assign(address.ss_family == AF_INET6 ? asio::ip::tcp::v6() : asio::ip::tcp::v4(),
                   listener.release());
}

ControlLoop::~ControlLoop() {
  if (thread_.joinable()) thread_.join();
}

uint64_t ControlLoop::random64() {
  uint64_t value = 0;
  SLUICE_ASSERT(getrandom(&value, sizeof value, 0) == sizeof value);
  return value;
}

void ControlLoop::start() {
  accept();
  mailbox_.start([this] {
    run_logged([this] {
      now_ = monotonic_now();
      process_lane_events();
      serve_sessions();
      close_if_empty();
    });
  });
  schedule_tick();
  thread_ = std::thread([this] { run(); });
}

void ControlLoop::run() {
  Nanos before = thread_cpu_now();
  for (;;) {
    try {
      while (io_.run_one() != 0) {
        const Nanos after = thread_cpu_now();
        counters_.add_turn(after - std::exchange(before, after));
      }
      break;
    } catch (const std::exception& e) {  // a handler that runs out of memory must not end every session
      log_exception(e);
    }
  }
}

void ControlLoop::log_exception(const std::exception& e) const noexcept {
  try {
    log_.error(std::string("control loop: handler failed: ") + e.what());
  } catch (const std::exception&) {
    log::error("control loop: handler failed: out of memory");
  }
}

ExitReason ControlLoop::wait() {
  const std::lock_guard lock(ended_mutex_);
  if (thread_.joinable()) thread_.join();
  return exit_reason_;
}

// ---- connections ----

void ControlLoop::join(Connection& connection, const wire::Hello& hello, const wire::Join& join) {
  if (!sessions_.join(connection, hello, join) || options_.expected_workers == 0) return;
  const Session* const session = sessions_.find(hello.session);
  if (session != nullptr) job_.on_join(static_cast<uint32_t>(session->joined_ranks().size()), now_);
}

uint32_t ControlLoop::lanes_offered() const noexcept {
  return std::min({options_.lanes_per_session, lane_count(), uint32_t{wire::kMaxLanes}});
}

wire::Welcome ControlLoop::make_welcome(uint8_t version, const SessionId& session) const {
  wire::Welcome welcome;
  welcome.version = version;
  welcome.lanes = static_cast<uint16_t>(lanes_offered());
  welcome.max_slot_bytes = options_.max_slot_bytes;
  welcome.reducer = sessions_.id_for(session);
  welcome.features = wire::kFaultToleranceFeatures | wire::kFeatureGather |
                     (options_.offers_memory ? wire::kFeatureMemory : 0) | wire::kFeatureRateChanges |
                     wire::kFeatureBlocks | wire::kFeatureSparse | wire::kFeatureDrain |
                     wire::kFeatureTreeOrder | wire::kFeatureCaller |
                     (options_.health ? wire::kFeatureHealth : 0) | (tls_ ? wire::kFeatureTls : 0) |
                     (rdma_.rails.names.empty() ? 0 : wire::kFeatureRdma) |
                     (options_.on_store_connection ? wire::kFeatureStore : 0);
  welcome.features &= ~options_.withheld_features;
  welcome.software = "sluice " SLUICE_VERSION;
  if (options_.link_rate != 0) welcome.link_rate = options_.link_rate;
  SLUICE_ASSERT(getrandom(welcome.nonce.data(), welcome.nonce.size(), 0) ==
                static_cast<ssize_t>(welcome.nonce.size()));
  return welcome;
}

// ---- the clock ----

void ControlLoop::schedule_tick() {
  next_tick_ = monotonic_now() + kTick;
  tick_timer_.expires_after(std::chrono::nanoseconds(kTick));
  tick_timer_.async_wait([this](const boost::system::error_code& error) {
    if (error) return;
    run_logged([this] { tick(); });
    if (!is_closed_ || !sessions_.ending().empty() || !connections_.empty()) schedule_tick();
  });
}

void ControlLoop::tick() {
  now_ = monotonic_now();
  descriptors_.tick(now_);
  if (next_tick_ != 0 && now_ - next_tick_ > kStall) handle_stall(now_ - next_tick_);
  mailbox_.flush();
  process_lane_events();
  gathers_.tick(now_);
  check_deadlines();
  forget_closed();
  trim_heap();
  sessions_.outcomes().remove_expired(now_);
  sessions_.begin_ticks(now_);
  serve_sessions();
  audit_.tick();
  session_log_.tick();
  if (!rdma_.rails.open_devices.empty() && now_ - devices_polled_at_ >= kDevicePollInterval) {
    devices_polled_at_ = now_;
    transport::rdma::poll_device_events();
  }
  if (is_draining_ && !is_stopping_ && now_ >= drain_deadline_) {
    if (!sessions_.open().empty()) exit_reason_ = ExitReason::kDrainTimeout;
    begin_stop(Errc::kDraining, "the drain timeout of the reducer has passed");
  }
  end_after_job();
  close_if_empty();
}

void ControlLoop::handle_stall(Nanos time) {
  log_.warn("process did not run for " + std::to_string(time / kMillisecond) +
            " ms (suspended or starved of CPU); peer timeouts are extended by that time");
  blackbox_.record(blackbox::EventKind::kStalled,
                   {.a = static_cast<uint64_t>(time / kMillisecond), .at = now_ - time});
  sessions_.on_process_stall(time);
}

void ControlLoop::record_refusal(const SessionId& session, uint32_t rank, Errc code,
                                 const std::string& text) noexcept {
  if (now_ - refusals_since_ >= kSecond) {
    refusals_since_ = now_;
    refusals_ = 0;
  }
  if (++refusals_ > kRefusalsPerSecond) {
    ++refusals_not_recorded_;
    return;
  }
  blackbox::EventSource::of_reducer(id_, blackbox::session_key(session))
      .record(blackbox::EventKind::kConnectionRefused,
              {.peer = rank, .a = std::exchange(refusals_not_recorded_, 0), .code = code}, text);
}

void ControlLoop::process_lane_events() {
  mailbox_.drain_events([this](const LaneEvent& event) { sessions_.on_lane_event(event); });
}

void ControlLoop::serve_sessions() {
  const bool more_to_tick = sessions_.tick_some(now_);
  const bool more_to_free = sessions_.release_ended();
  if ((!more_to_tick && !more_to_free) || std::exchange(serves_sessions_, true)) return;
  asio::post(io_, [this] {
    serves_sessions_ = false;
    run_logged([this] {
      now_ = monotonic_now();
      serve_sessions();
      close_if_empty();
    });
  });
}

// ---- shutdown ----

void ControlLoop::end_after_job() {
  if (is_draining_ || options_.expected_workers == 0) return;
  const ModelsUse models = options_.models_use ? options_.models_use() : ModelsUse{};
  if (models.has_pushes) job_.on_push();
  const JobMonitor::State state = job_.check(now_, !sessions_.is_empty() || models.clients != 0);
  if (state == JobMonitor::State::kRunning) return;
  const std::string ranks = std::to_string(job_.max_ranks()) + " of " +
                            std::to_string(options_.expected_workers) + " expected ranks";
  if (state == JobMonitor::State::kDone) {
    exit_reason_ = ExitReason::kJobDone;
    log_.info("job finished: " + ranks + " joined, and all sessions" +
              (job_.has_pushes() ? " and connections of models" : "") + " have ended");
  } else {
    exit_reason_ = ExitReason::kJobNeverStarted;
    log_.warn("job did not start: at most " + ranks +
              " joined at the same time (--expected-workers, "
              "--arrival-timeout)");
  }
  begin_drain();
}

void ControlLoop::begin_drain() {
  if (is_draining_) return;
  now_ = monotonic_now();
  is_draining_ = true;
  drain_deadline_ = now_ + options_.drain_timeout;
  blackbox_.record(blackbox::EventKind::kReducerDraining, {.a = sessions_.open().size()});
  log_.info("draining: " + std::to_string(sessions_.open().size()) + " sessions left");
  sessions_.wake_all();
  // A session that is joining continues too: other reducers may have committed it already.
  close_if_empty();
}

void ControlLoop::begin_stop(Errc code, const char* text) {
  now_ = monotonic_now();
  is_draining_ = true;
  is_stopping_ = true;
  blackbox_.record(blackbox::EventKind::kReducerStopping, {.code = code}, text);
  sessions_.stop(code, text, now_ + linger());
  for (const auto& connection : connections_) connection->limit_linger(now_ + linger());
  close_if_empty();
}

Nanos ControlLoop::linger() const noexcept {
  return is_stopping_ ? std::min(options_.linger_timeout, kStopLinger) : options_.linger_timeout;
}

void ControlLoop::close_if_empty() {
  if (!is_draining_ || is_closed_ || !sessions_.is_empty()) return;
  is_closed_ = true;
  // A child of fork() may still have the descriptor. Without shutdown, connections to the port would go on to
  // be established, and nobody would answer.
  ::shutdown(acceptor_.native_handle(), SHUT_RDWR);
  boost::system::error_code ignored;
  acceptor_.close(ignored);
  mailbox_.stop();
  accept_timer_.cancel();
  audit_.end();
  session_log_.end();
  // Connections that are finishing have their linger deadline. The others belong to no session.
  for (const auto& connection : connections_) {
    if (!connection->is_finishing()) connection->close(Errc::kShutdown);
  }
  forget_closed();
  if (connections_.empty()) tick_timer_.cancel();  // otherwise the last tick ends the loop
}

}  // namespace sluice::reducer
