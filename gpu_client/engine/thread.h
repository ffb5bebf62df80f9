// Threads inside somebody else's process.
#pragma once

#include <functional>
#include <thread>

#include "core/result.h"

namespace sluice::engine {

// Starts a thread that handles no signals: those are the program's business. `name` is at most 15 characters
// (pthread_setname_np).
[[nodiscard]] Result<std::thread> start_thread(const char* name, std::function<void()> body);

}  // namespace sluice::engine
