// Class EtcdProcess is an etcd server of one member with ports from the system and data in a temporary
// folder. It ends with the object, and with the test program.
#pragma once

#include <sys/types.h>

#include <cstdint>
#include <string>
#include <vector>

#include "tests/support/temporary_folder.h"

namespace sluice::test {

class EtcdProcess {
 public:
  // Empty, or why no etcd can be started: "needs program:etcd: ...".
  [[nodiscard]] static std::string skip_reason();

  EtcdProcess() = default;
  ~EtcdProcess() { kill(); }
  EtcdProcess(const EtcdProcess&) = delete;
  EtcdProcess& operator=(const EtcdProcess&) = delete;

  // Starts the server, also after kill(), with the data it had. It ends when the calling thread ends. Throws
  // std::runtime_error with the end of its log.
  void start();
  // SIGKILL.
  void kill() noexcept;
  [[nodiscard]] uint16_t port() const noexcept { return port_; }

 private:
  void spawn();
  // False: the process has ended.
  [[nodiscard]] bool wait_until_ready();
  [[nodiscard]] std::string log_end() const;

  TemporaryFolder folder_;
  pid_t pid_ = -1;
  uint16_t port_ = 0, peer_port_ = 0;
};

}  // namespace sluice::test
