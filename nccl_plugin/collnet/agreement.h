// How the nodes of a communicator come to one answer: NCCL hangs when connect() succeeds on some and fails on
// others, and the reducers can't be asked, since one of them may be what is broken. The first node in rank
// order leads; the others connect to it at the address in its handle. Then any number of rounds: each tells
// how it went, the leader tells all how it went for everybody. Cold; blocks the caller, with deadlines.
#pragma once

#include <span>
#include <string>
#include <vector>

#include "core/result.h"
#include "core/units.h"
#include "nccl_plugin/collnet/party.h"
#include "transport/tcp/socket.h"

namespace sluice::nccl::collnet {

class Agreement {
 public:
  // Brings the nodes together. `listener` is this node's; it stays open while the node waits, which is how
  // the leader knows that. An error is the same one on every node that the leader reached.
  [[nodiscard]] static Result<Agreement> gather(Party party, transport::tcp::Socket listener,
                                                Patience patience);

  // One round. Returns success when every node came with success, else the error of the lowest rank that has
  // one, with the node named: the same on all. The leader waits for the others until `deadline`, the others a
  // little longer for its word.
  [[nodiscard]] Result<void> decide(const Result<void>& mine, Nanos deadline);

  // After the last round: the leader waits until all have its word, so that closing its end does not overtake
  // it.
  void part(Nanos deadline) noexcept;

 private:
  struct Word {  // what travels: 16 bytes, then the text
    enum class Kind : uint8_t { kHello = 1, kVote = 2, kVerdict = 3, kThanks = 4 };
    Kind kind = Kind::kHello;
    Errc code = Errc::kOk;
    uint32_t rank = 0;
    std::string text;
  };

  explicit Agreement(Party party) : party_(std::move(party)), links_(party_.nodes.size()) {}
  [[nodiscard]] bool leads() const noexcept { return party_.rank == 0; }
  [[nodiscard]] std::string name(uint32_t rank) const { return party_.name(rank); }
  // `until`: when this node gives up waiting for the others.
  [[nodiscard]] Result<void> call_leader(Nanos deadline, Nanos until);
  [[nodiscard]] Result<void> hear_leader(Nanos deadline);
  [[nodiscard]] Result<void> lead_round(Result<void> outcome, Nanos deadline);
  void tell_all(const Result<void>& outcome, Nanos deadline) noexcept;
  [[nodiscard]] static Status send(const transport::tcp::Socket& to, const Word& word,
                                   Nanos deadline) noexcept;
  [[nodiscard]] static Status receive(const transport::tcp::Socket& from, Word& word, Nanos deadline);

  Party party_;
  std::vector<transport::tcp::Socket> links_;  // leader: one for each other rank; the others: [0] alone
};

}  // namespace sluice::nccl::collnet
