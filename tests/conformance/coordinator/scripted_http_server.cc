#include "tests/conformance/coordinator/scripted_http_server.h"

#include <netinet/in.h>
#include <poll.h>
#include <sys/socket.h>
#include <unistd.h>

#include <stdexcept>

namespace sluice::test {

ScriptedHttpServer::ScriptedHttpServer(std::string answer, After after)
    : answer_(std::move(answer)), after_(after) {
  listener_ = ::socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0);
  sockaddr_in address{};
  address.sin_family = AF_INET;
  address.sin_addr.s_addr = htonl(INADDR_LOOPBACK);
  socklen_t size = sizeof address;
  if (::bind(listener_, reinterpret_cast<sockaddr*>(&address), size) != 0 || ::listen(listener_, 64) != 0 ||
      ::getsockname(listener_, reinterpret_cast<sockaddr*>(&address), &size) != 0 || ::pipe(stop_) != 0)
    throw std::runtime_error("cannot listen");
  port_ = ntohs(address.sin_port);
  thread_ = std::thread([this] { serve(); });
}

ScriptedHttpServer::~ScriptedHttpServer() {
  static_cast<void>(!::write(stop_[1], "x", 1));
  thread_.join();
  for (const int fd : {listener_, stop_[0], stop_[1]}) ::close(fd);
}

void ScriptedHttpServer::serve() {
  std::vector<pollfd> fds = {{stop_[0], POLLIN, 0}, {listener_, POLLIN, 0}};
  std::vector<size_t> sent = {0, 0};  // bytes of the answer; 0: the request has not come yet
  while (::poll(fds.data(), fds.size(), -1) >= 0 && fds[0].revents == 0) {
    for (size_t i = fds.size(); i-- > 2;) {
      if (fds[i].revents == 0) continue;
      char request[65536];
      bool is_over = false;
      if ((fds[i].revents & (POLLIN | POLLHUP | POLLERR)) != 0) {
        // A request of these tests comes as one segment or two; any byte of it starts the answer.
        is_over = ::recv(fds[i].fd, request, sizeof request, MSG_DONTWAIT) <= 0;
        if (!is_over && fds[i].events == POLLIN) {
          ++requests_;
          sent[i] = 0;
          fds[i].events = POLLIN | POLLOUT;
        }
      } else {
        const ssize_t n = ::send(fds[i].fd, answer_.data() + sent[i], answer_.size() - sent[i],
                                 MSG_DONTWAIT | MSG_NOSIGNAL);
        sent[i] += n > 0 ? static_cast<size_t>(n) : 0;
        is_over = n < 0;
        if (sent[i] == answer_.size()) {
          fds[i].events = POLLIN;
          is_over = after_ == After::kClose;
        }
      }
      if (!is_over) continue;
      ::shutdown(fds[i].fd, SHUT_WR);
      ::close(fds[i].fd);
      fds.erase(fds.begin() + static_cast<ptrdiff_t>(i));
      sent.erase(sent.begin() + static_cast<ptrdiff_t>(i));
    }
    if ((fds[1].revents & POLLIN) == 0) continue;
    const int fd = ::accept(listener_, nullptr, nullptr);
    if (fd < 0) continue;
    fds.push_back({fd, POLLIN, 0});
    sent.push_back(0);
  }
  for (size_t i = 2; i < fds.size(); ++i) ::close(fds[i].fd);
}

std::string http_ok(const std::string& body) {
  return "HTTP/1.1 200 OK\r\nContent-Type: application/json\r\nContent-Length: " +
         std::to_string(body.size()) + "\r\n\r\n" + body;
}

}  // namespace sluice::test
