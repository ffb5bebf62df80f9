#include "nccl_plugin/collnet/agreement.h"

#include <poll.h>

#include <algorithm>
#include <array>
#include <cstring>
#include <utility>

#include "config/sizes.h"
#include "core/clock.h"
#include "nccl_plugin/collnet/gathering.h"
#include "nccl_plugin/host/log.h"

namespace sluice::nccl::collnet {
namespace {

using transport::tcp::Socket;

constexpr Nanos kPatience = 2 * kSecond;  // for the leader's word, beyond the leader's own deadline
constexpr Nanos kFirstWord = kSecond;     // until a node that waits says so in the log

bool is_readable(const Socket& socket, Nanos deadline) {
  pollfd p{.fd = socket.fd(), .events = POLLIN, .revents = 0};
  const Nanos left = std::max<Nanos>(deadline - monotonic_now(), 0);
  return ::poll(&p, 1, static_cast<int>(left / kMillisecond) + 1) != 0;
}

}  // namespace

Result<Agreement> Agreement::gather(Party party, Socket listener, Patience patience) {
  Agreement a(std::move(party));
  for (uint32_t rank = 0; rank < a.party_.nodes.size(); ++rank) {
    if (a.party_.nodes[rank].port == 0) {
      return fail(Errc::kSystem, a.name(rank) + " could not open a port for the agreement of the nodes");
    }
  }
  if (!a.leads()) {
    const Nanos begin = monotonic_now(), until = begin + patience.late;
    if (auto called = a.call_leader(begin + patience.call, until); !called)
      return tl::unexpected(called.error());
    if (!is_readable(a.links_[0], begin + kFirstWord)) {
      info("waiting for all nodes, which %s gathers, at most %s (SLUICE_JOIN_TIMEOUT)", a.name(0).c_str(),
           config::duration_text(patience.late).c_str());
    }
    if (auto heard = a.hear_leader(until + kPatience); !heard) return tl::unexpected(heard.error());
    return a;
  }
  Gathering gathering(a.party_, std::move(listener), patience);
  Result<void> outcome = gathering.run();
  for (uint32_t rank = 1; rank < a.party_.nodes.size(); ++rank) {
    Gathering::Arrival& arrival = gathering.arrivals()[rank];
    a.links_[rank] = std::move(arrival.socket);
    if (outcome && arrival.text != a.party_.common) {
      outcome =
          fail(Errc::kMismatch, "the nodes see different reducers: " + a.name(0) + " \"" + a.party_.common +
                                    "\", " + a.name(rank) + " \"" + arrival.text + "\"");
    }
  }
  a.tell_all(outcome, monotonic_now() + kPatience);
  if (!outcome) return tl::unexpected(outcome.error());
  return a;
}

Result<void> Agreement::call_leader(Nanos deadline, Nanos until) {
  const Contact& leader = party_.nodes[0];
  auto socket = transport::tcp::connect_to(
      leader.address, leader.port,
      {.buffer_bytes = 0, .congestion_control = {}, .local_address = party_.local_address}, deadline);
  if (!socket) return add_context("agreement with " + name(0), socket.error());
  links_[0] = std::move(*socket);
  const Word hello{.kind = Word::Kind::kHello,
                   .code = Errc::kOk,
                   .rank = party_.rank,
                   .text = Gathering::hello_text(party_, until - monotonic_now())};
  if (const Status s = send(links_[0], hello, deadline); !s.ok()) {
    return fail(s.code(), "agreement with " + name(0) + ": " + std::string(to_string(s.code())));
  }
  return {};
}

Result<void> Agreement::hear_leader(Nanos deadline) {
  Word word;
  if (const Status s = receive(links_[0], word, deadline); !s.ok()) {
    return fail(s.code(), "no word from " + name(0) + ", which leads the agreement of the nodes: " +
                              std::string(to_string(s.code())));
  }
  if (word.kind != Word::Kind::kVerdict)
    return fail(Errc::kUnexpectedMessage, name(0) + " does not say a verdict");
  if (word.code != Errc::kOk) return fail(word.code, word.text);
  return {};
}

Result<void> Agreement::decide(const Result<void>& mine, Nanos deadline) {
  if (leads()) return lead_round(mine ? mine : add_context(name(0), mine.error()), deadline);
  Word vote{.kind = Word::Kind::kVote, .code = Errc::kOk, .rank = party_.rank, .text = {}};
  if (!mine) {
    vote.code = mine.error().code;
    vote.text = name(party_.rank) + ": " + mine.error().text;
  }
  if (const Status s = send(links_[0], vote, deadline); !s.ok() && s.code() != Errc::kReset) {
    return fail(s.code(), "agreement with " + name(0) + ": " + std::string(to_string(s.code())));
  }
  return hear_leader(deadline + kPatience);
}

Result<void> Agreement::lead_round(Result<void> outcome, Nanos deadline) {
  for (uint32_t rank = 1; rank < links_.size(); ++rank) {
    Word vote;
    const Status s = receive(links_[rank], vote, deadline);
    if (!outcome) continue;  // the lowest rank's words count; the other votes are read off all the same
    if (!s.ok() || vote.kind != Word::Kind::kVote || vote.rank != rank) {
      outcome = fail(s.ok() ? Errc::kUnexpectedMessage : s.code(),
                     name(rank) + " did not vote: " + std::string(to_string(s.code())));
    } else if (vote.code != Errc::kOk) {
      outcome = fail(vote.code, vote.text);
    }
  }
  tell_all(outcome, monotonic_now() + kPatience);
  return outcome;
}

void Agreement::tell_all(const Result<void>& outcome, Nanos deadline) noexcept {
  Word verdict{.kind = Word::Kind::kVerdict, .code = Errc::kOk, .rank = 0, .text = {}};
  if (!outcome) {
    verdict.code = outcome.error().code;
    verdict.text = outcome.error().text;
  }
  for (const Socket& link : links_) {
    if (link.valid()) (void)send(link, verdict, deadline);  // one that is gone hears nothing, and has failed
  }
}

void Agreement::part(Nanos deadline) noexcept {
  try {
    if (!leads()) {
      (void)send(links_[0], {.kind = Word::Kind::kThanks, .code = Errc::kOk, .rank = party_.rank, .text = {}},
                 deadline);
      return;
    }
    for (const Socket& link : links_) {
      Word thanks;
      if (link.valid()) (void)receive(link, thanks, deadline);
    }
  } catch (...) {  // out of memory: the word is out all the same
  }
}

Status Agreement::send(const Socket& to, const Word& word, Nanos deadline) noexcept {
  std::array<std::byte, Gathering::kHeadBytes + Gathering::kMostText> bytes;
  const size_t text = std::min(word.text.size(), Gathering::kMostText);
  Gathering::write_head(std::span(bytes).first<Gathering::kHeadBytes>(),
                        {.kind = static_cast<uint8_t>(word.kind),
                         .code = static_cast<uint16_t>(word.code),
                         .rank = word.rank,
                         .text_bytes = static_cast<uint32_t>(text)});
  std::memcpy(bytes.data() + Gathering::kHeadBytes, word.text.data(), text);
  return transport::tcp::write_all(to.fd(), std::span(bytes).first(Gathering::kHeadBytes + text), deadline);
}

Status Agreement::receive(const Socket& from, Word& word, Nanos deadline) {
  if (!from.valid()) return Errc::kClosed;
  std::array<std::byte, Gathering::kHeadBytes> bytes;
  if (const Status s = transport::tcp::read_exact(from.fd(), bytes, deadline); !s.ok()) return s;
  Gathering::Head head;
  if (!Gathering::read_head(bytes, head)) return Errc::kBadField;
  word.text.resize(head.text_bytes);
  word.kind = static_cast<Word::Kind>(head.kind);
  word.code = is_known(static_cast<Errc>(head.code)) ? static_cast<Errc>(head.code) : Errc::kAborted;
  word.rank = head.rank;
  return transport::tcp::read_exact(from.fd(), std::as_writable_bytes(std::span(word.text)), deadline);
}

}  // namespace sluice::nccl::collnet
