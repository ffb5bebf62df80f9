// C ABI of libsluice_tls.so: one exported function that returns one table of functions.
//
// Programs, libsluice and the NCCL plugin load the library on demand, and they may be of another build. So
// the table has a version and never changes; a new table gets a new symbol.
//
// A stream works on a connected socket, which it does not own. One thread at a time uses a stream; any
// threads may use a context. No function blocks or throws.
#pragma once

#include <sys/types.h>
#include <sys/uio.h>

#include <cstddef>
#include <cstdint>

extern "C" {

struct SluiceTlsContext;
struct SluiceTlsStream;

struct SluiceTlsFiles {
  int server;               // 1: this side accepts connections; 0: it opens them
  const char* certificate;  // PEM, with its chain; null: none
  const char* key;          // of the certificate
  const char* ca;        // trusted authorities. Null: a server requests no certificate, a client accepts none
  uint64_t rekey_after;  // records sent with one key; 0: the safe number for AES-GCM
};

struct SluiceTlsPeer {
  const unsigned char* identity;  // of the pre-shared key
  size_t identity_bytes;
  const unsigned char* psk;      // 32 bytes; null: certificates only
  const char* host;              // client without psk: name or address in the server's certificate
  const unsigned char* binding;  // digest of the plaintext handshake; must be equal on both sides
  size_t binding_bytes;          // at most 200
};

enum SluiceTlsStep {
  kSluiceTlsDone = 0,
  kSluiceTlsWantsRead = 1,   // call again when the socket is readable
  kSluiceTlsWantsWrite = 2,  // call again when the socket is writable
  kSluiceTlsFailed = 3,      // the alert, if any, was sent as far as the socket accepted it
  kSluiceTlsPeerEnded = 4,   // the connection ended without an alert: the peer's process ended, or a host
};

struct SluiceTlsApi {
  uint32_t version;  // kSluiceTlsVersion
  // Null on error, with a text in `error`: for example an unreadable file, or a key of another certificate.
  SluiceTlsContext* (*make_context)(const SluiceTlsFiles* files, char* error, size_t error_bytes);
  void (*free_context)(SluiceTlsContext* context);  // its streams may live longer
  // Null on error, with a text in `error`. Copies everything that `peer` points to.
  SluiceTlsStream* (*open)(SluiceTlsContext* context, int fd, const SluiceTlsPeer* peer, char* error,
                           size_t error_bytes);
  void (*free_stream)(SluiceTlsStream* stream);  // sends nothing to the peer
  int (*handshake)(SluiceTlsStream* stream);     // returns a SluiceTlsStep
  // Like recvmsg and sendmsg on a non-blocking socket: a number of bytes, 0 at the peer's end, or -1 and
  // errno (EAGAIN, ECONNRESET, EPIPE). receive() returns less than requested only when the socket is empty or
  // the stream has ended. send() may have encrypted bytes that it did not count: offer these again first.
  ssize_t (*receive)(SluiceTlsStream* stream, const iovec* blocks, size_t count);
  ssize_t (*send)(SluiceTlsStream* stream, const iovec* blocks, size_t count);
  // Tells the peer that no more bytes follow. 0: call again when the socket is writable.
  int (*send_close_notify)(SluiceTlsStream* stream);
  // 1 when the peer has ended or the stream has failed. receive() reports it, even if the socket is empty.
  int (*has_ended)(const SluiceTlsStream* stream);
  // 1 when has_ended(), or when bytes were read from the socket that receive() has not returned. They may be
  // part of a record, so a caller must stop when receive() returns nothing.
  int (*has_pending_bytes)(const SluiceTlsStream* stream);
  const char* (*error)(const SluiceTlsStream* stream);  // text of the last failure; never null
};

inline constexpr uint32_t kSluiceTlsVersion = 2;
inline constexpr size_t kSluiceTlsPskBytes = 32;

__attribute__((visibility("default"))) const SluiceTlsApi* sluice_tls_v2(void);
}
