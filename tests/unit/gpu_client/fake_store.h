// Class FakeStore is a reducer that keeps one model of two shards in memory, with one version for each push:
// its parameters are those before plus the delta. For tests of the client.
#pragma once

#include <poll.h>
#include <sys/eventfd.h>
#include <sys/socket.h>
#include <unistd.h>

#include <array>
#include <atomic>
#include <memory>
#include <mutex>
#include <string>
#include <thread>
#include <vector>

#include "core/clock.h"
#include "store/model/body_values.h"
#include "store/model/model_json.h"
#include "store/model/model_layout.h"
#include "transport/tcp/address.h"
#include "transport/tcp/connect.h"
#include "transport/tcp/message_channel.h"
#include "wire/messages.h"

namespace sluice::test {

class FakeStore {
 public:
  enum class Fault : uint8_t {
    kNone,
    kCloseAtHello,     // like a release without models
    kNoFeature,        // of WELCOME
    kWrongShards,      // in the description of the model
    kWrongPullSize,    // PULL_ANSWER has other bytes than the shard
    kMalformedBlock,   // the last byte of a pulled shard is no code of int8 blocks
    kLosePushAnswers,  // closes the connection instead of the first two answers to PUSH_STEP
    kNoPushAnswers,    // ... of all answers to PUSH_STEP
    kDropVersion,      // the first PULL is of a version that is no longer kept
    kEndBody           // the bodies of the first two PULLs end after a frame
  };

  explicit FakeStore(Fault fault = Fault::kNone)
      : fault_(fault),
        listener_(std::move(transport::tcp::listen_on("127.0.0.1", 0, {}).value())),
        port_(transport::tcp::bound_port(listener_.fd()).value()),
        accepting_([this] { accept_all(); }) {}
  FakeStore(const FakeStore&) = delete;
  ~FakeStore() {
    ending_ = true;
    ::eventfd_write(interrupt_fd_, 1);
    accepting_.join();
    for (std::thread& t : connections_) t.join();
    ::close(interrupt_fd_);
  }

  [[nodiscard]] std::string address() const { return "127.0.0.1:" + std::to_string(port_); }
  [[nodiscard]] std::vector<uint64_t> numbers() const {
    const std::lock_guard lock(mutex_);
    return numbers_;
  }
  [[nodiscard]] size_t connections() const { return accepted_; }  // so far
  [[nodiscard]] size_t queries() const { return queries_; }       // so far
  // Ends those that are open, as a reducer does with idle ones. They must not be in use.
  void end_connections() {
    const std::lock_guard lock(mutex_);
    for (const auto& entry : channels_) {
      if (const auto channel = entry.lock()) channel->socket().shutdown();
    }
  }
  [[nodiscard]] float padding() const {
    const std::lock_guard lock(mutex_);
    return shards_[1].back();
  }

 private:
  using Channel = transport::tcp::MessageChannel;
  static constexpr Nanos kTimeout = 20 * kSecond;
  static constexpr uint64_t kModel = 17;

  void accept_all() {
    while (!ending_) {
      pollfd p{.fd = listener_.fd(), .events = POLLIN, .revents = 0};
      if (::poll(&p, 1, 20) != 1) continue;
      const int fd = ::accept4(listener_.fd(), nullptr, nullptr, SOCK_NONBLOCK | SOCK_CLOEXEC);
      ++accepted_;
      auto channel = std::make_shared<Channel>(transport::tcp::Socket(fd), interrupt_fd_);
      {
        const std::lock_guard lock(mutex_);
        channels_.push_back(channel);
      }
      connections_.emplace_back([this, channel] { serve(*channel); });
    }
  }
  static Nanos soon() { return monotonic_now() + kTimeout; }
  template <typename M>
  static bool send(Channel& c, const M& message) {
    return c.send(message, soon()).ok();
  }

  void serve(Channel& c) {
    wire::Hello hello;
    if (!c.receive(soon()).ok() || !c.decode(hello).ok() || fault_ == Fault::kCloseAtHello) return;
    wire::Welcome welcome;
    welcome.version = wire::kVersionMax;
    welcome.features = fault_ == Fault::kNoFeature ? 0 : wire::kFeatureStore;
    wire::StoreRequest request;
    if (!send(c, welcome) || !c.receive(soon()).ok() || !c.decode(request).ok()) return;
    if (!send(c, wire::StoreReady{.store = 99})) return;
    while (c.receive(soon()).ok() && answer(c)) {
    }
  }

  bool answer(Channel& c) {
    switch (c.type()) {
      case wire::FrameType::kModelQuery: return on_query(c);
      case wire::FrameType::kInstall: return on_install(c);
      case wire::FrameType::kStartModel: return start(c);
      case wire::FrameType::kCurrent: return on_current(c);
      case wire::FrameType::kPush: return on_push(c);
      case wire::FrameType::kPushStep: return on_step(c);
      case wire::FrameType::kPull: return on_pull(c);
      default: return false;
    }
  }

