#include "gpu_client/local/segment.h"

#include <fcntl.h>
#include <sys/mman.h>
#include <sys/resource.h>
#include <sys/stat.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <cstring>
#include <string>
#include <utility>

#include "core/assert.h"

namespace sluice::local {
namespace {

constexpr unsigned kSeals = F_SEAL_SHRINK | F_SEAL_GROW | F_SEAL_SEAL;
constexpr size_t kPageBytes = 4096;

// Returns an error number. Beyond the limit of file sizes the kernel would end this process with SIGXFSZ.
int allocate(int descriptor, size_t bytes) noexcept {
  rlimit limit{};
  if (::getrlimit(RLIMIT_FSIZE, &limit) == 0 && limit.rlim_cur < bytes) return EFBIG;
  int error = 0;
  do {
    error = ::posix_fallocate(descriptor, 0, static_cast<off_t>(bytes));
  } while (error == EINTR);
  return error;
}

}  // namespace

void PoolRecord::write(const std::string& list) noexcept {
  const uint32_t before = version.load(std::memory_order_relaxed);
  version.store(before | 1, std::memory_order_seq_cst);
  for (size_t i = 0; i <= list.size() / sizeof(uint64_t); ++i) {
    uint64_t word = 0;  // the last one ends the text
    const size_t at = i * sizeof word;
    std::memcpy(&word, list.data() + at, std::min(sizeof word, list.size() - at));
    text[i].store(word, std::memory_order_seq_cst);
  }
  version.store((before | 1) + 1, std::memory_order_seq_cst);
}

bool PoolRecord::read(uint32_t& seen, std::string& list) const {
  const uint32_t now = version.load(std::memory_order_seq_cst);
  if (now == seen || now % 2 != 0) return false;
  list.clear();
  for (const std::atomic<uint64_t>& part : text) {
    const uint64_t word = part.load(std::memory_order_seq_cst);
    std::array<char, sizeof word> bytes{};
    std::memcpy(bytes.data(), &word, sizeof word);
    const size_t length = ::strnlen(bytes.data(), bytes.size());
    list.append(bytes.data(), length);
    if (length < bytes.size()) break;
  }
  if (version.load(std::memory_order_seq_cst) != now) return false;
  seen = now;
  return true;
}

Segment::Layout::Layout(const Geometry& g) noexcept {
  const size_t count = g.ranks;
  const size_t pieces = g.slots * g.stride();
  pool = sizeof(FailureRecord);
  processes = pool + sizeof(PoolRecord);
  doorbells = round_up(processes + count * sizeof(std::atomic<int32_t>), alignof(Doorbell));
  slots = doorbells + count * sizeof(Doorbell);
  arrivals = slots + g.slots * sizeof(PieceSlot);
  lives = arrivals + g.slots * count * sizeof(Arrival);
  contributions = round_up(lives + count * count * sizeof(LifeWord), kPageBytes);
  results = contributions + count * pieces;
  end = round_up(results + pieces, kPageBytes);
}

std::string Segment::describe_error(int error) const {
  return std::to_string(layout_.end / kKiB) + " KiB of shared memory: " + std::strerror(error);
}

Result<void> Segment::map_memory() noexcept {
  // Else the first operations would take several times as long: a page fault of each rank for each page.
  constexpr int kFlags = MAP_SHARED | MAP_POPULATE;
  void* const memory = ::mmap(nullptr, layout_.end, PROT_READ | PROT_WRITE, kFlags, descriptor_, 0);
  if (memory == MAP_FAILED) return fail(Errc::kSystem, "cannot map " + describe_error(errno));
  memory_ = static_cast<std::byte*>(memory);
  ::madvise(memory_, layout_.end, MADV_DONTFORK);  // a child of fork() would keep the memory for nothing
  return {};
}

Result<Segment> Segment::create(const Geometry& geometry) {
  SLUICE_ASSERT(geometry.ranks >= 1 && geometry.ranks <= kMaxRanks && geometry.slots <= kMaxSlots);
  const int descriptor = ::memfd_create("sluice", MFD_CLOEXEC | MFD_ALLOW_SEALING);
  const int error = errno;
  Segment segment(descriptor, geometry);
  if (descriptor < 0) return fail(Errc::kSystem, "cannot create " + segment.describe_error(error));
  // A hole would be filled at its first access, and without memory that access would be a SIGBUS.
  const int allocated = allocate(descriptor, segment.layout_.end);
  if (allocated == EFBIG) {
    return fail(Errc::kSystem, "cannot allocate " + std::to_string(segment.layout_.end / kKiB) +
                                   " KiB of shared memory: the limit of file sizes (ulimit -f) is lower");
  }
  if (allocated != 0) return fail(Errc::kSystem, "cannot allocate " + segment.describe_error(allocated));
  if (::fcntl(descriptor, F_ADD_SEALS, kSeals) != 0)
    return fail(Errc::kSystem, "cannot seal " + segment.describe_error(errno));
  SLUICE_RETURN_IF_ERROR(segment.map_memory());
  return segment;
}

Result<Segment> Segment::map(int descriptor, const Geometry& geometry) {
  Segment segment(descriptor, geometry);
  struct stat status {};
  if (::fstat(descriptor, &status) != 0)
    return fail(Errc::kSystem, std::string("cannot examine the shared memory: ") + std::strerror(errno));
  if (status.st_size != static_cast<off_t>(segment.layout_.end)) {
    return fail(Errc::kBadLength, "shared memory has " + std::to_string(status.st_size) +
                                      " bytes; expected those of " + std::to_string(geometry.ranks) +
                                      " ranks");
  }
  const int seals = ::fcntl(descriptor, F_GET_SEALS);
  if (seals < 0 || (static_cast<unsigned>(seals) & kSeals) != kSeals)
    return fail(Errc::kUnsupported, "shared memory is not sealed against a change of its size");
  SLUICE_RETURN_IF_ERROR(segment.map_memory());
  return segment;
}

Segment::~Segment() {
  if (memory_ != nullptr) ::munmap(memory_, layout_.end);
  close_descriptor();
}

Segment::Segment(Segment&& other) noexcept
    : geometry_(other.geometry_),
      layout_(other.layout_),
      memory_(std::exchange(other.memory_, nullptr)),
      descriptor_(std::exchange(other.descriptor_, -1)) {}

Segment& Segment::operator=(Segment&& other) noexcept {
  std::swap(geometry_, other.geometry_);
  std::swap(layout_, other.layout_);
  std::swap(memory_, other.memory_);
  std::swap(descriptor_, other.descriptor_);
  return *this;
}

void Segment::close_descriptor() noexcept {
  if (descriptor_ >= 0) ::close(std::exchange(descriptor_, -1));
}

FailureRecord& Segment::failure() const noexcept {
  return at<FailureRecord>(0);
}

PoolRecord& Segment::pool() const noexcept {
  return at<PoolRecord>(layout_.pool);
}

std::atomic<int32_t>& Segment::process(Rank rank) const noexcept {
  SLUICE_DASSERT(rank < ranks());
  return at<std::atomic<int32_t>>(layout_.processes + rank * sizeof(std::atomic<int32_t>));
}

Doorbell& Segment::doorbell(Rank rank) const noexcept {
  SLUICE_DASSERT(rank < ranks());
  return at<Doorbell>(layout_.doorbells + rank * sizeof(Doorbell));
}

PieceSlot& Segment::slot(uint32_t slot) const noexcept {
  SLUICE_DASSERT(slot < geometry_.slots);
  return at<PieceSlot>(layout_.slots + slot * sizeof(PieceSlot));
}

Arrival& Segment::arrival(uint32_t slot, Rank rank) const noexcept {
  SLUICE_DASSERT(slot < geometry_.slots && rank < ranks());
  return at<Arrival>(layout_.arrivals + (size_t{slot} * ranks() + rank) * sizeof(Arrival));
}

LifeWord& Segment::life(Rank rank, Rank watcher) const noexcept {
  SLUICE_DASSERT(rank < ranks() && watcher < ranks());
  return at<LifeWord>(layout_.lives + (size_t{rank} * ranks() + watcher) * sizeof(LifeWord));
}

std::byte* Segment::contribution(uint32_t slot, Rank rank) const noexcept {
  SLUICE_DASSERT(slot < geometry_.slots && rank < ranks());
  return memory_ + layout_.contributions + (size_t{slot} * ranks() + rank) * geometry_.stride();
}

std::byte* Segment::result(uint32_t slot) const noexcept {
  SLUICE_DASSERT(slot < geometry_.slots);
  return memory_ + layout_.results + size_t{slot} * geometry_.stride();
}

}  // namespace sluice::local
