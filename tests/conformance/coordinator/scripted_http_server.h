// Class ScriptedHttpServer answers each request with the same bytes, whatever these are, to play a hostile
// etcd.
#pragma once

#include <atomic>
#include <cstdint>
#include <string>
#include <thread>
#include <vector>

namespace sluice::test {

class ScriptedHttpServer {
 public:
  // kClose ends each connection after the answer; kHold leaves it open.
  enum class After : uint8_t { kClose, kHold };
  ScriptedHttpServer(std::string answer, After after);
  ~ScriptedHttpServer();
  ScriptedHttpServer(const ScriptedHttpServer&) = delete;
  ScriptedHttpServer& operator=(const ScriptedHttpServer&) = delete;

  [[nodiscard]] uint16_t port() const noexcept { return port_; }
  [[nodiscard]] int requests() const noexcept { return requests_.load(); }

 private:
  void serve();
  const std::string answer_;
  const After after_;
  int listener_ = -1;
  int stop_[2] = {-1, -1};  // a pipe; a byte ends the thread
  uint16_t port_ = 0;
  std::atomic<int> requests_{0};
  std::thread thread_;
};

// An answer with the status 200 and the text as its body.
[[nodiscard]] std::string http_ok(const std::string& body);

}  // namespace sluice::test
