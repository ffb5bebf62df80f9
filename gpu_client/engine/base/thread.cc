#include "gpu_client/engine/base/thread.h"

#include <pthread.h>

#include <csignal>
#include <string>
#include <system_error>
#include <utility>

namespace sluice::engine {

Result<std::thread> start_thread(const char* name, std::function<void()> body) {
  sigset_t all;
  sigset_t before;
  sigfillset(&all);
  pthread_sigmask(SIG_SETMASK, &all, &before);  // a new thread inherits this mask
  Result<std::thread> out;
  try {
    out = std::thread(std::move(body));
    pthread_setname_np(out->native_handle(), name);
  } catch (const std::system_error& e) {
    out = fail(Errc::kSystem, std::string("cannot start thread ") + name + ": " + e.what());
  }
  pthread_sigmask(SIG_SETMASK, &before, nullptr);
  return out;
}

}  // namespace sluice::engine
