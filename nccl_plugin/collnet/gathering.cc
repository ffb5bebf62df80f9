#include "nccl_plugin/collnet/gathering.h"

#include <poll.h>
#include <sys/socket.h>

#include <algorithm>
#include <cerrno>
#include <cstring>

#include "core/bytes.h"
#include "core/clock.h"

namespace sluice::nccl::collnet {
namespace {

constexpr uint32_t kMagic = 0x41434C53;       // "SLCA"
constexpr Nanos kWordDeadline = 5 * kSecond;  // for a guest to say who it is
constexpr size_t kStrangers = 64;             // at a time, beside the nodes; the oldest goes first
constexpr Nanos kLongestSleep = 100 * kMillisecond;

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

Result<void> Gathering::run(Nanos deadline) {
  for (;;) {
    if (is_complete()) return {};
    const Nanos now = monotonic_now();
    if (now >= deadline) return {};
    std::vector<pollfd> fds = {{.fd = listener_.fd(), .events = POLLIN, .revents = 0}};
    for (const Guest& g : guests_) fds.push_back({.fd = g.socket.fd(), .events = POLLIN, .revents = 0});
    const Nanos sleep = std::min(deadline - now, kLongestSleep);
    if (::poll(fds.data(), fds.size(), static_cast<int>(sleep / kMillisecond) + 1) < 0 && errno != EINTR) {
      return fail(Errc::kSystem, std::string("agreement of the nodes: poll: ") + std::strerror(errno));
    }
    const Nanos woken = monotonic_now();
    std::erase_if(guests_, [&](Guest& g) { return listen_to(g, woken); });
    accept_guests(woken);
  }
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
          head.rank == 0 || head.rank >= arrivals_.size() || head.text_bytes < session_.bytes.size()) {
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
  const auto* text = reinterpret_cast<const char*>(guest.bytes.data() + kHeadBytes);
  if (std::memcmp(text, session_.bytes.data(), session_.bytes.size()) != 0) return true;
  Arrival& arrival = arrivals_[head.rank];
  if (arrival.socket.valid()) return true;  // it is here already
  arrival.socket = std::move(guest.socket);
  arrival.text.assign(text + session_.bytes.size(), head.text_bytes - session_.bytes.size());
  ++arrived_;
  return true;
}

}  // namespace sluice::nccl::collnet
