#include "transport/inproc/inproc_network.h"

#include <algorithm>
#include <string>
#include <vector>

#include "transport/inproc/inproc_endpoint.h"

namespace sluice::transport::inproc {
namespace {

class InprocContext final : public Context {
 public:
  unsigned poll(Nanos /*now*/, size_t budget_bytes) noexcept override {
    signal_->clear_work();
    unsigned done = 0;
    // Uses an index, because a test may connect() from within a callback.
    for (size_t i = 0; i < endpoints_.size(); ++i) done += endpoints_[i]->poll(budget_bytes);
    // Repeats until no endpoint is closing, because a callback of finish() may close an earlier endpoint.
    for (bool again = true; again;) {
      again = false;
      for (size_t i = 0; i < endpoints_.size(); ++i) {
        if (!endpoints_[i]->closing()) continue;
        endpoints_[i]->finish();
        endpoints_.erase(endpoints_.begin() + static_cast<std::ptrdiff_t>(i));
        ++done;
        again = true;
        break;
      }
    }
    return done;
  }

  void wait(Nanos timeout) noexcept override { signal_->wait(timeout); }
  void wake() noexcept override { signal_->wake(); }
  size_t endpoint_count() const noexcept override { return endpoints_.size(); }

  Endpoint* add(std::unique_ptr<InprocEndpoint> endpoint) {
    endpoints_.push_back(std::move(endpoint));
    signal_->notify_work();
    return endpoints_.back().get();
  }
  [[nodiscard]] const std::shared_ptr<Signal>& signal() const noexcept { return signal_; }

 private:
  const std::shared_ptr<Signal> signal_ = std::make_shared<Signal>();
  std::vector<std::unique_ptr<InprocEndpoint>> endpoints_;
};

}  // namespace

std::unique_ptr<Context> Network::make_context() {
  return std::make_unique<InprocContext>();
}

std::pair<Endpoint*, Endpoint*> Network::connect(Context& a, Handler& handler_a, Context& b,
                                                 Handler& handler_b, const EndpointOptions& options) {
  auto& context_a = static_cast<InprocContext&>(a);
  auto& context_b = static_cast<InprocContext&>(b);
  auto connection = std::make_shared<Connection>(std::max<uint32_t>(options.send_queue, 1));
  connection->pipes[0].sender = connection->pipes[1].receiver = context_a.signal();
  connection->pipes[1].sender = connection->pipes[0].receiver = context_b.signal();
  const std::string peer = "inproc " + std::to_string(connections_++);
  Endpoint* end_a = context_a.add(std::make_unique<InprocEndpoint>(connection, 0, handler_a, options, peer));
  Endpoint* end_b = context_b.add(std::make_unique<InprocEndpoint>(connection, 1, handler_b, options, peer));
  return {end_a, end_b};
}

}  // namespace sluice::transport::inproc
