#include "store/coordinator/etcd/address_lookup.h"

#include <chrono>
#include <condition_variable>
#include <mutex>
#include <system_error>
#include <thread>

#include "transport/tcp/address.h"

namespace sluice::store::etcd {

struct AddressLookup::State {
  State(std::string host_name, uint16_t port_number) : host(std::move(host_name)), port(port_number) {}
  const std::string host;
  const uint16_t port;
  std::mutex mutex;
  std::condition_variable changed;
  bool is_running = false;
  uint64_t finished = 0;  // the number of lookups
  Result<AddressList> last;
};

namespace {

Result<AddressList> resolve(const std::string& host, uint16_t port) {
  addrinfo hints{};
  hints.ai_socktype = SOCK_STREAM;
  hints.ai_flags = AI_ADDRCONFIG | AI_NUMERICSERV;
  addrinfo* list = nullptr;
  const int error = ::getaddrinfo(host.c_str(), std::to_string(port).c_str(), &hints, &list);
  if (error != 0) return fail(Errc::kReset, std::string("cannot resolve the name: ") + ::gai_strerror(error));
  return AddressList(list, &::freeaddrinfo);
}

}  // namespace

AddressLookup::AddressLookup(std::string host, uint16_t port)
    : state_(std::make_shared<State>(std::move(host), port)) {}

Result<AddressList> AddressLookup::find(Nanos deadline) {
  if (auto numeric = transport::tcp::resolve(state_->host, state_->port, AF_UNSPEC, AI_NUMERICHOST))
    return AddressList(std::move(*numeric));

  std::unique_lock lock(state_->mutex);
  const uint64_t before = state_->finished;
  if (!state_->is_running) {
    try {
      std::thread([state = state_] {
        auto found = resolve(state->host, state->port);
        const std::lock_guard finished(state->mutex);
        state->last = std::move(found);
        state->is_running = false;
        ++state->finished;
        state->changed.notify_all();
      }).detach();
    } catch (const std::system_error& error) {
      return fail(Errc::kReset, std::string("cannot start a thread to resolve the name: ") + error.what());
    }
    state_->is_running = true;
  }
  const bool found = state_->changed.wait_until(
      lock, std::chrono::steady_clock::time_point(std::chrono::nanoseconds(deadline)),
      [&] { return state_->finished != before; });
  if (!found) return fail(Errc::kTimeout, "the name was not resolved in time");
  return state_->last;
}

}  // namespace sluice::store::etcd
