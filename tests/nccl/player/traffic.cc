#include "tests/nccl/player/traffic.h"

#include <algorithm>
#include <cstring>
#include <numeric>
#include <utility>

#include "tests/nccl/player/failure.h"
#include "tests/nccl/player/model.h"

namespace player {
namespace {

// Fills a receive slot after its verification. A change before the next post is a write after completion.
constexpr std::byte kCanary{0x5c};
constexpr size_t kCanaryBytes = 4096;  // at each end of the received data
void* const kPoison = reinterpret_cast<void*>(0xdead0000dead);

void put_canary(std::byte* slot, size_t bytes) {
  const size_t span = std::min(bytes, kCanaryBytes);
  std::fill_n(slot, span, kCanary);
  std::fill_n(slot + bytes - span, span, kCanary);
}

bool has_canary(const std::byte* slot, size_t bytes) {
  const size_t span = std::min(bytes, kCanaryBytes);
  const auto is_canary = [](std::byte b) { return b == kCanary; };
  return std::all_of(slot, slot + span, is_canary) &&
         std::all_of(slot + bytes - span, slot + bytes, is_canary);
}

uint64_t seed_of(const Operation& operation, int place) {
  return operation.seed * 1'000'003 + static_cast<uint64_t>(place);
}

}  // namespace

// Channels that share a request.
struct Traffic::GroupState {
  int first_channel = 0, channels = 0;
  size_t steps = 0;             // of this collective
  size_t posted = 0, done = 0;  // steps
  bool prepared = false;        // the data of step `posted` is in its slot
  void* requests[kSteps] = {};

