// Struct Island is the group of workers that one worker trains with synchronously, and the images of the
// group.
#pragma once

#include <cstdint>

#include "bench/e2e/worker/worker_session.h"
#include "demo/digits/dataset.h"

namespace sluice::demo {

struct Island {
  uint32_t index = 0;            // 0..islands-1
  bench::WorkerOptions session;  // of this worker among those of its island

  [[nodiscard]] bool is_leader() const noexcept { return session.rank == 0; }
};

// Returns the island of a worker: consecutive ranks of equal number. `worker` has the rank among all workers,
// whose number is a multiple of `islands`. Each island has a session id of its own, derived from that of the
// run.
[[nodiscard]] Island island_of(const bench::WorkerOptions& worker, uint32_t islands);

// Returns every n-th image, from that with the index of the island on. All islands have equally many, so that
// they make equally many steps; up to islands - 1 images belong to none.
[[nodiscard]] Dataset images_of(const Dataset& all, uint32_t island, uint32_t islands);

}  // namespace sluice::demo
