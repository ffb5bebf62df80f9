// Exports the function table and nothing else.
#include <cstdio>
#include <new>

#include "transport/tls/abi.h"
#include "transport/tls/context.h"
#include "transport/tls/stream.h"

namespace {

SluiceTlsStream* open_stream(SluiceTlsContext* context, int fd, const SluiceTlsPeer* peer, char* error,
                             size_t error_bytes) {
  auto* const stream = new (std::nothrow) SluiceTlsStream;
  if (stream != nullptr && stream->open(*context, fd, *peer)) return stream;
  std::snprintf(error, error_bytes, "%s", stream == nullptr ? "out of memory" : stream->error.data());
  delete stream;
  return nullptr;
}

constexpr SluiceTlsApi kApi = {
    .version = kSluiceTlsVersion,
    .make_context = [](const SluiceTlsFiles* files, char* error,
                       size_t error_bytes) { return sluice::tls::make_context(*files, error, error_bytes); },
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
    .send_close_notify = [](SluiceTlsStream* stream) { return stream->send_close_notify() ? 1 : 0; },
    .has_ended = [](const SluiceTlsStream* stream) { return stream->has_ended() ? 1 : 0; },
    .has_pending_bytes = [](const SluiceTlsStream* stream) { return stream->has_pending_bytes() ? 1 : 0; },
    .error = [](const SluiceTlsStream* stream) { return stream->error.data(); },
};

}  // namespace

const SluiceTlsApi* sluice_tls_v2(void) {
  return &kApi;
}
