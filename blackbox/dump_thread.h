// Class DumpThread writes the black box of the process on a thread of its own, because the threads that see a
// failure must go on to serve other sessions, and a file system may block.
//
// request() from any thread; the destructor once no request can follow. The thread runs only while there is
// something to write, with all signals blocked.
#pragma once

#include <condition_variable>
#include <mutex>
#include <thread>

namespace sluice::blackbox {

class DumpThread {
 public:
  DumpThread() = default;
  DumpThread(const DumpThread&) = delete;
  DumpThread& operator=(const DumpThread&) = delete;
  ~DumpThread();  // waits until the file is written

  // Calls dump_after_failure() on the thread, if the process has a path. Requests within a second share a
  // write. `why` is a literal, for this call and the next.
  void request(const char* why) noexcept;
  // Calls dump_on_request() on the thread.
  void request_by_operator(const char* why) noexcept;

 private:
  void request(const char* why, bool by_operator) noexcept;
  void start();
  void run() noexcept;

  std::mutex mutex_;  // guards the members below
  std::condition_variable changed_;
  const char* why_ = nullptr;  // of the write that is due; null: none
  bool by_operator_ = false;
  bool is_running_ = false;
  bool is_stopping_ = false;
  std::thread thread_;
};

}  // namespace sluice::blackbox
