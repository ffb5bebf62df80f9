// Class ReducerPool: reducers of this process at 127.0.0.1, on ports from the system.
#pragma once

#include <cstddef>
#include <memory>
#include <string>
#include <utility>
#include <vector>

#include "core/result.h"
#include "core/units.h"
#include "reducer/reducer.h"

namespace sluice::test {

class ReducerPool {
 public:
  static reducer::ReducerOptions options() {
    reducer::ReducerOptions o;
    o.listen_port = 0;
    o.lanes = 2;
    o.memory_limit = 512 * kMiB;
    return o;
  }
  // Adds reducers. Errors: those of Reducer::start().
  Result<void> start(size_t count, const reducer::ReducerOptions& options = ReducerPool::options()) {
    for (size_t i = 0; i < count; ++i) {
      auto started = reducer::Reducer::start(options);
      if (!started) return tl::unexpected(started.error());
      list_ += (list_.empty() ? "127.0.0.1:" : ",127.0.0.1:") + std::to_string((*started)->port());
      reducers_.push_back(std::move(*started));
    }
    return {};
  }

  // The addresses, for sluice_options. Empty without reducers.
  [[nodiscard]] const std::string& list() const noexcept { return list_; }
  [[nodiscard]] const std::vector<std::unique_ptr<reducer::Reducer>>& reducers() const noexcept {
    return reducers_;
  }

 private:
  std::vector<std::unique_ptr<reducer::Reducer>> reducers_;
  std::string list_;
};

}  // namespace sluice::test
