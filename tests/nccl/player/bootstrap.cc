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

constexpr int kExchanges = 256;
constexpr size_t kNameBytes = 96;

// Free while its name is empty. It is freed by the last one that has read it.
struct Exchange {
  char name[kNameBytes];
  int came, left;
  bool has_come[kMostRanks];
  size_t bytes[kMostRanks];
  std::byte blocks[kMostRanks][kMostBlockBytes];
};

}  // namespace

struct Bootstrap::Shared {
  pthread_mutex_t mutex;
  // Counts changes, for who waits for one. Not a condition variable: a rank that is killed while it waits at
  // one leaves it so that its next broadcast never returns.
  std::atomic<uint32_t> changes;
  std::atomic<bool> given_up;
  Exchange exchanges[kExchanges];
  char steps[kMostRanks][128];
};

namespace {

class Locked {
 public:
  explicit Locked(pthread_mutex_t& mutex) : mutex_(mutex) {
    if (pthread_mutex_lock(&mutex_) == EOWNERDEAD) pthread_mutex_consistent(&mutex_);
  }
  ~Locked() { pthread_mutex_unlock(&mutex_); }
  Locked(const Locked&) = delete;
  Locked& operator=(const Locked&) = delete;

 private:
  pthread_mutex_t& mutex_;
};

static_assert(std::atomic<uint32_t>::is_always_lock_free &&
              sizeof(std::atomic<uint32_t>) == sizeof(uint32_t));

void tell_change(std::atomic<uint32_t>& changes) {
  ++changes;
  syscall(SYS_futex, &changes, FUTEX_WAKE, INT_MAX, nullptr, nullptr, 0);
}

// Until it is no longer `seen`, and a second at most: who was to tell may have been killed before it could.
void wait_for_change(std::atomic<uint32_t>& changes, uint32_t seen) {
  const timespec most{1, 0};
  syscall(SYS_futex, &changes, FUTEX_WAIT, seen, &most, nullptr, 0);
}

Exchange* find(Exchange (&exchanges)[kExchanges], const char* name) {
  for (Exchange& exchange : exchanges) {
    if (std::strncmp(exchange.name, name, kNameBytes) == 0) return &exchange;
  }
  return nullptr;
}

}  // namespace

Bootstrap::Bootstrap(Clock::time_point deadline) : deadline_(deadline) {
  void* const memory =
      mmap(nullptr, sizeof(Shared), PROT_READ | PROT_WRITE, MAP_SHARED | MAP_ANONYMOUS, -1, 0);
  require(memory != MAP_FAILED, "mmap of the bootstrap's memory");
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

std::vector<Block> Bootstrap::all_gather(const std::string& name, int index, int count, const Block& mine) {
  require(mine.size() <= kMostBlockBytes && count <= kMostRanks && !name.empty() && name.size() < kNameBytes,
          "bootstrap: " + name);
  std::optional<Locked> lock(std::in_place, shared_->mutex);
  const auto wait_until = [&](auto holds) {
    while (!holds()) {
      if (shared_->given_up) throw Failure("another rank gave up while this one waited at " + name);
      const uint32_t seen = shared_->changes;
      lock.reset();
      wait_for_change(shared_->changes, seen);
      lock.emplace(shared_->mutex);
      if (Clock::now() >= deadline_ && !holds()) throw Failure("not all ranks came to " + name);
    }
  };

  // A name may come again before the last reader of its previous exchange has left.
  Exchange* exchange = nullptr;
  wait_until([&] {
    exchange = find(shared_->exchanges, name.c_str());
    if (exchange == nullptr) {
      exchange = find(shared_->exchanges, "");
      if (exchange != nullptr) std::strncpy(exchange->name, name.c_str(), kNameBytes - 1);
    }
    return exchange != nullptr && !exchange->has_come[index];
  });
  exchange->has_come[index] = true;
  exchange->bytes[index] = mine.size();
  std::copy(mine.begin(), mine.end(), exchange->blocks[index]);
  ++exchange->came;
  tell_change(shared_->changes);
  wait_until([&] { return exchange->came == count; });

  std::vector<Block> all;
  for (int from = 0; from < count; ++from) {
    all.emplace_back(exchange->blocks[from], exchange->blocks[from] + exchange->bytes[from]);
  }
  if (++exchange->left == count) {
    std::memset(static_cast<void*>(exchange), 0, sizeof(*exchange));
    tell_change(shared_->changes);
  }
  return all;
}

void Bootstrap::give_up() {
  Locked lock(shared_->mutex);
  shared_->given_up = true;
  tell_change(shared_->changes);
}

bool Bootstrap::given_up() const {
  return shared_->given_up;
}

void Bootstrap::set_step(int rank, const std::string& what) {
  Locked lock(shared_->mutex);
  std::strncpy(shared_->steps[rank], what.c_str(), sizeof(shared_->steps[rank]) - 1);
}

std::string Bootstrap::step(int rank) const {
  Locked lock(shared_->mutex);
  return shared_->steps[rank];
}

}  // namespace player
