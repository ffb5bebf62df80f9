// f32 that travels in 16 or 8 bits between hosts with several ranks.
#include <sluice/streams.h>

#include <bit>
#include <cmath>

#include "tests/functional/rails_test_bed.h"

namespace sluice::test {
namespace {

struct WireType {
  sluice_dtype dtype;
  double bytes;  // of a value
  double error;  // most of each of the three roundings, of a value near 1: rank, host, result
};
constexpr WireType kWireTypes[] = {{SLUICE_BF16, 2, 0x1p-8},
                                   {SLUICE_F16, 2, 0x1p-11},
                                   {SLUICE_MXFP8, 264.0 / 256, 0x1p-4},
                                   {SLUICE_INT8_BLOCK, 264.0 / 256, 1.0 / 127}};

class RailsWire : public Rails {
 protected:
  static constexpr size_t kCount = 1 << 20;

  // An allreduce or reduce-scatter of values from 1 to 2 in the order of a host stream. Returns 0 if the
  // result is as exact as `error` allows and this rank has sent about so many bytes.
  static int reduce(sluice_session* s, uint32_t ranks, uint32_t rank, sluice_dtype wire, sluice_op op,
                    bool scatters, double error, double bytes) {
    sluice_stream_options options;
    sluice_stream_options_init(&options);
    options.wire_dtype = wire;
    if (sluice_session_open_streams(s, &options, nullptr, 0) != SLUICE_OK) return 81;
    sluice_stream stream = nullptr;
    if (sluice_host_stream_create(&stream) != SLUICE_OK) return 82;
    const auto value = [](size_t i, uint32_t of) {
      return 1 + static_cast<float>((i * 7 + of * 311) % 1000) / 1000;
    };
    std::vector<float> x(kCount);
    for (size_t i = 0; i < kCount; ++i) x[i] = value(i, rank);
    const uint64_t before = stats_of(s).payload_bytes_out;
    const size_t part = kCount / ranks;
    float* const own = x.data() + (scatters ? rank * part : 0);
    const sluice_status status =
        scatters ? sluice_reduce_scatter_on_stream(s, x.data(), own, part, nullptr, SLUICE_F32, op, nullptr,
                                                   stream, nullptr)
                 : sluice_allreduce_on_stream(s, x.data(), x.data(), kCount, SLUICE_F32, op, stream, nullptr);
    if (status != SLUICE_OK || sluice_host_stream_synchronize(stream) != SLUICE_OK) return 83;
    const auto sent = static_cast<double>(stats_of(s).payload_bytes_out - before);
    const size_t first = scatters ? rank * part : 0;
    const double divisor = op == SLUICE_AVG ? ranks : 1;
    for (size_t i = 0; i < (scatters ? part : kCount); ++i) {
      double expected = 0;
      for (uint32_t other = 0; other < ranks; ++other) expected += value(first + i, other);
      if (std::abs(own[i] * divisor - expected) > 2 * ranks * 3 * error) {
        std::fprintf(stderr, "element %zu: %g, expected %g\n", i, own[i] * divisor, expected);
        return 84;
      }
    }
    if (sent < 0.9 * bytes || sent > 1.1 * bytes) {
      std::fprintf(stderr, "sent %g B, expected %g B\n", sent, bytes);
      return 85;
    }
    return sluice_host_stream_destroy(stream) == SLUICE_OK ? 0 : 86;
  }
};

// Each of two ranks on a host sends about half of its sum.
TEST_F(RailsWire, HostsSendTheirSumInTheWireType) {
  for (const WireType& wire : kWireTypes) {
    for (const sluice_op op : {SLUICE_SUM, SLUICE_AVG}) {
      for (const bool scatters : {false, true}) {
        SCOPED_TRACE(wire.dtype);
        SetUp();
        run_hosts({0, 0, 1, 1}, 2, [&](uint32_t rank, sluice_session* s) {
          return reduce(s, 4, rank, wire.dtype, op, scatters, wire.error, kCount * wire.bytes / 2);
        });
      }
    }
  }
}

// The division by 6 is before the rounding of a host's sum: nothing is rounded after the reducers' sum.
TEST_F(RailsWire, AveragesOfRoundedSumsAreNotRoundedAgain) {
  const auto as_bf16 = [](float value) {
    const uint32_t bits = std::bit_cast<uint32_t>(value);
    return std::bit_cast<float>((bits + 0x7fff + (bits >> 16 & 1)) & 0xffff0000);
  };
  const auto value = [](size_t i, uint32_t rank) {  // of 8 significant bits
    return static_cast<float>((i * 7 + rank * 311) % 251) - 125;
  };
  run_hosts({0, 0, 1, 1, 2, 2}, 1, [&](uint32_t rank, sluice_session* s) {
    std::vector<uint16_t> x(30'000), y(x.size());
    for (size_t i = 0; i < x.size(); ++i)
      x[i] = static_cast<uint16_t>(std::bit_cast<uint32_t>(value(i, rank)) >> 16);
    if (sluice_allreduce(s, x.data(), y.data(), x.size(), SLUICE_BF16, SLUICE_AVG) != SLUICE_OK) return 81;
    for (size_t i = 0; i < x.size(); ++i) {
      float hosts[3];
      for (uint32_t host = 0; host < 3; ++host)
        hosts[host] = as_bf16((value(i, 2 * host) + value(i, 2 * host + 1)) / 6);
      const float expected = as_bf16(hosts[0] + hosts[1] + hosts[2]);
      if (std::bit_cast<float>(uint32_t{y[i]} << 16) != expected) return 82;
    }
    return 0;
  });
}

TEST_F(RailsWire, ExactSumsOfHostsTravelAsF32) {
  for (const WireType& wire : kWireTypes) {
    SCOPED_TRACE(wire.dtype);
    SetUp();
    run_hosts(
        {0, 0, 1, 1}, 2,
        [&](uint32_t rank, sluice_session* s) {
          return reduce(s, 4, rank, wire.dtype, SLUICE_AVG, false, wire.error, kCount * 2);
        },
        ~0U, [](uint32_t, sluice_options&) { ::setenv("SLUICE_HOSTS", "exact", 1); });
  }
}

TEST_F(RailsWire, OneHostSendsNothingAndRoundsNothing) {
  for (const WireType& wire : kWireTypes) {
    SCOPED_TRACE(wire.dtype);
    SetUp();
    run_hosts({0, 0, 0, 0}, 1, [&](uint32_t rank, sluice_session* s) {
      return reduce(s, 4, rank, wire.dtype, SLUICE_SUM, false, 0x1p-22, 0);
    });
  }
}

}  // namespace
}  // namespace sluice::test
