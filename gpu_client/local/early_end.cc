#include "gpu_client/local/early_end.h"

#include <sys/epoll.h>
#include <sys/eventfd.h>

#include <cerrno>
#include <cstring>
#include <string>

namespace sluice::local {

Result<EarlyEnd> EarlyEnd::create(int other) {
  const auto failed = [] {
    return fail(Errc::kSystem, std::string("cannot wait for the other ranks: ") + std::strerror(errno));
  };
  EarlyEnd out;
  out.event_ = transport::tcp::Socket(::eventfd(0, EFD_CLOEXEC | EFD_NONBLOCK));
  if (!out.event_.valid()) return failed();
  out.either_ = transport::tcp::Socket(::epoll_create1(EPOLL_CLOEXEC));  // readable if one of its own is
  if (!out.either_.valid()) return failed();
  for (const int fd : {out.event_.fd(), other}) {
    epoll_event event{.events = EPOLLIN, .data = {.fd = fd}};
    if (::epoll_ctl(out.either_.fd(), EPOLL_CTL_ADD, fd, &event) != 0) return failed();
  }
  return out;
}

void EarlyEnd::set() noexcept {
  ::eventfd_write(event_.fd(), 1);
}

}  // namespace sluice::local
