#include "gpu_client/pipeline/courier.h"

#include <utility>

#include "core/clock.h"
#include "gpu_client/engine/thread.h"

namespace sluice::pipeline {
namespace {

// Operations at the session at a time; it has 1024 places. What is copied out ahead of the network is bounded
// by the staging, what lies in the caller's buffers by this.
constexpr size_t kMostAtSession = 64;

}  // namespace

Courier::Courier(engine::Session& session, Device& device, uint32_t* landed)
    : session_(session), device_(device), landed_(landed) {}

Result<void> Courier::start() {
  auto out = engine::start_thread("sluice-out", [this] { run_out(); });
  if (!out) return tl::unexpected(out.error());
  out_thread_ = std::move(*out);
  auto in = engine::start_thread("sluice-in", [this] { run_in(); });
  if (!in) return tl::unexpected(in.error());
  in_thread_ = std::move(*in);
  return {};
}

Courier::~Courier() {
  close(0);
}

std::unique_ptr<Event> Courier::spare_event() {
  const std::lock_guard lock(mutex_);
  if (spare_.empty()) return nullptr;
  auto event = std::move(spare_.back());
  spare_.pop_back();
  return event;
}

void Courier::carry(Parcel parcel) {
  {
    const std::lock_guard lock(mutex_);
    // Here, where it may fail, so that land() needs no memory.
    const size_t most = spare_.size() + under_way_ + 1;
    if (spare_.capacity() < most) spare_.reserve(2 * most);
    out_.push_back(std::move(parcel));
    ++out_.back().flight->parcels_left;
    ++under_way_;
  }
  for_out_.notify_one();
}

uint64_t Courier::under_way() {
  const std::lock_guard lock(mutex_);
  return under_way_;
}

void Courier::given(Flight& flight, Errc failed) {
  {
    const std::lock_guard lock(mutex_);
    end_part(flight, failed);
  }
  landed_one_.notify_all();
}

void Courier::end_part(Flight& flight, Errc status) noexcept {
  if (flight.status == Errc::kOk) flight.status = status;
  if (--flight.parcels_left == 0 && flight.status == Errc::kOk) counts_.operations += flight.operations;
}

bool Courier::await(const Flight& flight, Nanos deadline, Errc& how) {
  std::unique_lock lock(mutex_);
  const auto landed = [&] { return flight.landed(); };
  if (deadline == engine::kNoDeadline) {
    landed_one_.wait(lock, landed);
  } else {
    const Nanos left = deadline - monotonic_now();
    if (!landed_one_.wait_for(lock, std::chrono::nanoseconds(left > 0 ? left : 0), landed)) return false;
  }
  how = flight.status;
  return true;
}

Courier::Counts Courier::counts() {
  const std::lock_guard lock(mutex_);
  return counts_;
}

void Courier::close(Nanos deadline) {
  std::unique_lock lock(mutex_);
  if (!out_thread_.joinable()) return;
  const auto idle = [this] { return under_way_ == 0; };
  const Nanos left = deadline - monotonic_now();
  if (!landed_one_.wait_for(lock, std::chrono::nanoseconds(left > 0 ? left : 0), idle)) {
    lock.unlock();
    session_.abort(Errc::kTimeout, "the session was closed with operations of streams under way");
    lock.lock();
    landed_one_.wait(lock, idle);
  }
  closing_ = true;
  lock.unlock();
  for_out_.notify_one();
  for_in_.notify_one();
  out_thread_.join();
  if (in_thread_.joinable()) in_thread_.join();
}

void Courier::run_out() noexcept {
  std::list<Parcel> one;
  std::unique_lock lock(mutex_);
  for (;;) {
    for_out_.wait(lock, [this] { return closing_ || (!out_.empty() && in_.size() < kMostAtSession); });
    if (out_.empty()) return;
    one.splice(one.begin(), out_, out_.begin());
    lock.unlock();
    send(one.front());
    lock.lock();
    in_.splice(in_.end(), one);
    for_in_.notify_one();
  }
}

void Courier::send(Parcel& parcel) noexcept {
  try {
    if (parcel.ready) parcel.status = device_.await(*parcel.ready);
    if (!parcel.status.ok()) return session_.abort(Errc::kSystem, device_.last_words());
    parcel.status = session_.allreduce(parcel.request, parcel.name);
    // One that is left out would let the other ranks take the next for it.
    if (!parcel.status.ok() && session_.code() == Errc::kOk)
      session_.abort(parcel.status.code(), "the session does not take a piece of an operation on a stream");
  } catch (const std::exception&) {
    parcel.status = Errc::kSystem;
    session_.abort(Errc::kSystem, {});
  }
}

void Courier::run_in() noexcept {
  std::list<Parcel> one;
  std::unique_lock lock(mutex_);
  for (;;) {
    for_in_.wait(lock, [this] { return closing_ || !in_.empty(); });
    if (in_.empty()) return;
    one.splice(one.begin(), in_, in_.begin());
    lock.unlock();
    for_out_.notify_one();  // there is room
    Parcel& parcel = one.front();
    if (parcel.name != 0) parcel.status = session_.wait(parcel.name, engine::kNoDeadline);
    lock.lock();
    const bool heard = land(parcel);  // counted before a stream goes on that somebody synchronizes with
    lock.unlock();
    device_.open(landed_, parcel.number);
    one.clear();
    if (heard) landed_one_.notify_all();
    lock.lock();
  }
}

bool Courier::land(Parcel& parcel) noexcept {
  if (parcel.piece) ++counts_.pieces;
  if (parcel.ready) spare_.push_back(std::move(parcel.ready));  // in what carry() has reserved
  --under_way_;
  end_part(*parcel.flight, parcel.status.code());
  return under_way_ == 0 || parcel.flight->landed();
}

}  // namespace sluice::pipeline
