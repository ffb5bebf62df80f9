// What the device and the courier are given for a round. The order of calls here is the order that a single
// hardware queue could run: what waits for the host comes behind all that the host waits for.
#include <algorithm>
#include <string>
#include <utility>

#include "gpu_client/pipeline/streams.h"
#include "wire/dtype.h"

namespace sluice::pipeline {

uint64_t Streams::piece_elements_of(const Round& round) const noexcept {
  const auto wire_bytes = static_cast<uint32_t>(wire::size_of(round.wire_dtype()));
  return piece_elements(round.count, wire_bytes, options_.piece_bytes);
}

uint64_t Streams::parcels_of(const std::vector<Round>& rounds) const noexcept {
  uint64_t parcels = 0;
  for (const Round& round : rounds) {
    parcels += div_ceil(round.count, piece_elements_of(round));
    if (round.cast == WireCast::kScaledF16) ++parcels;
  }
  return parcels;
}

Result<uint64_t> Streams::give(const std::vector<Tensor>& tensors, uint64_t operations, bool asked) {
  if (const Errc code = session_.code(); code != Errc::kOk) return fail(code, session_.reason());
  if (broken_.load(std::memory_order_relaxed)) return fail(Errc::kSystem, "an operation before has failed");
  const std::vector<Round> rounds = make_rounds(tensors, options_.fusion_bytes);
  const uint64_t under_way = courier_.under_way();
  if (under_way > 0 && under_way + parcels_of(rounds) > kMostUnderWay) {
    return fail(Errc::kExhausted, std::to_string(under_way) + " pieces are under way, and " +
                                      std::to_string(kMostUnderWay) + " may be");
  }
  const auto flight = std::make_shared<Flight>();
  flight->operations = operations;
  uint64_t name = 0;
  if (asked) {
    // One of nothing is over by itself.
    if (!rounds.empty()) {
      auto event = device_->make_event();
      if (!event) return tl::unexpected(event.error());
      flight->done = std::move(*event);
    }
    name = name_flight(flight);
  }
  Status status;
  std::string words;
  try {
    for (const Round& round : rounds) {
      if (status = give_round(round, flight); !status.ok()) break;
    }
    if (status.ok() && flight->done) status = device_->record(*flight->done, device_->in());
    if (!status.ok()) words = device_->last_words();
  } catch (const std::exception& e) {
    status = Errc::kSystem;
    words = std::string("the operation can't be given: ") + e.what();
  }
  courier_.given(*flight, status.code());
  if (status.ok()) return name;
  end_with({status.code(), words});
  let_go(rounds);
  if (asked) forget(name);
  return fail(status.code(), words);
}

// What was given before it failed may still read and write the caller's buffers: the caller's streams go on
// behind it, as far as the device still takes that.
void Streams::let_go(const std::vector<Round>& rounds) {
  try {
    for (const Round& round : rounds) {
      for (const Device::Stream own : {device_->out(), device_->in()}) {
        if (device_->record(*ended_, own).ok()) (void)device_->wait(round.stream, *ended_);
      }
    }
  } catch (const std::bad_alloc&) {
    return;  // the host's device alone, whose streams take memory
  }
}

Status Streams::give_round(const Round& round, const std::shared_ptr<Flight>& flight) {
  ++stats_.rounds;
  if (!round.staged && !device_->keeps_order(round.stream)) return give_parcels(round, flight, false);
  if (const Status s = device_->record(*begun_, round.stream); !s.ok()) return s;
  for (const Device::Stream stream : {device_->out(), device_->in()}) {
    if (const Status s = device_->wait(stream, *begun_); !s.ok()) return s;
  }
  Cast cast;
  cast.wire = round.cast;
  cast.element_bytes = static_cast<uint32_t>(wire::size_of(round.dtype));
  cast.measure = options_.measure_error;
  Status status;
  if (round.cast == WireCast::kScaledF16) {
    status = give_exponents(round, flight, cast);
  } else {
    status = round.staged ? give_staged(round, flight, cast) : give_in_place(round, flight);
  }
  if (!status.ok()) return status;
  if (const Status s = device_->record(*ended_, device_->in()); !s.ok()) return s;
  return device_->wait(round.stream, *ended_);
}

Status Streams::make_ready(std::unique_ptr<Event>& event) {
  event = courier_.spare_event();
  if (!event) {
    auto made = device_->make_event();
    if (!made) return made.error().code;
    event = std::move(*made);
  }
  return device_->record(*event, device_->out());
}

Status Streams::give_exponents(const Round& round, const std::shared_ptr<Flight>& flight, Cast& cast) {
  Place& place = staging_.next_exponents();
  if (place.used) {
    if (const Status s = device_->wait(device_->out(), *place.free); !s.ok()) return s;
  }
  auto* const own = reinterpret_cast<uint8_t*>(place.out);
  if (const Status s = device_->find_exponents(device_->out(), round.segments, own); !s.ok()) return s;
  Parcel parcel;
  if (const Status s = make_ready(parcel.ready); !s.ok()) return s;
  parcel.request = {.send = place.out,
                    .recv = place.in,
                    .count = div_ceil(round.count, kScaleBlock),
                    .dtype = wire::DType::kU8,
                    .op = wire::Op::kMax};
  parcel.number = ++given_;
  parcel.piece = false;
  parcel.flight = flight;
  courier_.carry(std::move(parcel));
  if (const Status s = device_->hold(device_->out(), staging_.landed(), given_); !s.ok()) return s;
  cast.exponents = reinterpret_cast<const uint8_t*>(place.in);
  cast.top = scale_top(round.op == wire::Op::kAvg ? 1 : session_.ranks());
  if (const Status s = give_staged(round, flight, cast); !s.ok()) return s;
  place.used = true;
  return device_->record(*place.free, device_->in());
}

Status Streams::give_staged(const Round& round, const std::shared_ptr<Flight>& flight, Cast cast) {
  const uint64_t elements = piece_elements_of(round);
  const uint64_t pieces = div_ceil(round.count, elements);
  // As many go out before the first comes back as there are places; from then on one of each in turn.
  struct OnItsWay {
    Place* place;
    uint32_t number;
  };
  std::vector<OnItsWay> on_their_way(pieces);
  const auto part = [&](uint64_t piece) {
    cast.first = piece * elements;
    const uint64_t count = std::min(elements, round.count - cast.first);
    take_segments(round.segments, cast.first, count, cast.element_bytes, parts_);
    return count;
  };
  const auto give_out = [&](uint64_t piece) -> Status {
    Place& place = staging_.next_piece();
    if (place.used) {
      if (const Status s = device_->wait(device_->out(), *place.free); !s.ok()) return s;
    }
    const uint64_t count = part(piece);
    if (const Status s = device_->gather(device_->out(), parts_, place.out, cast); !s.ok()) return s;
    Parcel parcel;
    if (const Status s = make_ready(parcel.ready); !s.ok()) return s;
    parcel.request = {
        .send = place.out, .recv = place.in, .count = count, .dtype = round.wire_dtype(), .op = round.op};
    parcel.number = ++given_;
    parcel.flight = flight;
    on_their_way[piece] = {&place, given_};
    courier_.carry(std::move(parcel));
    stats_.bytes_staged_out += count * cast.wire_bytes();
    if (cast.wire != WireCast::kNone) stats_.elements_cast += count;
    return {};
  };
  const auto give_in = [&](uint64_t piece) -> Status {
    const auto [place, number] = on_their_way[piece];
    if (const Status s = device_->hold(device_->in(), staging_.landed(), number); !s.ok()) return s;
    const uint64_t count = part(piece);
    if (const Status s = device_->scatter(device_->in(), place->in, parts_, cast); !s.ok()) return s;
    stats_.bytes_staged_in += count * cast.wire_bytes();
    place->used = true;
    return device_->record(*place->free, device_->in());
  };
  const uint64_t ahead = staging_.places();
  for (uint64_t piece = 0; piece < pieces + ahead; ++piece) {
    if (piece >= ahead && piece - ahead < pieces) {
      if (const Status s = give_in(piece - ahead); !s.ok()) return s;
    }
    if (piece < pieces) {
      if (const Status s = give_out(piece); !s.ok()) return s;
    }
  }
  return {};
}

Status Streams::give_in_place(const Round& round, const std::shared_ptr<Flight>& flight) {
  if (const Status s = give_parcels(round, flight, true); !s.ok()) return s;
  return device_->hold(device_->in(), staging_.landed(), given_);
}

Status Streams::give_parcels(const Round& round, const std::shared_ptr<Flight>& flight, bool in_order) {
  const uint64_t elements = piece_elements_of(round);
  const size_t size = wire::size_of(round.dtype);
  const Segment& all = round.segments.front();
  for (uint64_t first = 0; first < round.count; first += elements) {
    Parcel parcel;
    // The pieces behind the first are ready with it.
    if (in_order && first == 0) {
      if (const Status s = make_ready(parcel.ready); !s.ok()) return s;
    }
    parcel.request = {.send = all.send + first * size,
                      .recv = all.recv + first * size,
                      .count = std::min(elements, round.count - first),
                      .dtype = round.dtype,
                      .op = round.op};
    parcel.number = ++given_;
    parcel.flight = flight;
    courier_.carry(std::move(parcel));
  }
  return {};
}

}  // namespace sluice::pipeline
