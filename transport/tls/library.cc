// The table, and nothing else, is visible.
#include <cstdio>
#include <new>

#include "transport/tls/abi.h"
#include "transport/tls/context.h"
#include "transport/tls/stream.h"

namespace {

SluiceTlsStream* open_stream(SluiceTlsContext* context, int fd, const SluiceTlsPeer* peer, char* why,
                             size_t why_bytes) {
  auto* const stream = new (std::nothrow) SluiceTlsStream;
  if (stream != nullptr && stream->open(*context, fd, *peer)) return stream;
  std::snprintf(why, why_bytes, "%s", stream == nullptr ? "out of memory" : stream->why.data());
  delete stream;
  return nullptr;
}

constexpr SluiceTlsApi kApi = {
    .version = kSluiceTlsVersion,
    .make_context = [](const SluiceTlsFiles* files, char* why,
                       size_t why_bytes) { return sluice::tls::make_context(*files, why, why_bytes); },
    .free_context = [](SluiceTlsContext* context) { sluice::tls::free_context(context); },
    .open = open_stream,
    .free_stream = [](SluiceTlsStream* stream) { delete stream; },
    .handshake = [](SluiceTlsStream* stream) { return static_cast<int>(stream->handshake()); },
    .receive =
        [](SluiceTlsStream* stream, const iovec* blocks, size_t count) {
          return stream->receive({blocks, count});
        },
    .send =
        [](SluiceTlsStream* stream, const iovec* blocks, size_t count) {
          return stream->send({blocks, count});
        },
    .end = [](SluiceTlsStream* stream) { return stream->end() ? 1 : 0; },
    .over = [](const SluiceTlsStream* stream) { return stream->over() ? 1 : 0; },
    .pending = [](const SluiceTlsStream* stream) { return stream->pending() ? 1 : 0; },
    .why = [](const SluiceTlsStream* stream) { return stream->why.data(); },
};

}  // namespace

const SluiceTlsApi* sluice_tls_v1(void) {
  return &kApi;
}
