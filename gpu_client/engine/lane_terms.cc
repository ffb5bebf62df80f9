#include "gpu_client/engine/lane_terms.h"

#include <charconv>
#include <cstdlib>
#include <span>
#include <string_view>
#include <system_error>
#include <utility>

#include "config/lane_transport.h"
#include "config/name_list.h"
#include "transport/rdma/pairing.h"

namespace sluice::engine {
namespace {

namespace rdma = transport::rdma;

std::string variable(const char* name) {
  const char* const value = std::getenv(name);
  return value != nullptr ? value : "";
}

std::string printable_or(std::string text, const char* other) {
  return text.empty() ? other : printable(std::move(text));
}

// Why frames may not go over a queue pair, before anybody has tried; empty: they may.
std::string obstacle(const Greeting& g) {
  if (g.socket.secured() != nullptr) return "they go through TLS";
  if ((g.welcome.features & wire::kFeatureRdma) == 0) return "the reducer offers none";
  return {};
}

// PAIR there and back, PAIRED there. Why it came to nothing; empty: the socket has its pair.
Result<std::string> pair_up(Greeting& g, const LaneTerms& terms, const Until& until) {
  wire::Pair ours;
  auto offer = rdma::offer_pair(g.socket.fd(), terms.choice, {.memory = terms.memory});
  if (offer) {
    ours.address = offer->address;
  } else {
    ours.why = offer.error().text;
  }
  auto theirs = ask<wire::Pair>(g, ours, until);
  if (!theirs) return tl::unexpected(theirs.error());
  if (!offer) return ours.why;
  if (theirs->address.empty()) return "there: " + printable_or(std::move(theirs->why), "no reason given");
  auto joined = rdma::join_pair(*offer->pair, g.socket.fd(), std::as_bytes(std::span(theirs->address)));
  if (joined) joined = rdma::prove_pair(*offer->pair, until);
  wire::Paired paired;
  paired.ready = joined ? 1 : 0;
  if (!joined) paired.why = joined.error().text;
  if (auto sent = send_frame(g, wire::encode_message(paired), until); !sent)
    return tl::unexpected(sent.error());
  if (!joined) {
    // The reducer's word on that: nothing, or its refusal.
    if (auto answer = receive_body(g, wire::FrameType::kPair, until); !answer)
      return tl::unexpected(answer.error());
    return joined.error().text;
  }
  g.socket.accompany(std::move(offer->pair));
  return std::string();
}

}  // namespace

Result<LaneTerms> read_transport_variables() {
  const std::string how = variable("SLUICE_TRANSPORT");
  const auto choice = config::parse_lane_transport(how.empty() ? "auto" : how);
  if (!choice) return add_context("variable SLUICE_TRANSPORT", choice.error());
  LaneTerms terms;
  terms.rdma = *choice != config::LaneTransport::kTcp;
  terms.only_rdma = *choice == config::LaneTransport::kRdma;
  if (const std::string list = variable("SLUICE_IB_HCA"); !list.empty()) {
    terms.choice.allows = [list](std::string_view device, unsigned port) {
      return config::is_listed(list, device, port);
    };
  }
  if (const std::string number = variable("SLUICE_IB_TC"); !number.empty()) {
    const char* const end = number.data() + number.size();
    const auto read = std::from_chars(number.data(), end, terms.choice.traffic_class);
    if (read.ec != std::errc() || read.ptr != end)
      return fail(Errc::kInvalidArgument, "variable SLUICE_IB_TC: \"" + number + "\" is not in 0..255");
  }
  if (!terms.rdma) return terms;
  auto rails = rdma::rails(terms.choice);
  if (rails) {
    terms.rails = std::move(*rails);
    terms.memory = rdma::Memory::make();
  } else if (terms.only_rdma) {
    return add_context("variable SLUICE_TRANSPORT is rdma", rails.error());
  } else {
    terms.rdma = false;
    terms.no_rdma = rails.error().text;
  }
  return terms;
}

Result<void> settle_transport(Greeting& greeting, const LaneTerms& terms, const Until& until) {
  if (!terms.rdma) {
    greeting.no_pair = terms.no_rdma;
    return {};
  }
  std::string why = obstacle(greeting);
  if (why.empty()) {
    auto paired = pair_up(greeting, terms, until);
    if (!paired) return tl::unexpected(paired.error());
    why = std::move(*paired);
  }
  if (!why.empty() && terms.only_rdma)
    return fail(Errc::kUnsupported,
                greeting.name + ": no RDMA for a lane, and nothing else is allowed: " + why);
  greeting.no_pair = std::move(why);
  return {};
}

}  // namespace sluice::engine
