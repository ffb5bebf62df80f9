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

// Of least..255; not set, or empty: `otherwise`.
Result<int> number(const char* name, int least, int otherwise) {
  const std::string text = variable(name);
  if (text.empty()) return otherwise;
  const char* const end = text.data() + text.size();
  int value = 0;
  const auto read = std::from_chars(text.data(), end, value);
  if (read.ec != std::errc() || read.ptr != end || value < least || value > 255)
    return fail(Errc::kInvalidArgument, std::string("variable ") + name + ": \"" + text + "\" is not in " +
                                            std::to_string(least) + "..255");
  return value;
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
  terms.choice.allows = config::port_filter(variable("SLUICE_IB_HCA"));
  const auto index = number("SLUICE_IB_GID_INDEX", -1, terms.choice.gid_index);
  if (!index) return tl::unexpected(index.error());
  const auto traffic_class = number("SLUICE_IB_TC", 0, terms.choice.traffic_class);
  if (!traffic_class) return tl::unexpected(traffic_class.error());
  terms.choice.gid_index = *index;
  terms.choice.traffic_class = static_cast<uint8_t>(*traffic_class);
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