  std::string state_text(bool created) const {
    const std::string owner = R"({"store": 99, "address": ")" + address() + R"(", "generation": 1})";
    const std::string shards = fault_ == Fault::kWrongShards ? "[]" : "[" + owner + ", " + owner + "]";
    return R"({"spec": )" + spec_text_ + R"(, "model": 17, "shards": )" + shards + R"(, "started": )" +
           (started_ ? "true" : "false") + R"(, "version": )" + std::to_string(version_) +
           R"(, "created": )" + (created ? "true" : "false") + "}";
  }
  bool on_query(Channel& c) {
    wire::ModelQuery query;
    if (!c.decode(query).ok()) return false;
    ++queries_;
    std::string body(query.bytes, '\0');
    if (!c.receive_body(std::as_writable_bytes(std::span(body))).ok()) return false;
    const std::lock_guard lock(mutex_);
    std::string text;
    if (query.kind == wire::ModelQueryKind::kList) {
      text = spec_text_.empty() ? "[]" : R"(["m"])";
    } else if (query.kind == wire::ModelQueryKind::kDelete) {
      spec_text_.clear();
    } else {
      const bool created = query.kind == wire::ModelQueryKind::kCreate && spec_text_.empty();
      if (created) {
        spec_text_ = body;
        const store::ModelLayout layout(store::parse_model(body).value(), 2);
        shards_ = {std::vector<float>(layout.shard_elements(), 7),
                   std::vector<float>(layout.shard_elements(), 7)};
        staged_ = shards_;
      } else if (spec_text_.empty()) {
        return send(c,
                    wire::Failed{.code = Errc::kUnknownSession, .text = "no model \"" + query.name + "\""});
      }
      text = state_text(created);
    }
    return send(c, wire::ModelAnswer{.bytes = text.size()}) &&
           c.send_body(std::as_bytes(std::span(text))).ok();
  }
  bool on_install(Channel& c) {
    wire::Install m;
    if (!c.decode(m).ok()) return false;
    const std::lock_guard lock(mutex_);
    std::vector<float> values(m.bytes / sizeof(float));
    if (!c.receive_body(std::as_writable_bytes(std::span(values))).ok()) return false;
    if (m.array == 0) shards_.at(m.shard) = values;
    return send(c, wire::Done{});
  }
  bool start(Channel& c) {
    const std::lock_guard lock(mutex_);
    started_ = true;
    return send(c, wire::Done{});
  }
  bool on_current(Channel& c) {
    const std::lock_guard lock(mutex_);
    return send(c, wire::CurrentAnswer{.started = static_cast<uint8_t>(started_), .version = version_});
  }
  bool on_push(Channel& c) {
    wire::Push m;
    if (!c.decode(m).ok() || m.model != kModel) return false;
    std::vector<std::byte> body(m.bytes);
    if (!c.receive_body(body).ok()) return false;
    const std::lock_guard lock(mutex_);
    return store::decode_body(m.dtype, body.data(), staged_.at(m.shard)).ok() && send(c, wire::Done{});
  }
  bool on_step(Channel& c) {
    wire::PushStep m;
    if (!c.decode(m).ok()) return false;
    const std::lock_guard lock(mutex_);
    const bool is_new = numbers_.empty() || numbers_.back() < m.number;
    numbers_.push_back(m.number);
    if (is_new) {
      for (size_t s = 0; s < shards_.size(); ++s) {
        for (size_t i = 0; i < shards_[s].size(); ++i) shards_[s][i] += staged_[s][i];
      }
      ++version_;
    }
    if (fault_ == Fault::kNoPushAnswers || (fault_ == Fault::kLosePushAnswers && numbers_.size() <= 2))
      return false;
    return send(c, wire::PushAnswer{.outcome = wire::PushOutcome::kContained, .version = version_});
  }
  bool on_pull(Channel& c) {
    wire::Pull m;
    if (!c.decode(m).ok()) return false;
    const std::lock_guard lock(mutex_);
    if (fault_ == Fault::kDropVersion && pulls_++ == 0)
      return send(c, wire::Failed{.code = Errc::kBadView, .text = "version is no longer kept"});
    std::vector<std::byte> body(store::body_bytes(m.dtype, shards_.at(m.shard).size()));
    store::encode_body(m.dtype, shards_[m.shard], body.data());
    if (fault_ == Fault::kMalformedBlock) body.back() = std::byte{0x80};
    const uint64_t bytes = body.size() + (fault_ == Fault::kWrongPullSize ? 4 : 0);
    if (!send(c, wire::PullAnswer{.steps = version_, .bytes = bytes})) return false;
    if (fault_ == Fault::kEndBody && pulls_++ < 2) {
      const wire::Failed failed{.code = Errc::kTimeout, .text = "read at least 16777216 bytes/s"};
      return c.send_body(std::span(body).first(wire::kModelDataBytes)).ok() && send(c, failed);
    }
    return c.send_body(body).ok();
  }

  const Fault fault_;
  const int interrupt_fd_ = ::eventfd(0, EFD_CLOEXEC | EFD_NONBLOCK);  // ends all waits
  transport::tcp::Socket listener_;
  uint16_t port_ = 0;
  std::atomic<bool> ending_{false};
  std::atomic<size_t> accepted_{0};
  std::atomic<size_t> queries_{0};
  mutable std::mutex mutex_;
  std::string spec_text_;
  bool started_ = false;
  uint64_t version_ = 0;
  uint64_t pulls_ = 0;
  std::array<std::vector<float>, 2> shards_;
  std::array<std::vector<float>, 2> staged_;
  std::vector<uint64_t> numbers_;  // of all steps requested
  std::vector<std::weak_ptr<Channel>> channels_;
  std::vector<std::thread> connections_;
  std::thread accepting_;
};

}  // namespace sluice::test
