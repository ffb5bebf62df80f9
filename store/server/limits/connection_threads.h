// Class ConnectionThreads runs a thread for each connection. One that ends costs the next start() a join, and
// no look at the others.
//
// Any thread.
#pragma once

#include <condition_variable>
#include <functional>
#include <list>
#include <mutex>
#include <thread>

namespace sluice::store {

class ConnectionThreads {
 public:
  ConnectionThreads() = default;
  ConnectionThreads(const ConnectionThreads&) = delete;
  ConnectionThreads& operator=(const ConnectionThreads&) = delete;
  ~ConnectionThreads() { join(); }

  // `serve` and what it owns end with the connection. Throws if the system has no thread left.
  void start(std::function<void()> serve);
  // Waits for the end of all. Nothing may be started meanwhile.
  void join();

 private:
  std::mutex mutex_;
  std::condition_variable ended_one_;
  std::list<std::thread> running_;
  std::list<std::thread> ended_;  // and not joined
};

}  // namespace sluice::store
