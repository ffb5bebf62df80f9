#include "nccl_plugin/collnet/rendezvous.h"

#include <netinet/in.h>
#include <netinet/tcp.h>
#include <poll.h>
#include <sys/socket.h>

#include <algorithm>
#include <cerrno>
#include <cstring>
#include <utility>

#include "config/sizes.h"
#include "core/bytes.h"
#include "core/clock.h"
#include "nccl_plugin/host/log.h"
#include "transport/tcp/connect.h"

namespace sluice::nccl::collnet {
namespace {

using transport::tcp::Socket;

constexpr uint32_t kHeaderMagic = 0x41434C53;  // "SLCA"
constexpr Nanos kHelloTimeout = 5 * kSecond;   // for a connection to identify itself
constexpr size_t kMaxExtraPending = 64;        // pending beside the nodes; drops the oldest first, once read
constexpr size_t kMaxProbes = 64;              // at a time, to save descriptors of the job
constexpr Nanos kLongestSleep = 100 * kMillisecond;
constexpr Nanos kLogWaitAfter = kSecond;
constexpr size_t kHelloBytes = sizeof(SessionId) + sizeof(uint32_t);  // before the common text

// Time since the last bytes arrived. 0 if the host does not report it: the node's wait then counts from
// now.
Nanos age_of_last_data(int fd) {
  tcp_info info{};
  socklen_t size = sizeof info;
  if (::getsockopt(fd, IPPROTO_TCP, TCP_INFO, &info, &size) != 0) return 0;
  return Nanos{info.tcpi_last_data_recv} * kMillisecond;
}

}  // namespace

void Rendezvous::encode_header(std::span<std::byte, kHeaderBytes> out, const Header& header) noexcept {
  store_le<uint32_t>(out.data(), kHeaderMagic);
  store_le<uint8_t>(out.data() + 4, header.kind);
  store_le<uint8_t>(out.data() + 5, 0);
  store_le<uint16_t>(out.data() + 6, header.code);
  store_le<uint32_t>(out.data() + 8, header.rank);
  store_le<uint32_t>(out.data() + 12, header.text_bytes);
}

bool Rendezvous::decode_header(std::span<const std::byte, kHeaderBytes> in, Header& header) noexcept {
  header = {.kind = load_le<uint8_t>(in.data() + 4),
            .code = load_le<uint16_t>(in.data() + 6),
            .rank = load_le<uint32_t>(in.data() + 8),
            .text_bytes = load_le<uint32_t>(in.data() + 12)};
  return load_le<uint32_t>(in.data()) == kHeaderMagic && header.text_bytes <= kMaxTextBytes;
}

std::string Rendezvous::encode_hello(const PeerSet& peers, Nanos wait) {
  std::string text(kHelloBytes, '\0');
  auto* bytes = reinterpret_cast<std::byte*>(text.data());
  std::memcpy(bytes, peers.session.bytes.data(), peers.session.bytes.size());
  store_le<uint32_t>(bytes + peers.session.bytes.size(),
                     static_cast<uint32_t>(std::clamp<Nanos>(wait / kMillisecond, 0, UINT32_MAX)));
  return text + peers.common_text;
}

Result<void> Rendezvous::run() {
  begin_ = monotonic_now();
  deadline_ = begin_ + timeouts_.join;
  bool logged = false;
  for (;;) {
    const Nanos now = monotonic_now();
    if (is_complete() && now > deadline_) return timeout_error(last_, "connected too late");
    if (is_complete()) return {};
    if (now >= deadline_) return timeout_error(first_missing(), "did not connect in time");
    if (!logged && now >= begin_ + kLogWaitAfter) {
      const size_t more = nodes_.size() - connected_ - 2;
      info("waiting up to %s for %s%s to connect (SLUICE_JOIN_TIMEOUT)",
           config::duration_text(timeouts_.join).c_str(), peers_.name(first_missing()).c_str(),
           more == 0 ? "" : (" and " + std::to_string(more) + " more").c_str());
      logged = true;
    }
    if (now >= begin_ + timeouts_.connect) {
      if (auto probed = probe_missing(); !probed) return probed;
    }
    if (auto waited = wait(std::min(deadline_, now + kLongestSleep)); !waited) return waited;
  }
}

Result<void> Rendezvous::wait(Nanos until) {
  // While a connection waits for a descriptor, poll() would return at once.
  const short accepting = std::exchange(lacks_descriptors_, false) ? 0 : POLLIN;
  std::vector<pollfd> fds = {{.fd = listener_.fd(), .events = accepting, .revents = 0}};
  for (const PendingConnection& p : pending_)
    fds.push_back({.fd = p.socket.fd(), .events = POLLIN, .revents = 0});
  const size_t nodes_begin = fds.size();
  for (size_t rank = 1; rank < nodes_.size(); ++rank) {
    const Socket& connected = nodes_[rank].socket;
    const int probe = probes_.empty() ? -1 : probes_[rank].fd();  // poll() ignores -1
    fds.push_back({.fd = connected.valid() ? connected.fd() : probe, .events = POLLRDHUP, .revents = 0});
  }
  const Nanos left = std::max<Nanos>(until - monotonic_now(), 0);
  if (::poll(fds.data(), fds.size(), static_cast<int>(left / kMillisecond) + 1) < 0) {
    if (errno == EINTR) return {};
    return fail(Errc::kSystem, std::string("cannot wait for the nodes: poll: ") + std::strerror(errno));
  }
  for (size_t i = nodes_begin; i < fds.size(); ++i) {
    if (fds[i].revents == 0) continue;
    return fail(Errc::kReset, peers_.name(static_cast<uint32_t>(i - nodes_begin + 1)) +
                                  " lost: it disconnected before all nodes had connected");
  }
  const Nanos woken = monotonic_now();
  accept_connections(woken);
  std::erase_if(pending_, [&](PendingConnection& p) { return read_hello(p, woken); });
  if (pending_.size() >= most_pending()) pending_.pop_front();  // each was read at least once
  return {};
}

Result<void> Rendezvous::probe_missing() {
  probes_.resize(nodes_.size());
  auto open = static_cast<size_t>(std::ranges::count_if(probes_, &Socket::valid));
  for (uint32_t rank = 1; rank < nodes_.size() && open < kMaxProbes; ++rank) {
    if (nodes_[rank].socket.valid() || probes_[rank].valid()) continue;
    auto probe = transport::tcp::connect_to(
        peers_.nodes[rank].address, peers_.nodes[rank].port,
        {.buffer_bytes = 0, .congestion_control = {}, .local_address = peers_.local_address},
        std::min(deadline_, monotonic_now() + timeouts_.connect));
    if (!probe) return add_context(peers_.name(rank) + " lost", probe.error());
    probes_[rank] = std::move(*probe);
    ++open;
  }
  return {};
}

uint32_t Rendezvous::first_missing() const noexcept {
  uint32_t rank = 1;
  while (rank < nodes_.size() && nodes_[rank].socket.valid()) ++rank;
  return rank;
}

tl::unexpected<Error> Rendezvous::timeout_error(uint32_t rank, const char* text) const {
  return fail(Errc::kTimeout, peers_.name(rank) + " " + text + " (SLUICE_JOIN_TIMEOUT is " +
                                  config::duration_text(timeouts_.join) + ")");
}

size_t Rendezvous::most_pending() const noexcept {
  return nodes_.size() + kMaxExtraPending;
}

// Further connections wait in the backlog until the first have been read.
void Rendezvous::accept_connections(Nanos now) {
  while (pending_.size() < most_pending()) {
    Socket socket(::accept4(listener_.fd(), nullptr, nullptr, SOCK_CLOEXEC | SOCK_NONBLOCK));
    if (!socket.valid()) {
      if (errno == EINTR || errno == ECONNABORTED) continue;
      lacks_descriptors_ = errno == EMFILE || errno == ENFILE;
      return;
    }
    pending_.push_back({.socket = std::move(socket), .bytes = {}, .deadline = now + kHelloTimeout});
  }
}

bool Rendezvous::read_hello(PendingConnection& pending, Nanos now) {
  Header header;
  for (;;) {
    size_t needed = kHeaderBytes;
    if (pending.bytes.size() >= kHeaderBytes) {
      if (!decode_header(std::span(pending.bytes).first<kHeaderBytes>(), header) || header.kind != kHello ||
          header.rank == 0 || header.rank >= nodes_.size() || header.text_bytes < kHelloBytes) {
        return true;
      }
      needed += header.text_bytes;
      if (pending.bytes.size() == needed) break;
    }
    const size_t have = pending.bytes.size();
    pending.bytes.resize(needed);
    const ssize_t n = ::recv(pending.socket.fd(), pending.bytes.data() + have, needed - have, 0);
    pending.bytes.resize(have + static_cast<size_t>(std::max<ssize_t>(n, 0)));
    if (n == 0) return true;
    if (n < 0) return (errno != EAGAIN && errno != EINTR) || now >= pending.deadline;
  }
  const std::byte* text = pending.bytes.data() + kHeaderBytes;
  const SessionId& session = peers_.session;
  if (std::memcmp(text, session.bytes.data(), session.bytes.size()) != 0) return true;
  const bool is_new = !nodes_[header.rank].socket.valid();
  if (is_new) add_node(header.rank, pending, now);
  return true;
}

void Rendezvous::add_node(uint32_t rank, PendingConnection& pending, Nanos now) {
  const auto text = std::span<const std::byte>(pending.bytes).subspan(kHeaderBytes);
  const Nanos waits = Nanos{load_le<uint32_t>(text.data() + peers_.session.bytes.size())} * kMillisecond;
  // The hello may have connected before this node began to wait.
  deadline_ = std::min(deadline_, now - age_of_last_data(pending.socket.fd()) + waits);
  last_ = deadline_ < begin_ ? 0 : rank;
  Node& node = nodes_[rank];
  node.socket = std::move(pending.socket);
  const auto* const characters = reinterpret_cast<const char*>(text.data());
  node.common_text.assign(characters + kHelloBytes, text.size() - kHelloBytes);
  if (!probes_.empty()) probes_[rank] = Socket();
  ++connected_;
}

}  // namespace sluice::nccl::collnet
