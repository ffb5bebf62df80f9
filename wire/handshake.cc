#include "wire/handshake.h"

#include <algorithm>
#include <string_view>

namespace sluice::wire {
namespace {

void append(std::vector<std::byte>& out, std::string_view text) {
  for (char c : text) out.push_back(static_cast<std::byte>(c));
  out.push_back(std::byte{0});
}

// The bytes that both proofs cover. The mac of WELCOME is zeroed, because it is the server's proof itself.
std::vector<std::byte> transcript(std::string_view role, const Hello& hello, const Welcome& welcome) {
  std::vector<std::byte> out;
  append(out, role);
  std::ranges::copy(encode_body(hello), std::back_inserter(out));
  Welcome plain = welcome;
  plain.mac = {};
  std::ranges::copy(encode_body(plain), std::back_inserter(out));
  return out;
}

}  // namespace

std::optional<uint8_t> common_version(uint8_t peer_min, uint8_t peer_max) noexcept {
  const uint8_t highest = std::min(peer_max, kVersionMax);
  if (peer_min > peer_max || highest < peer_min || highest < kVersionMin) return std::nullopt;
  return highest;
}

std::string version_range(uint8_t min, uint8_t max) {
  return min == max ? std::to_string(min) : std::to_string(min) + "-" + std::to_string(max);
}

const std::string& job_name(const Hello& hello) noexcept {
  static const std::string unnamed = "default";
  return hello.job.empty() ? unnamed : hello.job;
}

Digest job_token(std::span<const std::byte> key, const std::string& job) {
  std::vector<std::byte> data;
  append(data, "sluice job token");
  append(data, job);
  return hmac_sha256(key, data);
}

uint64_t key_id(const Digest& token, const Nonce& nonce) {
  std::vector<std::byte> data;
  append(data, "sluice key id");
  std::ranges::copy(std::as_bytes(std::span(nonce)), std::back_inserter(data));
  const Digest id = hmac_sha256(std::as_bytes(std::span(token)), data);
  return load_le<uint64_t>(reinterpret_cast<const std::byte*>(id.data()));
}

Mac server_proof(const Digest& token, const Hello& hello, const Welcome& welcome) {
  return hmac_sha256(std::as_bytes(std::span(token)), transcript("sluice server", hello, welcome));
}

Mac client_proof(const Digest& token, const Hello& hello, const Welcome& welcome, uint64_t view_hash) {
  auto data = transcript("sluice client", hello, welcome);
  const size_t at = data.size();
  data.resize(at + sizeof view_hash);
  store_le(data.data() + at, view_hash);
  return hmac_sha256(std::as_bytes(std::span(token)), data);
}

Digest tls_key(const Digest& token) {
  std::vector<std::byte> data;
  append(data, "sluice tls psk");
  return hmac_sha256(std::as_bytes(std::span(token)), data);
}

Digest tls_binding(const Hello& hello, const Welcome& welcome) {
  std::vector<std::byte> data = encode_body(hello);
  std::ranges::copy(encode_body(welcome), std::back_inserter(data));
  return sha256(data);
}

}  // namespace sluice::wire
