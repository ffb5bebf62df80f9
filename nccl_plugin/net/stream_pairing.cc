#include "nccl_plugin/net/stream_pairing.h"

#include <span>
#include <utility>

#include "gpu_client/engine/greeting.h"
#include "nccl_plugin/net/limits.h"
#include "nccl_plugin/net/stream_terms.h"

namespace sluice::nccl::net {
namespace {

namespace rdma = transport::rdma;

std::string reason_there(std::string why) {
  return "there: " + (why.empty() ? "no reason given" : engine::printable(std::move(why)));
}

}  // namespace

template <typename Message>
Result<void> StreamPairing::say(const Message& message) {
  if (!send_frame(socket_.fd(), wire::encode_message(message)).ok())
    return fail(Errc::kReset, "connection broke while a queue pair was agreed on");
  return {};
}

template <typename Message>
Result<void> StreamPairing::hear(Message& out) {
  Status s = heard_.read(socket_.fd());
  if (s == Status(Errc::kWouldBlock)) return fail(Errc::kWouldBlock, "");
  if (s == Status(Errc::kClosed) || s == Status(Errc::kReset))
    return fail(s.code(), "connection ended while a queue pair was agreed on");
  if (s.ok()) s = decode_word(heard_.bytes(), out);
  if (!s.ok())
    return fail(s.code(), std::string("not a ") + wire::to_string(Message::kType) + ": " +
                              std::string(to_string(s.code())));
  heard_ = {};
  return {};
}

void StreamPairing::go_without(std::string why) {
  pair_.reset();
  if (obstacle_.empty()) obstacle_ = std::move(why);
}

Result<void> StreamPairing::progress(Nanos now) {
  Result<void> moved;
  while (moved && step_ != Step::kSettled) {
    switch (step_) {
      case Step::kBegin:
        if (end_ == End::kSender) moved = offer();
        step_ = Step::kHearPair;
        break;
      case Step::kHearPair: moved = end_ == End::kSender ? join(now) : answer(); break;
      case Step::kProve: moved = prove(now); break;
      case Step::kHearPaired: moved = hear_paired(); break;
      case Step::kSettled: break;
    }
  }
  return moved;
}

Result<void> StreamPairing::offer() {
  wire::Pair ours;
  if (auto offered = rdma::offer_pair(socket_.fd(), choice_)) {
    pair_ = std::move(offered->pair);
    ours.address = std::move(offered->address);
  } else {
    go_without(offered.error().text);
    ours.why = obstacle_;
  }
  return say(ours);
}

Result<void> StreamPairing::join(Nanos now) {
  wire::Pair theirs;
  if (auto heard = hear(theirs); !heard) return heard;
  if (!pair_) return settle();
  if (theirs.address.empty()) {
    go_without(reason_there(std::move(theirs.why)));
    return settle();
  }
  auto begun = rdma::join_pair(*pair_, socket_.fd(), std::as_bytes(std::span(theirs.address)));
  if (begun) begun = rdma::start_proof(*pair_);
  if (!begun) {
    go_without(begun.error().text);
    return settle();
  }
  proof_since_ = now;
  step_ = Step::kProve;
  return {};
}

Result<void> StreamPairing::prove(Nanos now) {
  auto proved = rdma::look_at_proof(*pair_, proof_since_, now);
  if (!proved && proved.error().code == Errc::kWouldBlock) return proved;
  if (!proved) go_without(proved.error().text);
  return settle();
}

Result<void> StreamPairing::settle() {
  wire::Paired paired;
  paired.ready = pair_ ? 1 : 0;
  paired.why = obstacle_;
  if (pair_) socket_.accompany(std::move(pair_));
  step_ = Step::kSettled;
  return say(paired);
}

Result<void> StreamPairing::answer() {
  wire::Pair theirs;
  if (auto heard = hear(theirs); !heard) return heard;
  wire::Pair ours;
  if (auto joined = join_with(theirs, ours.address); !joined) {
    go_without(joined.error().text);
    ours.why = obstacle_;
  }
  step_ = Step::kHearPaired;
  return say(ours);
}

// Joined before the answer: the sender may send as soon as it has it.
Result<void> StreamPairing::join_with(const wire::Pair& theirs, std::vector<uint8_t>& address) {
  if (theirs.address.empty()) return fail(Errc::kUnsupported, reason_there(theirs.why));
  const auto ends = rdma::ends_of(socket_.fd());
  if (!ends) return tl::unexpected(ends.error());
  const auto there = std::as_bytes(std::span(theirs.address));
  if (auto checked = rdma::check_pair_address(*ends, there); !checked) return checked;
  auto offered = rdma::offer_pair(*ends, choice_);
  if (!offered) return tl::unexpected(offered.error());
  if (auto joined = rdma::join_pair(*offered->pair, *ends, there); !joined) return joined;
  pair_ = std::move(offered->pair);
  address = std::move(offered->address);
  return {};
}

Result<void> StreamPairing::hear_paired() {
  wire::Paired paired;
  if (auto heard = hear(paired); !heard) return heard;
  if (paired.ready != 0 && !pair_)
    return fail(Errc::kBadField, "the sender uses a queue pair that there is not");
  if (paired.ready == 0) {
    go_without(reason_there(std::move(paired.why)));
  } else {
    socket_.accompany(std::move(pair_));
  }
  step_ = Step::kSettled;
  return {};
}

StreamPairings::StreamPairings(GreetedStreams greeted, End end, const rdma::RailChoice& choice, bool alone,
                               Nanos now)
    : greeted_(std::move(greeted)), alone_(alone), deadline_(now + kPeerDeadline) {
  streams_.reserve(greeted_.sockets.size());
  for (transport::tcp::Socket& s : greeted_.sockets) streams_.emplace_back(std::move(s), end, choice);
}

Result<GreetedStreams> StreamPairings::progress(Nanos now) {
  bool all = true;
  for (StreamPairing& s : streams_) {
    if (auto moved = s.progress(now); !moved) {
      if (moved.error().code != Errc::kWouldBlock) return tl::unexpected(moved.error());
      all = false;
    }
  }
  if (all) return settled();
  if (now < deadline_) return fail(Errc::kWouldBlock, "");
  return fail(Errc::kTimeout,
              "no answer about queue pairs in " + std::to_string(kPeerDeadline / kSecond) + " s");
}

Result<GreetedStreams> StreamPairings::settled() {
  size_t over_tcp = 0;
  std::string why;
  for (const StreamPairing& s : streams_) {
    if (s.obstacle().empty()) continue;
    ++over_tcp;
    if (why.empty()) why = s.obstacle();
  }
  if (alone_ && over_tcp > 0) return tl::unexpected(rdma_is_needed(why));
  greeted_.way = over_tcp == streams_.size() ? "streams over TCP" : "streams over RDMA";
  if (over_tcp > 0 && over_tcp < streams_.size())
    greeted_.way += ", " + std::to_string(over_tcp) + " of " + std::to_string(streams_.size()) + " over TCP";
  if (over_tcp > 0) greeted_.way += ": " + why;
  for (size_t i = 0; i < streams_.size(); ++i) greeted_.sockets[i] = streams_[i].release();
  return std::move(greeted_);
}

}  // namespace sluice::nccl::net
