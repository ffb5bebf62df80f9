#include "transport/rdma/rdma_context.h"

#include <algorithm>
#include <thread>
#include <utility>
#include <vector>

#include "core/clock.h"
#include "transport/rdma/rdma_endpoint.h"

namespace sluice::transport::rdma {
namespace {

// How long the destructor of a context waits for the delivery of sent bytes.
constexpr Nanos kDrainTimeout = 1 * kSecond;
// How often a polled context checks its devices: a software driver does not report the removal of its device.
constexpr Nanos kDevicePollInterval = 1 * kSecond;

// DeviceWatcher handles the events of a device in the poll() of a context that has endpoints on the device.
class DeviceWatcher final : public tcp::Watcher {
 public:
  DeviceWatcher(std::shared_ptr<const Device> device, tcp::TcpContext& context)
      : device_(std::move(device)), context_(context) {
    device_->events().add_context(context_);
  }
  DeviceWatcher(const DeviceWatcher&) = delete;
  DeviceWatcher& operator=(const DeviceWatcher&) = delete;
  ~DeviceWatcher() {
    unwatch();
    device_->events().remove_context(context_);
  }
  [[nodiscard]] Result<void> watch() {
    const auto watched = context_.watch(device_->events().fd(), *this);
    if (!watched) return tl::unexpected(watched.error());
    handle_ = *watched;
    is_watching_ = true;
    return {};
  }
  [[nodiscard]] const Device* device() const noexcept { return device_.get(); }
  void on_readable() noexcept override {
    device_->events().poll();
    if (device_->events().is_removed()) unwatch();  // its descriptor stays readable
  }

 private:
  void unwatch() noexcept {
    if (std::exchange(is_watching_, false)) context_.unwatch(device_->events().fd(), handle_);
  }
  const std::shared_ptr<const Device> device_;
  tcp::TcpContext& context_;
  Handle handle_;
  bool is_watching_ = false;
};

// RdmaContext adds endpoints over queue pairs to a TcpContext, whose wait() and watchers it uses.
class RdmaContext final : public tcp::TcpContext {
 public:
  explicit RdmaContext(std::unique_ptr<tcp::TcpContext> tcp)
      : tcp_(std::move(tcp)),
        scratch_(std::make_unique_for_overwrite<std::byte[]>(tcp::FrameReader::kScratchBytes)) {}
  ~RdmaContext() override;

  Result<Endpoint*> adopt(tcp::Socket socket, Handler& handler, const EndpointOptions& options) override;
  Result<Handle> watch(int fd, tcp::Watcher& watcher) override { return tcp_->watch(fd, watcher); }
  void unwatch(int fd, Handle watch) noexcept override { tcp_->unwatch(fd, watch); }
  unsigned poll(Nanos now, size_t budget_bytes) noexcept override;
  void wait(Nanos timeout) noexcept override;
  void wake() noexcept override { tcp_->wake(); }
  size_t endpoint_count() const noexcept override { return tcp_->endpoint_count() + open_; }

 private:
  [[nodiscard]] Result<void> watch(const std::shared_ptr<const Device>& device);
  void unwatch_unused_devices() noexcept;

  const std::unique_ptr<tcp::TcpContext> tcp_;
  const std::unique_ptr<std::byte[]> scratch_;
  std::vector<std::unique_ptr<DeviceWatcher>> devices_;
  std::vector<std::unique_ptr<RdmaEndpoint>> endpoints_;  // includes closed endpoints that still drain
  size_t open_ = 0;
  Nanos devices_polled_at_ = 0;
};

// The kernel goes on sending for a closed socket. A destroyed queue pair stops at once, so this waits.
RdmaContext::~RdmaContext() {
  for (const auto& endpoint : endpoints_) endpoint->close_without_callbacks();
  const auto has_drained = [](const auto& e) { return e->has_drained(); };
  const Nanos deadline = monotonic_now() + kDrainTimeout;
  while (!std::ranges::all_of(endpoints_, has_drained) && monotonic_now() < deadline) {
    for (const auto& endpoint : endpoints_) {
      endpoint->check_socket();  // a peer that has closed acknowledges nothing more
      endpoint->poll(deadline, 0);
    }
    std::this_thread::yield();
  }
}

Result<Endpoint*> RdmaContext::adopt(tcp::Socket socket, Handler& handler, const EndpointOptions& options) {
  if (!socket.has_queue_pair()) return tcp_->adopt(std::move(socket), handler, options);
  std::unique_ptr<QueuePair> pair(static_cast<QueuePair*>(socket.release_channel().release()));
  auto endpoint = std::make_unique<RdmaEndpoint>(std::move(socket), std::move(pair), handler, options, *tcp_,
                                                 std::span(scratch_.get(), tcp::FrameReader::kScratchBytes));
  if (auto watched = endpoint->watch(); !watched) return tl::unexpected(watched.error());
  if (auto watched = watch(endpoint->device()); !watched) return tl::unexpected(watched.error());
  endpoints_.push_back(std::move(endpoint));
  ++open_;
  return endpoints_.back().get();
}

Result<void> RdmaContext::watch(const std::shared_ptr<const Device>& device) {
  if (std::ranges::find(devices_, device.get(), &DeviceWatcher::device) != devices_.end()) return {};
  auto added = std::make_unique<DeviceWatcher>(device, *tcp_);
  if (auto watched = added->watch(); !watched) return watched;
  devices_.push_back(std::move(added));
  return {};
}

void RdmaContext::unwatch_unused_devices() noexcept {
  std::erase_if(devices_, [&](const auto& watcher) {
    return std::ranges::none_of(
        endpoints_, [&](const auto& endpoint) { return endpoint->device().get() == watcher->device(); });
  });
}

// Iterates by index: a callback may adopt a socket, which may reallocate the list.
unsigned RdmaContext::poll(Nanos now, size_t budget_bytes) noexcept {
  unsigned done = tcp_->poll(now, budget_bytes);
  if (!devices_.empty() && now - devices_polled_at_ >= kDevicePollInterval) {
    devices_polled_at_ = now;
    for (const auto& device : devices_) device->on_readable();
  }
  for (size_t i = 0; i < endpoints_.size(); ++i) done += endpoints_[i]->poll(now, budget_bytes);
  bool any_drained = false;
  for (bool again = true; std::exchange(again, false);) {
    for (size_t i = 0; i < endpoints_.size(); ++i) {
      any_drained |= endpoints_[i]->has_drained();
      if (!endpoints_[i]->is_closing()) continue;
      endpoints_[i]->finish();
      --open_;
      ++done;
      again = true;  // the callback may have closed an earlier endpoint
    }
  }
  if (any_drained) {
    std::erase_if(endpoints_, [](const auto& e) { return e->has_drained(); });
    unwatch_unused_devices();
  }
  return done;
}

void RdmaContext::wait(Nanos timeout) noexcept {
  for (const auto& endpoint : endpoints_) {
    if (!endpoint->may_sleep()) timeout = 0;
    // Deadlines are checked in poll(), so the owner must call it from time to time.
    const Nanos interval = endpoint->frame_deadline() / 4;
    if (endpoint->has_deadline() && (timeout < 0 || timeout > interval)) timeout = interval;
  }
  tcp_->wait(timeout);
}

}  // namespace

Result<std::unique_ptr<tcp::TcpContext>> make_context() {
  auto tcp = tcp::make_context();
  if (!tcp) return tl::unexpected(tcp.error());
  return std::make_unique<RdmaContext>(std::move(*tcp));
}

}  // namespace sluice::transport::rdma
