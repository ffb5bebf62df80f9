#include "gpu_client/engine/mender.h"

#include <poll.h>
#include <sys/eventfd.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <cstring>
#include <utility>

#include "core/assert.h"
#include "core/clock.h"
#include "gpu_client/engine/seat_taking.h"
#include "gpu_client/engine/thread.h"

namespace sluice::engine {

Mender::Mender(MenderOptions options, Listener& listener)
    : options_(std::move(options)),
      listener_(listener),
      back_off_(options_.first_pause, options_.longest_pause,
                static_cast<uint32_t>(monotonic_now()) ^ options_.who.rank) {}

Result<void> Mender::request(bool control, uint64_t lanes) {
  const std::lock_guard lock(mutex_);
  if (stopping_ || gone_) return {};
  const Nanos now = monotonic_now();
  const auto broken = [&](size_t index) {
    Item& item = items_[index];
    if (std::exchange(item.broken, true)) return;
    item.relapse = item.mended_at != 0 && now - item.mended_at < options_.longest_pause;
    if (!item.relapse) item.since = now;
  };
  if (control) broken(kControl);
  for (size_t lane = 0; lane < wire::kMaxLanes; ++lane) {
    if ((lanes >> lane & 1) != 0) broken(1 + lane);
  }
  if (running_ || (!control && lanes == 0)) return {};
  if (thread_.joinable()) thread_.join();  // it has said that it is done: this does not wait for anything
  if (!interrupt_.valid()) interrupt_ = transport::tcp::Socket(::eventfd(0, EFD_CLOEXEC | EFD_NONBLOCK));
  if (!interrupt_.valid())
    return fail(Errc::kSystem, std::string("cannot make an eventfd: ") + std::strerror(errno));
  auto thread = start_thread("sluice-mender", [this] { run(); });
  if (!thread) return tl::unexpected(thread.error());
  thread_ = std::move(*thread);
  running_ = true;
  return {};
}

void Mender::proven(uint32_t lane) {
  const std::lock_guard lock(mutex_);
  items_[1 + lane].mended_at = 0;
}

void Mender::stop() {
  {
    const std::lock_guard lock(mutex_);
    stopping_ = true;
    const uint64_t one = 1;
    if (interrupt_.valid()) static_cast<void>(!::write(interrupt_.fd(), &one, sizeof one));
  }
  if (!thread_.joinable()) return;
  SLUICE_ASSERT(thread_.get_id() != std::this_thread::get_id());
  thread_.join();
}

std::optional<Mender::Job> Mender::next_job(size_t last) {
  const std::lock_guard lock(mutex_);
  std::optional<Job> job;
  for (size_t i = 1; i <= kItems && !stopping_; ++i) {
    const size_t item = (last + i) % kItems;
    if (!items_[item].broken) continue;
    const Nanos deadline = items_[item].since + options_.resume_timeout;
    if (!job)
      job = {.item = item, .deadline = deadline, .relapse = std::exchange(items_[item].relapse, false)};
    job->deadline = std::min(job->deadline, deadline);
  }
  running_ = job.has_value();
  return job;
}

void Mender::run() {
  using Outcome = Attempt::Outcome;
  size_t last = kItems - 1;  // the control connection first
  bool first = true;
  Nanos refused_since = 0;
  std::string words = "not tried";
  while (const auto job = next_job(last)) {
    if (job->relapse) {
      // An opened connection proves nothing where it breaks at once: neither deadline nor back-off begin
      // anew.
      words = "connections break as soon as they are opened";
      pause(job->deadline);
    } else if (first) {
      back_off_.reset();
    }
    first = false;
    const Nanos began = monotonic_now();
    if (began >= job->deadline) {
      return give_up(Errc::kTimeout, options_.name + ": not reached again within " +
                                         std::to_string(options_.resume_timeout / kMillisecond) +
                                         " ms: " + words);
    }
    last = job->item;
    Attempt a = attempt(job->item, {std::min(job->deadline, began + options_.try_timeout), interrupt_.fd()});
    if (a.outcome == Outcome::kMended) {
      if (!mended(job->item, std::move(a.socket))) return;
      if (!job->relapse) back_off_.reset();
      refused_since = 0;
      continue;
    }
    const Nanos now = monotonic_now();
    Nanos next = job->deadline;
    if (a.outcome != Outcome::kRefused) {
      refused_since = 0;
    } else {
      if (refused_since == 0) refused_since = began;
      next = std::min(next, refused_since + options_.refusal_grace);
    }
    const bool conclusive = refused_since != 0 && now >= refused_since + options_.refusal_grace;
    if (a.outcome == Outcome::kGone || conclusive) return give_up(a.why.code, std::move(a.why.text));
    words = std::move(a.why.text);
    pause(next);
  }
}

Mender::Attempt Mender::attempt(size_t item, const Until& until) const {
  using Outcome = Attempt::Outcome;
  const bool control = item == kControl;
  const auto failed = [](Outcome outcome, Error why) {
    return Attempt{.outcome = outcome, .socket = {}, .why = std::move(why)};
  };
  auto socket = connect_once(options_.address, options_.who, until);
  if (!socket) {
    const bool refused = socket.error().code == Errc::kReset;
    return failed(refused ? Outcome::kRefused : Outcome::kAgain,
                  {socket.error().code, options_.name + ": " + socket.error().text});
  }
  const auto told = [&](Error why) {
    const bool unknown = why.code == Errc::kUnknownSession;
    return failed(unknown ? Outcome::kRefused : Outcome::kAgain, std::move(why));
  };
  auto g = introduce(std::move(*socket), options_.address, options_.name, options_.who,
                     control ? wire::Purpose::kControl : wire::Purpose::kLane,
                     control ? 0 : static_cast<uint32_t>(item - 1), options_.incarnation, until);
  if (!g) return told(std::move(g.error()));
  if (g->welcome.reducer != options_.reducer) return failed(Outcome::kGone, another_process(*g));
  const AttachTerms terms{.reducer = options_.reducer,
                          .handle = options_.handle,
                          .view_hash = options_.view_hash,
                          .slots = control ? 0 : options_.slots};
  if (auto done = attach(*g, options_.who, terms, until); !done) return told(std::move(done.error()));
  say_transport(*g, options_.who);
  return {.outcome = Outcome::kMended, .socket = std::move(g->socket)};
}

bool Mender::mended(size_t item, transport::tcp::Socket socket) {
  {
    // Before the listener has it: from then on it may break again, and be asked for again.
    const std::lock_guard lock(mutex_);
    if (stopping_) {
      running_ = false;
      return false;
    }
    items_[item].broken = false;
    items_[item].mended_at = monotonic_now();
  }
  if (item == kControl) {
    listener_.on_control_mended(options_.reducer,
                                ControlLink(std::move(socket), options_.name, options_.handle));
  } else {
    listener_.on_lane_mended(options_.reducer, static_cast<uint32_t>(item - 1), std::move(socket));
  }
  return true;
}

void Mender::give_up(Errc code, std::string text) {
  {
    const std::lock_guard lock(mutex_);
    running_ = false;
    if (stopping_) return;
    gone_ = true;
  }
  listener_.on_reducer_gone(options_.reducer, code, std::move(text));
}

void Mender::pause(Nanos until) {
  const Nanos time = std::clamp<Nanos>(until - monotonic_now(), 0, back_off_.next());
  pollfd p{.fd = interrupt_.fd(), .events = POLLIN, .revents = 0};
  ::poll(&p, 1, static_cast<int>(div_ceil(static_cast<uint64_t>(time), kMillisecond)));
}

}  // namespace sluice::engine
