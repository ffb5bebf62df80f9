// Creation of the library's threads inside the application's process.
#pragma once

#include <functional>
#include <thread>

#include "core/result.h"

namespace sluice::engine {

// Starts a thread with all signals blocked, so that the application's threads handle them. `name` has at most
// 15 characters (pthread_setname_np). Returns kSystem when the system cannot start a thread.
[[nodiscard]] Result<std::thread> start_thread(const char* name, std::function<void()> body);

}  // namespace sluice::engine
