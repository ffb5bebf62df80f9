#include "tests/nccl/player/bootstrap.h"

#include <linux/futex.h>
#include <pthread.h>
#include <sys/mman.h>
#include <sys/syscall.h>
#include <unistd.h>

#include <algorithm>
#include <atomic>
#include <climits>
#include <cstdint>
#include <cstring>
#include <ctime>
#include <optional>

#include "tests/nccl/player/failure.h"

namespace player {
namespace {

constexpr int kGathers = 256;
constexpr size_t kNameBytes = 96;

// Free while its name is empty. The last rank that has read the blocks frees it.
struct GatherState {
  char name[kNameBytes];
  int arrived, readers;
  bool has_arrived[kMaxRanks];
  size_t bytes[kMaxRanks];
  std::byte blocks[kMaxRanks][kMaxBlockBytes];
};

}  // namespace

struct Bootstrap::Shared {
  pthread_mutex_t mutex;
  // Counts changes; a futex for waiters. Not a condition variable: after a rank is killed in its wait(), the
  // next broadcast would never return.
  std::atomic<uint32_t> changes;
  std::atomic<bool> is_aborted;
  GatherState gathers[kGathers];
  char steps[kMaxRanks][128];
};

namespace {

class RobustLock {
 public:
  explicit RobustLock(pthread_mutex_t& mutex) : mutex_(mutex) {
    if (pthread_mutex_lock(&mutex_) == EOWNERDEAD) pthread_mutex_consistent(&mutex_);
  }
  ~RobustLock() { pthread_mutex_unlock(&mutex_); }
  RobustLock(const RobustLock&) = delete;
  RobustLock& operator=(const RobustLock&) = delete;

 private:
  pthread_mutex_t& mutex_;
};

static_assert(std::atomic<uint32_t>::is_always_lock_free &&
              sizeof(std::atomic<uint32_t>) == sizeof(uint32_t));

void notify_change(std::atomic<uint32_t>& changes) {
  ++changes;
  syscall(SYS_futex, &changes, FUTEX_WAKE, INT_MAX, nullptr, nullptr, 0);
}

// Waits until the count differs from `seen`, one second at most: the rank that changes it may be killed
// before it notifies.
void wait_for_change(std::atomic<uint32_t>& changes, uint32_t seen) {
  const timespec timeout{1, 0};
  syscall(SYS_futex, &changes, FUTEX_WAIT, seen, &timeout, nullptr, 0);
}

GatherState* find(GatherState (&gathers)[kGathers], const char* name) {
  for (GatherState& gather : gathers) {
    if (std::strncmp(gather.name, name, kNameBytes) == 0) return &gather;
  }
  return nullptr;
}

}  // namespace

Bootstrap::Bootstrap(Clock::time_point deadline) : deadline_(deadline) {
  void* const memory =
      mmap(nullptr, sizeof(Shared), PROT_READ | PROT_WRITE, MAP_SHARED | MAP_ANONYMOUS, -1, 0);
  require(memory != MAP_FAILED, "cannot map the shared memory of the bootstrap");
  shared_ = static_cast<Shared*>(memory);
  pthread_mutexattr_t mutex_kind;
  pthread_mutexattr_init(&mutex_kind);
  pthread_mutexattr_setpshared(&mutex_kind, PTHREAD_PROCESS_SHARED);
  pthread_mutexattr_setrobust(&mutex_kind, PTHREAD_MUTEX_ROBUST);
  pthread_mutex_init(&shared_->mutex, &mutex_kind);
}

Bootstrap::~Bootstrap() {
  munmap(shared_, sizeof(Shared));
}

std::vector<Block> Bootstrap::all_gather(const std::string& name, int index, int count, const Block& block) {
  require(block.size() <= kMaxBlockBytes && count <= kMaxRanks && !name.empty() && name.size() < kNameBytes,
          "bootstrap: invalid block or name \"" + name + "\"");
  std::optional<RobustLock> lock(std::in_place, shared_->mutex);
  const auto wait_until = [&](auto holds) {
    while (!holds()) {
      if (shared_->is_aborted)
        throw Failure("another rank aborted while this rank waited for \"" + name + "\"");
      const uint32_t seen = shared_->changes;
      lock.reset();
      wait_for_change(shared_->changes, seen);
      lock.emplace(shared_->mutex);
      if (Clock::now() >= deadline_ && !holds())
        throw Failure("not all ranks reached \"" + name + "\" before the deadline");
    }
  };

  // A name may be reused while its previous gather still has readers.
  GatherState* gather = nullptr;
  wait_until([&] {
    gather = find(shared_->gathers, name.c_str());
    if (gather == nullptr) {
      gather = find(shared_->gathers, "");
      if (gather != nullptr) std::strncpy(gather->name, name.c_str(), kNameBytes - 1);
    }
    return gather != nullptr && !gather->has_arrived[index];
  });
  gather->has_arrived[index] = true;
  gather->bytes[index] = block.size();
  std::copy(block.begin(), block.end(), gather->blocks[index]);
  ++gather->arrived;
  notify_change(shared_->changes);
  wait_until([&] { return gather->arrived == count; });

  std::vector<Block> all;
  for (int from = 0; from < count; ++from) {
    all.emplace_back(gather->blocks[from], gather->blocks[from] + gather->bytes[from]);
  }
  if (++gather->readers == count) {
    std::memset(static_cast<void*>(gather), 0, sizeof(*gather));
    notify_change(shared_->changes);
  }
  return all;
}

void Bootstrap::abort() {
  RobustLock lock(shared_->mutex);
  shared_->is_aborted = true;
  notify_change(shared_->changes);
}

bool Bootstrap::is_aborted() const {
  return shared_->is_aborted;
}

void Bootstrap::set_step(int rank, const std::string& what) {
  RobustLock lock(shared_->mutex);
  std::strncpy(shared_->steps[rank], what.c_str(), sizeof(shared_->steps[rank]) - 1);
}

std::string Bootstrap::step(int rank) const {
  RobustLock lock(shared_->mutex);
  return shared_->steps[rank];
}

}  // namespace player
