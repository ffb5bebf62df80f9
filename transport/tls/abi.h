// What libsluice_tls.so shows: one function that gives one table. A C face with a version, since the library
// is loaded on demand by programs, by libsluice and by the NCCL plugin, which may be of another build. A
// table that was given out is never changed: another one has another symbol.
//
// A stream stands on a connected socket, which it neither owns nor closes, and belongs to one thread at a
// time. A context may be used by any threads. Nothing blocks, nothing throws.
#pragma once

#include <sys/types.h>
#include <sys/uio.h>

#include <cstddef>
#include <cstdint>

extern "C" {

struct SluiceTlsContext;
struct SluiceTlsStream;

struct SluiceTlsFiles {
  int server;               // 1: of who accepts connections; 0: of who opens them
  const char* certificate;  // PEM, with its chain; null: none
  const char* key;          // of the certificate
  const char* ca;  // whose certificates the peer may show. Null: a server asks for none, a client takes none
  uint64_t rekey_after;  // records sent with one key; 0: as many as AES-GCM is good for
};

struct SluiceTlsPeer {
  const unsigned char* identity;  // of the pre-shared key
  size_t identity_bytes;
  const unsigned char* psk;    // 32 bytes; null: certificates alone
  const char* host;            // client without psk: name or address that the server's certificate must have
  const unsigned char* bound;  // what both sides have said before, as both must have heard it: a digest
  size_t bound_bytes;          // at most 200
};

enum SluiceTlsStep {
  kSluiceTlsDone = 0,
  kSluiceTlsWantsRead = 1,  // call again when the socket is readable, or ...
  kSluiceTlsWantsWrite = 2,
  kSluiceTlsFailed = 3,  // the alert, if there is one, has been sent as far as the socket took it
};

struct SluiceTlsApi {
  uint32_t version;  // kSluiceTlsVersion
  // Null with words in `why`: a file that can't be read, a key that is not of its certificate.
  SluiceTlsContext* (*make_context)(const SluiceTlsFiles* files, char* why, size_t why_bytes);
  void (*free_context)(SluiceTlsContext* context);  // its streams may live on
  // Null with words in `why`. What `peer` points to is copied.
  SluiceTlsStream* (*open)(SluiceTlsContext* context, int fd, const SluiceTlsPeer* peer, char* why,
                           size_t why_bytes);
  void (*free_stream)(SluiceTlsStream* stream);  // says nothing to the peer
  int (*handshake)(SluiceTlsStream* stream);     // SluiceTlsStep
  // As recvmsg and sendmsg on a non-blocking socket: bytes, 0 at the peer's end, or -1 and errno (EAGAIN,
  // ECONNRESET, EPIPE). receive() gives less than was asked for only when the socket is empty or the stream
  // is over. What send() has not counted as sent may have been encrypted: it must be offered again first.
  ssize_t (*receive)(SluiceTlsStream* stream, const iovec* blocks, size_t count);
  ssize_t (*send)(SluiceTlsStream* stream, const iovec* blocks, size_t count);
  // Tells the peer that nothing more comes. 0: call again when the socket is writable.
  int (*end)(SluiceTlsStream* stream);
  // 1 when the peer has ended or the stream has failed, and receive() is yet to say so, though the socket may
  // have nothing to read.
  int (*over)(const SluiceTlsStream* stream);
  // 1 when it is over, or bytes have been read from the socket that receive() has not given: part of a record
  // perhaps, so a receive() that finds nothing must end the asking.
  int (*pending)(const SluiceTlsStream* stream);
  const char* (*why)(const SluiceTlsStream* stream);  // of the last failure; never null
};

inline constexpr uint32_t kSluiceTlsVersion = 1;
inline constexpr size_t kSluiceTlsPskBytes = 32;

__attribute__((visibility("default"))) const SluiceTlsApi* sluice_tls_v1(void);
}
