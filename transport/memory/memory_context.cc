#include "transport/memory/memory_context.h"

#include <utility>
#include <vector>

#include "transport/memory/context_waker.h"
#include "transport/memory/pipe_endpoint.h"
#include "transport/rdma/rdma_context.h"
#include "transport/tcp/address.h"

namespace sluice::transport::memory {
namespace {

// MemoryContext adds endpoints on pipes to a TcpContext, whose wait() it uses.
class MemoryContext final : public tcp::TcpContext {
 public:
  explicit MemoryContext(std::unique_ptr<tcp::TcpContext> below)
      : below_(std::move(below)), waker_(std::make_shared<ContextWaker>(*below_)) {}
  ~MemoryContext() override {
    endpoints_.clear();
    waker_->detach();
  }

  Result<Endpoint*> adopt(tcp::Socket socket, Handler& handler, const EndpointOptions& options) override;
  Result<Handle> watch(int fd, tcp::Watcher& watcher) override { return below_->watch(fd, watcher); }
  void unwatch(int fd, Handle watch) noexcept override { below_->unwatch(fd, watch); }
  unsigned poll(Nanos now, size_t budget_bytes) noexcept override;
  void wait(Nanos timeout) noexcept override;
  void wake() noexcept override { below_->wake(); }
  size_t endpoint_count() const noexcept override { return below_->endpoint_count() + endpoints_.size(); }

 private:
  unsigned finish_closed() noexcept;

  const std::unique_ptr<tcp::TcpContext> below_;
  const std::shared_ptr<ContextWaker> waker_;
  std::vector<std::unique_ptr<PipeEndpoint>> endpoints_;
};

Result<Endpoint*> MemoryContext::adopt(tcp::Socket socket, Handler& handler, const EndpointOptions& options) {
  if (!socket.has_pipe()) return below_->adopt(std::move(socket), handler, options);
  const std::unique_ptr<tcp::AttachedChannel> channel = socket.release_channel();
  endpoints_.push_back(std::make_unique<PipeEndpoint>(
      static_cast<PipeEnd&>(*channel), handler,
      PipeEndpoint::Options{.endpoint = options, .peer = "memory " + tcp::peer_name(socket.fd())}, waker_));
  waker_->notify();  // the peer may have put frames already
  return endpoints_.back().get();
}

// Iterates by index: a callback may adopt a socket, which may reallocate the list.
unsigned MemoryContext::poll(Nanos now, size_t budget_bytes) noexcept {
  unsigned done = below_->poll(now, budget_bytes);
  if (!waker_->take_work()) return done;
  for (size_t i = 0; i < endpoints_.size(); ++i) done += endpoints_[i]->poll(budget_bytes);
  return done + finish_closed();
}

unsigned MemoryContext::finish_closed() noexcept {
  unsigned done = 0;
  for (bool again = true; std::exchange(again, false);) {
    for (size_t i = 0; i < endpoints_.size(); ++i) {
      if (!endpoints_[i]->can_finish()) continue;
      endpoints_[i]->finish();
      endpoints_.erase(endpoints_.begin() + static_cast<std::ptrdiff_t>(i));
      ++done;
      again = true;  // the callback may have closed an earlier endpoint
      break;
    }
  }
  return done;
}

void MemoryContext::wait(Nanos timeout) noexcept {
  below_->wait(waker_->may_sleep() ? timeout : 0);
  waker_->end_sleep();
}

}  // namespace

Result<std::unique_ptr<tcp::TcpContext>> make_context() {
  auto below = rdma::make_context();
  if (!below) return tl::unexpected(below.error());
  return std::make_unique<MemoryContext>(std::move(*below));
}

}  // namespace sluice::transport::memory
