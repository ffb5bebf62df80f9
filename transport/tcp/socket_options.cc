#include "transport/tcp/socket_options.h"

#include <netinet/in.h>
#include <netinet/tcp.h>
#include <sys/socket.h>

#include <algorithm>
#include <cerrno>
#include <fstream>

#include "transport/tcp/address.h"

namespace sluice::transport::tcp {
namespace {

// Keepalive, in seconds: docs/reference/configuration.md.
constexpr int kKeepaliveCount = 6;

// 0 when the limit is unknown: some network namespaces lack the file.
size_t host_limit(const char* path) {
  size_t value = 0;
  std::ifstream file(path);
  if (!(file >> value)) return 0;
  return value;
}

void add_note(std::string& notes, const std::string& note) {
  if (!notes.empty()) notes += "; ";
  notes += note;
}

// True when the host allows `bytes`. The kernel would clamp a larger request and disable its autotuning.
bool is_allowed(const char* name, size_t bytes, std::string& notes) {
  const size_t limit = host_limit((std::string("/proc/sys/net/core/") + name).c_str());
  if (limit >= bytes) return true;
  add_note(notes, std::string("net.core.") + name + " is " +
                      (limit == 0 ? "unknown" : std::to_string(limit)) + ", expected at least " +
                      std::to_string(bytes) + ": socket buffer sizes are left to the kernel");
  return false;
}

}  // namespace

bool set_option(int fd, int level, int option, int value) noexcept {
  return ::setsockopt(fd, level, option, &value, sizeof value) == 0;
}

AppliedOptions apply_options(int fd, const SocketOptions& options) {
  AppliedOptions applied;
  if (options.buffer_bytes > 0) {
    const int bytes = static_cast<int>(std::min<size_t>(options.buffer_bytes, kGiB));
    if (is_allowed("rmem_max", options.buffer_bytes, applied.note) &&
        is_allowed("wmem_max", options.buffer_bytes, applied.note)) {
      applied.buffers_set =
          set_option(fd, SOL_SOCKET, SO_RCVBUF, bytes) && set_option(fd, SOL_SOCKET, SO_SNDBUF, bytes);
      if (!applied.buffers_set)
        add_note(applied.note, "cannot set socket buffer sizes: " + error_text(errno));
    }
  }
  const std::string& cc = options.congestion_control;
  if (!cc.empty() &&
      ::setsockopt(fd, IPPROTO_TCP, TCP_CONGESTION, cc.data(), static_cast<socklen_t>(cc.size())) != 0) {
    applied.congestion_control_set = false;
    add_note(applied.note, "cannot set congestion control \"" + cc + "\": " + error_text(errno));
  }
  return applied;
}

// Lane connections carry no heartbeats, and a rank may be late for hours. Only a probe shows that the peer is
// gone or that the path forgot the connection. TCP_USER_TIMEOUT is not set here: it would end a slow
// connection.
void enable_keepalive(int fd, int idle_s, int interval_s) noexcept {
  (void)set_option(fd, SOL_SOCKET, SO_KEEPALIVE, 1);
  (void)set_option(fd, IPPROTO_TCP, TCP_KEEPIDLE, idle_s);
  (void)set_option(fd, IPPROTO_TCP, TCP_KEEPINTVL, interval_s);
  (void)set_option(fd, IPPROTO_TCP, TCP_KEEPCNT, kKeepaliveCount);
}

}  // namespace sluice::transport::tcp
