#include "nccl_plugin/collnet/gathering.h"

#include <netinet/in.h>
#include <netinet/tcp.h>
#include <poll.h>
#include <sys/socket.h>

#include <algorithm>
#include <cerrno>
#include <cstring>

#include "config/sizes.h"
#include "core/bytes.h"
#include "core/clock.h"
#include "nccl_plugin/host/log.h"

namespace sluice::nccl::collnet {
namespace {

using transport::tcp::Socket;

constexpr uint32_t kMagic = 0x41434C53;       // "SLCA"
constexpr Nanos kWordDeadline = 5 * kSecond;  // for a guest to say who it is
constexpr size_t kStrangers = 64;             // at a time, beside the nodes; the oldest goes first
constexpr size_t kMostCalls = 64;             // at a time: descriptors belong to the job
constexpr Nanos kLongestSleep = 100 * kMillisecond;
constexpr Nanos kFirstWord = kSecond;
constexpr size_t kHelloBytes = sizeof(SessionId) + sizeof(uint32_t);  // in front of what is common

// How long ago the last bytes came in. 0 where the host does not say: then the node is taken to wait from now
// on.
Nanos age_of_word(int fd) {
  tcp_info told{};
  socklen_t size = sizeof told;
  if (::getsockopt(fd, IPPROTO_TCP, TCP_INFO, &told, &size) != 0) return 0;
  return Nanos{told.tcpi_last_data_recv} * kMillisecond;
}

}  // namespace

void Gathering::write_head(std::span<std::byte, kHeadBytes> out, const Head& head) noexcept {
  store_le<uint32_t>(out.data(), kMagic);
  store_le<uint8_t>(out.data() + 4, head.kind);
  store_le<uint8_t>(out.data() + 5, 0);
  store_le<uint16_t>(out.data() + 6, head.code);
  store_le<uint32_t>(out.data() + 8, head.rank);
  store_le<uint32_t>(out.data() + 12, head.text_bytes);
}

bool Gathering::read_head(std::span<const std::byte, kHeadBytes> in, Head& head) noexcept {
  head = {.kind = load_le<uint8_t>(in.data() + 4),
          .code = load_le<uint16_t>(in.data() + 6),
          .rank = load_le<uint32_t>(in.data() + 8),
          .text_bytes = load_le<uint32_t>(in.data() + 12)};
  return load_le<uint32_t>(in.data()) == kMagic && head.text_bytes <= kMostText;
}

std::string Gathering::hello_text(const Party& party, Nanos wait) {
  std::string text(kHelloBytes, '\0');
  auto* bytes = reinterpret_cast<std::byte*>(text.data());
  std::memcpy(bytes, party.session.bytes.data(), party.session.bytes.size());
  store_le<uint32_t>(bytes + party.session.bytes.size(),
                     static_cast<uint32_t>(std::clamp<Nanos>(wait / kMillisecond, 0, UINT32_MAX)));
  return text + party.common;
}

Result<void> Gathering::run() {
  begin_ = monotonic_now();
  deadline_ = begin_ + patience_.late;
  bool told = false;
  for (;;) {
    const Nanos now = monotonic_now();
    if (is_complete() && now > deadline_) return late(last_, "came too late");
    if (is_complete()) return {};
    if (now >= deadline_) return late(first_missing(), "did not come in time");
    if (!told && now >= begin_ + kFirstWord) {
      const size_t more = arrivals_.size() - arrived_ - 2;
      info("waiting for %s%s, at most %s (SLUICE_JOIN_TIMEOUT)", party_.name(first_missing()).c_str(),
           more == 0 ? "" : (" and " + std::to_string(more) + " more").c_str(),
           config::duration_text(patience_.late).c_str());
      told = true;
    }
    if (now >= begin_ + patience_.call) {
      if (auto called = call_missing(); !called) return called;
    }
    if (auto waited = wait(std::min(deadline_, now + kLongestSleep)); !waited) return waited;
  }
}

Result<void> Gathering::wait(Nanos until) {
  std::vector<pollfd> fds = {{.fd = listener_.fd(), .events = POLLIN, .revents = 0}};
  for (const Guest& g : guests_) fds.push_back({.fd = g.socket.fd(), .events = POLLIN, .revents = 0});
  const size_t links = fds.size();
  for (size_t rank = 1; rank < arrivals_.size(); ++rank) {
    const Socket& arrived = arrivals_[rank].socket;
    const int call = calls_.empty() ? -1 : calls_[rank].fd();  // -1 is passed over
    fds.push_back({.fd = arrived.valid() ? arrived.fd() : call, .events = POLLRDHUP, .revents = 0});
  }
  const Nanos left = std::max<Nanos>(until - monotonic_now(), 0);
  if (::poll(fds.data(), fds.size(), static_cast<int>(left / kMillisecond) + 1) < 0) {
    if (errno == EINTR) return {};
    return fail(Errc::kSystem, std::string("agreement of the nodes: poll: ") + std::strerror(errno));
  }
  for (size_t i = links; i < fds.size(); ++i) {
    if (fds[i].revents == 0) continue;
    return fail(Errc::kReset, party_.name(static_cast<uint32_t>(i - links + 1)) +
                                  " is gone: it went away before all nodes had come");
  }
  const Nanos woken = monotonic_now();
  std::erase_if(guests_, [&](Guest& g) { return listen_to(g, woken); });
  accept_guests(woken);
  return {};
}

Result<void> Gathering::call_missing() {
  calls_.resize(arrivals_.size());
  auto open = static_cast<size_t>(std::ranges::count_if(calls_, &Socket::valid));
  for (uint32_t rank = 1; rank < arrivals_.size() && open < kMostCalls; ++rank) {
    if (arrivals_[rank].socket.valid() || calls_[rank].valid()) continue;
    auto call = transport::tcp::connect_to(
        party_.nodes[rank].address, party_.nodes[rank].port,
        {.buffer_bytes = 0, .congestion_control = {}, .local_address = party_.local_address},
        std::min(deadline_, monotonic_now() + patience_.call));
    if (!call) return add_context(party_.name(rank) + " is gone", call.error());
    calls_[rank] = std::move(*call);
    ++open;
  }
  return {};
}

uint32_t Gathering::first_missing() const noexcept {
  uint32_t rank = 1;
  while (rank < arrivals_.size() && arrivals_[rank].socket.valid()) ++rank;
  return rank;
}

tl::unexpected<Error> Gathering::late(uint32_t rank, const char* how) const {
  return fail(Errc::kTimeout, party_.name(rank) + " " + how + " (SLUICE_JOIN_TIMEOUT is " +
                                  config::duration_text(patience_.late) + ")");
}

void Gathering::accept_guests(Nanos now) {
  for (;;) {
    const int fd = ::accept4(listener_.fd(), nullptr, nullptr, SOCK_CLOEXEC | SOCK_NONBLOCK);
    if (fd < 0) return;
    if (guests_.size() == arrivals_.size() + kStrangers) guests_.erase(guests_.begin());
    guests_.push_back({.socket = transport::tcp::Socket(fd), .bytes = {}, .deadline = now + kWordDeadline});
  }
}

bool Gathering::listen_to(Guest& guest, Nanos now) {
  Head head;
  for (;;) {
    size_t wanted = kHeadBytes;
    if (guest.bytes.size() >= kHeadBytes) {
      if (!read_head(std::span(guest.bytes).first<kHeadBytes>(), head) || head.kind != kHello ||
          head.rank == 0 || head.rank >= arrivals_.size() || head.text_bytes < kHelloBytes) {
        return true;
      }
      wanted += head.text_bytes;
      if (guest.bytes.size() == wanted) break;
    }
    const size_t have = guest.bytes.size();
    guest.bytes.resize(wanted);
    const ssize_t n = ::recv(guest.socket.fd(), guest.bytes.data() + have, wanted - have, 0);
    guest.bytes.resize(have + static_cast<size_t>(std::max<ssize_t>(n, 0)));
    if (n == 0) return true;
    if (n < 0) return (errno != EAGAIN && errno != EINTR) || now >= guest.deadline;
  }
  const std::byte* text = guest.bytes.data() + kHeadBytes;
  const SessionId& session = party_.session;
  if (std::memcmp(text, session.bytes.data(), session.bytes.size()) != 0) return true;
  if (!arrivals_[head.rank].socket.valid()) arrive(head.rank, guest, now);  // else it is here already
  return true;
}

void Gathering::arrive(uint32_t rank, Guest& guest, Nanos now) {
  const auto text = std::span<const std::byte>(guest.bytes).subspan(kHeadBytes);
  const Nanos waits = Nanos{load_le<uint32_t>(text.data() + party_.session.bytes.size())} * kMillisecond;
  // The word may have lain here for as long as this node was late.
  deadline_ = std::min(deadline_, now - age_of_word(guest.socket.fd()) + waits);
  last_ = deadline_ < begin_ ? 0 : rank;
  Arrival& arrival = arrivals_[rank];
  arrival.socket = std::move(guest.socket);
  arrival.text.assign(reinterpret_cast<const char*>(text.data()) + kHelloBytes, text.size() - kHelloBytes);
  if (!calls_.empty()) calls_[rank] = Socket();
  ++arrived_;
}

}  // namespace sluice::nccl::collnet
