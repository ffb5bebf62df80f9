#include "transport/rdma/rdma_context.h"

#include <algorithm>
#include <thread>
#include <utility>
#include <vector>

#include "core/clock.h"
#include "transport/rdma/rdma_endpoint.h"

namespace sluice::transport::rdma {
namespace {

// How long a context that ends waits for what its endpoints have sent to arrive.
constexpr Nanos kLeave = 1 * kSecond;
// How long a device that goes without a word, as one of software does, goes unnoticed where packets go.
constexpr Nanos kLook = 1 * kSecond;

// A context's look at the events of a device that its endpoints use.
class DeviceWatch final : public tcp::Watcher {
 public:
  DeviceWatch(std::shared_ptr<const Device> device, tcp::TcpContext& sleep)
      : device_(std::move(device)), sleep_(sleep) {
    device_->events().wakes(sleep_);
  }
  DeviceWatch(const DeviceWatch&) = delete;
  DeviceWatch& operator=(const DeviceWatch&) = delete;
  ~DeviceWatch() {
    unwatch();
    device_->events().forget(sleep_);
  }
  [[nodiscard]] Result<void> watch() {
    const auto watched = sleep_.watch(device_->events().fd(), *this);
    if (!watched) return tl::unexpected(watched.error());
    handle_ = *watched;
    watches_ = true;
    return {};
  }
  [[nodiscard]] const Device* device() const noexcept { return device_.get(); }
  void readable() noexcept override {
    device_->events().look();
    if (device_->events().gone()) unwatch();  // it stays readable
  }

 private:
  void unwatch() noexcept {
    if (std::exchange(watches_, false)) sleep_.unwatch(device_->events().fd(), handle_);
  }
  const std::shared_ptr<const Device> device_;
  tcp::TcpContext& sleep_;
  Handle handle_;
  bool watches_ = false;
};

class Both final : public tcp::TcpContext {
 public:
  explicit Both(std::unique_ptr<tcp::TcpContext> tcp)
      : tcp_(std::move(tcp)),
        scratch_(std::make_unique_for_overwrite<std::byte[]>(tcp::FrameReader::kScratchBytes)) {}
  ~Both() override;

  Result<Endpoint*> adopt(tcp::Socket socket, Handler& handler, const EndpointOptions& options) override;
  Result<Handle> watch(int fd, tcp::Watcher& watcher) override { return tcp_->watch(fd, watcher); }
  void unwatch(int fd, Handle watch) noexcept override { tcp_->unwatch(fd, watch); }
  unsigned poll(Nanos now, size_t budget_bytes) noexcept override;
  void wait(Nanos timeout) noexcept override;
  void wake() noexcept override { tcp_->wake(); }
  size_t endpoint_count() const noexcept override { return tcp_->endpoint_count() + open_; }

 private:
  [[nodiscard]] Result<void> watch(const std::shared_ptr<const Device>& device);
  void unwatch_unused() noexcept;

  const std::unique_ptr<tcp::TcpContext> tcp_;
  const std::unique_ptr<std::byte[]> scratch_;
  std::vector<std::unique_ptr<DeviceWatch>> devices_;
  std::vector<std::unique_ptr<RdmaEndpoint>> endpoints_;  // those that linger too
  size_t open_ = 0;
  Nanos looked_ = 0;
};

// A kernel's socket sends on when its process has let go of it; nobody does that for a queue pair.
Both::~Both() {
  for (const auto& endpoint : endpoints_) endpoint->leave();
  const auto gone = [](const auto& e) { return e->gone(); };
  const Nanos deadline = monotonic_now() + kLeave;
  while (!std::ranges::all_of(endpoints_, gone) && monotonic_now() < deadline) {
    for (const auto& endpoint : endpoints_) {
      endpoint->look_at_lifeline();  // a peer that is gone takes nothing
      endpoint->turn(deadline, 0);
    }
    std::this_thread::yield();
  }
}

Result<Endpoint*> Both::adopt(tcp::Socket socket, Handler& handler, const EndpointOptions& options) {
  if (!socket.accompanied()) return tcp_->adopt(std::move(socket), handler, options);
  std::unique_ptr<QueuePair> pair(static_cast<QueuePair*>(socket.take_companion().release()));
  auto endpoint = std::make_unique<RdmaEndpoint>(std::move(socket), std::move(pair), handler, options, *tcp_,
                                                 std::span(scratch_.get(), tcp::FrameReader::kScratchBytes));
  if (auto watched = endpoint->watch(); !watched) return tl::unexpected(watched.error());
  if (auto watched = watch(endpoint->device()); !watched) return tl::unexpected(watched.error());
  endpoints_.push_back(std::move(endpoint));
  ++open_;
  return endpoints_.back().get();
}

Result<void> Both::watch(const std::shared_ptr<const Device>& device) {
  if (std::ranges::find(devices_, device.get(), &DeviceWatch::device) != devices_.end()) return {};
  auto added = std::make_unique<DeviceWatch>(device, *tcp_);
  if (auto watched = added->watch(); !watched) return watched;
  devices_.push_back(std::move(added));
  return {};
}

void Both::unwatch_unused() noexcept {
  std::erase_if(devices_, [&](const auto& watch) {
    return std::ranges::none_of(
        endpoints_, [&](const auto& endpoint) { return endpoint->device().get() == watch->device(); });
  });
}

// By index: a callback may adopt, and the list may move then.
unsigned Both::poll(Nanos now, size_t budget_bytes) noexcept {
  unsigned done = tcp_->poll(now, budget_bytes);
  if (!devices_.empty() && now - looked_ >= kLook) {
    looked_ = now;
    for (const auto& device : devices_) device->readable();
  }
  for (size_t i = 0; i < endpoints_.size(); ++i) done += endpoints_[i]->turn(now, budget_bytes);
  bool any_gone = false;
  for (bool again = true; std::exchange(again, false);) {
    for (size_t i = 0; i < endpoints_.size(); ++i) {
      any_gone |= endpoints_[i]->gone();
      if (!endpoints_[i]->closing()) continue;
      endpoints_[i]->finish();
      --open_;
      ++done;
      again = true;  // its callback may have closed one before it
    }
  }
  if (any_gone) {
    std::erase_if(endpoints_, [](const auto& e) { return e->gone(); });
    unwatch_unused();
  }
  return done;
}

void Both::wait(Nanos timeout) noexcept {
  for (const auto& endpoint : endpoints_) {
    if (!endpoint->may_sleep()) timeout = 0;
    // The owner must come round for the deadlines.
    const Nanos scan = endpoint->frame_deadline() / 4;
    if (endpoint->timed() && (timeout < 0 || timeout > scan)) timeout = scan;
  }
  tcp_->wait(timeout);
}

}  // namespace

Result<std::unique_ptr<tcp::TcpContext>> make_context() {
  auto tcp = tcp::make_context();
  if (!tcp) return tl::unexpected(tcp.error());
  return std::make_unique<Both>(std::move(*tcp));
}

}  // namespace sluice::transport::rdma
