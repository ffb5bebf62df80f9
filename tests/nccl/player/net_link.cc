#include "tests/nccl/player/net_link.h"

#include <algorithm>
#include <deque>
#include <utility>

#include "tests/nccl/player/failure.h"
#include "tests/nccl/player/model.h"

namespace player {
namespace {

constexpr std::byte kGuard{0x3c};
constexpr size_t kGuardBytes = 64;  // after the receive buffer

struct Message {
  std::vector<std::byte> buffer;
  void* mhandle = nullptr;
  void* request = nullptr;
  size_t bytes = 0;     // sent
  size_t capacity = 0;  // posted to receive
};

void fill_message(uint64_t seed, int from, size_t index, size_t bytes, std::byte* out) {
  fill(kUint8, seed * 1'000'003 + static_cast<uint64_t>(from) * 10'007 + index, 0, bytes, out);
}

// Direction transfers the messages of one direction: it posts in order, keeps `window` requests open and
// tests the oldest.
class Direction {
 public:
  Direction(Rank& rank, Plugin& plugin, void* comm, bool receives, int from, const Flow& flow)
      : rank_(rank), plugin_(plugin), comm_(comm), receives_(receives), from_(from), flow_(flow) {}

  [[nodiscard]] bool finished() const { return done_ == flow_.sizes.size(); }

  bool progress() {
    bool moved = false;
    if (posted_ < flow_.sizes.size() && open_.size() < static_cast<size_t>(flow_.window)) moved = post();
    // Requests complete in any order, but NCCL tests the oldest.
    if (!open_.empty() && open_.front().request != nullptr) moved = test() || moved;
    return moved;
  }

 private:
  bool post() {
    if (!waiting_) prepare();
    Message& message = next_;
    void* request = nullptr;
    Result result;
    if (receives_) {
      // From NCCL 2.24 on, *request may hold a hint on entry.
      if (rank_.options().abi >= 9 && posted_ % 2 == 1)
        request = reinterpret_cast<void*>(kOptionalCompletion);
      const void* const hint = request;
      result =
          plugin_.net().irecv(comm_, message.buffer.data(), message.capacity, 7, message.mhandle, &request);
      require(hint == nullptr || request != hint, "irecv left the hint in *request");
    } else {
      result = plugin_.net().isend(comm_, message.buffer.data(), message.bytes, 7, message.mhandle, &request);
    }
    require_success(result, receives_ ? "irecv" : "isend");
    if (request == nullptr) return false;
    message.request = request;
    open_.push_back(std::move(message));
    waiting_ = false;
    ++posted_;
    return true;
  }

  void prepare() {
    const size_t bytes = flow_.sizes[posted_];
    next_ = Message{};
    next_.bytes = bytes;
    // A receiver posts the maximum size, because it does not know the size of the message.
    next_.capacity = posted_ % 3 == 0 ? bytes + 100 : bytes;
    next_.buffer.assign((receives_ ? next_.capacity : bytes) + kGuardBytes, kGuard);
    if (!receives_) fill_message(flow_.seed, from_, posted_, bytes, next_.buffer.data());
    require_success(plugin_.net().reg_mr(comm_, next_.buffer.data(), next_.buffer.size(), &next_.mhandle),
                    "net regMr");
    waiting_ = true;
  }

  bool test() {
    Message& message = open_.front();
    int done = -1, size = -1;
    const bool wants_size = receives_ || done_ % 2 == 0;
    require_success(plugin_.net().test(message.request, &done, wants_size ? &size : nullptr),
                    receives_ ? "test of irecv" : "test of isend");
    require(done == 0 || done == 1, "test did not set *done");
    if (done == 0) return false;
    if (receives_) verify(message, size);
    if (message.mhandle != nullptr)
      require_success(plugin_.net().dereg_mr(comm_, message.mhandle), "net deregMr");
    open_.pop_front();
    ++done_;
    return true;
  }

  void verify(const Message& message, int size) const {
    const std::string what =
        "message " + std::to_string(done_) + " of " + std::to_string(message.bytes) + " bytes";
    require(size == static_cast<int>(message.bytes),
            what + ": test returned a size of " + std::to_string(size));
    std::vector<std::byte> expected(message.bytes);
    fill_message(flow_.seed, from_, done_, message.bytes, expected.data());
    const auto wrong = std::mismatch(expected.begin(), expected.end(), message.buffer.begin()).first;
    require(wrong == expected.end(), what + ": wrong byte at " + std::to_string(wrong - expected.begin()));
    for (size_t at = message.bytes; at < message.buffer.size(); ++at)
      require(message.buffer[at] == kGuard, what + ": bytes after its end were overwritten");
  }

  Rank& rank_;
  Plugin& plugin_;
  void* const comm_;
  const bool receives_;
  const int from_;
  const Flow& flow_;
  size_t posted_ = 0, done_ = 0;
  Message next_;
  bool waiting_ = false;  // next_ is prepared but not posted
  std::deque<Message> open_;
};

}  // namespace

NetLink connect_link(Rank& rank, Plugin& plugin, const Contexts& contexts, int distance,
                     const std::string& name) {
  Net& net = plugin.net();
  NetLink link;
  const int device = std::max(rank.options().device, 0);
  rank.step("net connect, " + name);
  Block handle(kHandleBytes, std::byte{0});
  require_success(net.listen(contexts.net, device, handle.data(), &link.listener), "net listen");
  std::vector<Block> all =
      rank.bootstrap().all_gather("net handles " + name, rank.index(), rank.count(), handle);
  Block& to = all[static_cast<size_t>((rank.index() + distance) % rank.count())];
  while (link.send_comm == nullptr || link.receive_comm == nullptr) {
    if (link.send_comm == nullptr)
      require_success(net.connect(contexts.net, device, to.data(), &link.send_comm), "net connect");
    if (link.receive_comm == nullptr)
      require_success(net.accept(link.listener, &link.receive_comm), "net accept");
    rank.yield();
  }
  require_success(net.close_listen(link.listener), "net closeListen");
  link.listener = nullptr;
  return link;
}

void run_traffic(Rank& rank, Plugin& plugin, NetLink& link, int distance, const Flow& flow) {
  const int from = (rank.index() - distance + rank.count()) % rank.count();
  Direction sending(rank, plugin, link.send_comm, false, rank.index(), flow);
  Direction receiving(rank, plugin, link.receive_comm, true, from, flow);
  while (!sending.finished() || !receiving.finished()) {
    bool moved = !sending.finished() && sending.progress();
    moved = (!receiving.finished() && receiving.progress()) || moved;
    if (flow.close_early && sending.finished() && link.send_comm != nullptr) {
      require_success(plugin.net().close_send(std::exchange(link.send_comm, nullptr)), "net closeSend");
    }
    if (!moved) rank.yield();
  }
}

void close_link(Plugin& plugin, NetLink& link) {
  if (link.send_comm != nullptr) require_success(plugin.net().close_send(link.send_comm), "net closeSend");
  if (link.receive_comm != nullptr)
    require_success(plugin.net().close_recv(link.receive_comm), "net closeRecv");
  link = {};
}

}  // namespace player