  [[nodiscard]] size_t bytes(const Operation& operation) const {
    return static_cast<size_t>(channels) * operation.chunk_bytes;
  }
  // The offset of a step in the message.
  [[nodiscard]] size_t offset(const Operation& operation, size_t step) const {
    return (step * static_cast<size_t>(operation.channels) + static_cast<size_t>(first_channel)) *
           operation.chunk_bytes;
  }
};

Traffic::Traffic(Communicator& communicator)
    : communicator_(communicator), order_(communicator.group().ranks) {
  std::iota(order_.begin(), order_.end(), 0);
}

std::byte* Traffic::slot(const Operation& operation, bool receives, size_t step, int first_channel) {
  const Geometry& geometry = communicator_.geometry();
  const size_t index = (receives ? kSteps : 0) + (communicator_.step_base + step) % kSteps;
  return communicator_.region() + index * static_cast<size_t>(geometry.channels) * geometry.slot_bytes() +
         static_cast<size_t>(first_channel) * operation.chunk_bytes;
}

void Traffic::prepare(const Operation& operation, const GroupState& group) {
  const size_t size = size_of(operation.type), offset = group.offset(operation, group.posted),
               bytes = group.bytes(operation);
  if (group.posted >= kSteps) {
    const bool untouched = has_canary(slot(operation, true, group.posted, group.first_channel), bytes);
    require(untouched, "a receive slot was written after its request was done");
  }
  std::byte* const send = slot(operation, operation.in_place, group.posted, group.first_channel);
  const size_t valid = offset >= operation.bytes ? 0 : std::min(bytes, operation.bytes - offset);
  fill(operation.type, seed_of(operation, communicator_.group().place), offset / size, valid / size, send);
  fill_stale(operation.type, (bytes - valid) / size, send + valid);
}

bool Traffic::post(const Operation& operation, GroupState& group) {
  if (!group.prepared) prepare(operation, group);
  group.prepared = true;
  void* request = kPoison;
  const Result result = communicator_.collnet().iallreduce(
      communicator_.comm(), slot(operation, operation.in_place, group.posted, group.first_channel),
      slot(operation, true, group.posted, group.first_channel),
      group.bytes(operation) / size_of(operation.type), operation.type, operation.op,
      operation.in_place ? communicator_.receive_mhandle() : communicator_.send_mhandle(),
      communicator_.receive_mhandle(), &request);
  if (result != kSuccess) throw CallFailed("iallreduce", result);
  require(request != kPoison, "iallreduce did not set *request");
  if (request == nullptr) {
    ++counts_.retries;
    return false;
  }
  ++counts_.requests;
  group.requests[group.posted % kSteps] = request;
  ++group.posted;
  group.prepared = false;
  return true;
}

bool Traffic::test(const Operation& operation, GroupState& group) {
  int done = -1, size = -1;
  void* const request = group.requests[group.done % kSteps];
  // NCCL passes a null size in some calls.
  const Result result = communicator_.collnet().test(request, &done, group.done % 2 == 0 ? &size : nullptr);
  if (result != kSuccess) {
    for (int poll = 0; poll < kPollsOfFailedRequest; ++poll)
      require(communicator_.collnet().test(request, &done, nullptr) != kSuccess,
              "a failed request succeeded");
    throw CallFailed("test", result);
  }
  require(done == 0 || done == 1, "test did not set *done");
  if (done == 0) return false;
  verify(operation, group);
  ++group.done;
  return true;
}

void Traffic::verify(const Operation& operation, const GroupState& group) {
  const size_t size = size_of(operation.type), offset = group.offset(operation, group.done),
               bytes = group.bytes(operation);
  std::byte* const received = slot(operation, true, group.done, group.first_channel);
  const size_t valid = offset >= operation.bytes ? 0 : std::min(bytes, operation.bytes - offset);
  const int ranks = communicator_.group().ranks;
  expected_.resize(bytes);
  contributions_.resize(static_cast<size_t>(ranks));
  std::vector<const std::byte*> in_order;
  for (int at = 0; at < ranks; ++at) {
    contributions_[at].resize(bytes);
    fill(operation.type, seed_of(operation, order_[at]), offset / size, valid / size,
         contributions_[at].data());
    in_order.push_back(contributions_[at].data());
  }
  reduce(operation.type, operation.op, in_order, valid / size, expected_.data());
  const auto wrong =
      std::mismatch(expected_.begin(), expected_.begin() + static_cast<std::ptrdiff_t>(valid), received);
  if (wrong.first != expected_.begin() + static_cast<std::ptrdiff_t>(valid)) {
    const auto byte = static_cast<size_t>(wrong.first - expected_.begin());
    throw Failure(std::string(name_of(operation.type)) + " " + name_of(operation.op) + ": wrong byte at " +
                  std::to_string(offset + byte) + " of " + std::to_string(operation.bytes) + ": got " +
                  std::to_string(static_cast<int>(*wrong.second)) + ", expected " +
                  std::to_string(static_cast<int>(*wrong.first)));
  }
  const int own_place = communicator_.group().place;
  const auto own = std::find(order_.begin(), order_.end(), own_place) - order_.begin();
  const std::byte* const sent = slot(operation, false, group.done, group.first_channel);
  require(operation.in_place || std::memcmp(sent, contributions_[own].data(), valid) == 0,
          "the send buffer was changed");
  put_canary(received, bytes);
}

void Traffic::run_one(const Operation& operation) {
  const int groups = (operation.channels + kGroupChannels - 1) / kGroupChannels;
  const size_t per_step = static_cast<size_t>(operation.channels) * operation.chunk_bytes;
  std::vector<GroupState> states(static_cast<size_t>(groups));
  for (int g = 0; g < groups; ++g) {
    states[g].first_channel = g * kGroupChannels;
    states[g].channels = std::min(kGroupChannels, operation.channels - states[g].first_channel);
    states[g].steps = (operation.bytes + per_step - 1) / per_step;
  }
  // The next request in the common order: by step, then by group.
  size_t next = 0;
  const size_t all = states[0].steps * states.size();
  size_t left = all;
  while (left > 0) {
    bool idle = true;
    GroupState& turn = states[next % states.size()];
    const bool may_post = next < all && turn.posted < turn.done + kSteps;
    const bool posted = may_post && post(operation, turn);
    if (posted) {
      ++next;
      idle = false;
    }
    for (GroupState& group : states) {
      // NCCL tests no request of a group whose post was refused; it only repeats the post.
      if (may_post && !posted && &group == &turn) continue;
      if (group.done < group.posted && test(operation, group)) {
        --left;
        idle = false;
      }
    }
    if (idle) communicator_.rank().yield();
  }
  // The last receive slots must not be written after completion either.
  for (GroupState& group : states) {
    for (size_t step = group.steps - std::min<size_t>(group.steps, kSteps); step < group.steps; ++step) {
      require(has_canary(slot(operation, true, step, group.first_channel), group.bytes(operation)),
              "a receive slot was written after its request was done");
    }
  }
  communicator_.step_base += states[0].steps;
}

void Traffic::run(const std::vector<Operation>& operations) {
  communicator_.progress().run([&] {
    for (const Operation& operation : operations) {
      communicator_.rank().step(communicator_.group().name + ": allreduce " + name_of(operation.type) + " " +
                                name_of(operation.op) + " of " + std::to_string(operation.bytes));
      if (before_first) std::exchange(before_first, {})();
      run_one(operation);
    }
  });
}

void Traffic::leave_open(const Operation& operation, int count) {
  communicator_.progress().run([&] {
    GroupState group;
    group.channels = std::min(operation.channels, kGroupChannels);
    group.steps = static_cast<size_t>(count);
    for (int i = 0; i < count && i < kSteps; ++i) {
      if (!post(operation, group)) break;
    }
    for (size_t i = 0; i < group.posted; ++i) {
      int done = -1;
      const Result result = communicator_.collnet().test(group.requests[i], &done, nullptr);
      if (result != kSuccess) throw CallFailed("test", result);
      // A request that is done must not be tested again.
    }
  });
}

void Traffic::find_fold_order() {
  // Sums of float32 depend on the order. All orders are compared with one small request, starting with the
  // handle order.
  Operation probe{kFloat32, kSum, 2048, 1, 2048, 0xf01d};
  const int ranks = communicator_.group().ranks;
  std::vector<std::byte> received;
  communicator_.progress().run([&] {
    GroupState group;
    group.channels = 1;
    group.steps = 1;
    while (!post(probe, group)) communicator_.rank().yield();
    for (int done = 0; done == 0; communicator_.rank().yield()) {
      const Result result = communicator_.collnet().test(group.requests[0], &done, nullptr);
      if (result != kSuccess) throw CallFailed("test", result);
    }
    const std::byte* const from = slot(probe, true, 0, 0);
    received.assign(from, from + probe.bytes);
    ++communicator_.step_base;
  });
  const size_t count = probe.bytes / size_of(probe.type);
  std::vector<std::vector<std::byte>> by_place(static_cast<size_t>(ranks),
                                               std::vector<std::byte>(probe.bytes));
  for (int place = 0; place < ranks; ++place)
    fill(probe.type, seed_of(probe, place), 0, count, by_place[place].data());
  std::vector<std::byte> expected(probe.bytes);
  std::sort(order_.begin(), order_.end());
  do {
    std::vector<const std::byte*> in_order;
    for (const int place : order_) in_order.push_back(by_place[place].data());
    // A few elements exclude most orders.
    reduce(probe.type, probe.op, in_order, 32, expected.data());
    if (std::memcmp(expected.data(), received.data(), 32 * size_of(probe.type)) != 0) continue;
    reduce(probe.type, probe.op, in_order, count, expected.data());
    if (expected == received) return;
  } while (std::next_permutation(order_.begin(), order_.end()));
  throw Failure("no order of the contributions yields the first sum");
}

}  // namespace player
