#include "reducer/admin/status_page.h"

#include <span>

#include "core/assert.h"
#include "reducer/admin/embedded_page.h"
#include "wire/sha256.h"

namespace sluice::reducer::admin {
namespace {

// The hash that Content-Security-Policy expects of the bytes between the tags.
std::string hash_of(std::string_view text) {
  constexpr std::string_view kDigits = "ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz0123456789+/";
  const wire::Digest digest = wire::sha256(std::as_bytes(std::span(text)));
  std::string base64;
  for (size_t i = 0; i < digest.size(); i += 3) {
    uint32_t bits = 0;
    for (size_t k = 0; k < 3; ++k) bits = bits << 8 | (i + k < digest.size() ? digest[i + k] : 0u);
    for (int shift = 18; shift >= 0; shift -= 6) base64 += kDigits[bits >> shift & 63];
  }
  static_assert(std::tuple_size_v<wire::Digest> % 3 == 2);
  base64.back() = '=';
  return "'sha256-" + base64 + "'";
}

void substitute(std::string& document, std::string_view placeholder, std::string_view part) {
  const size_t at = document.find(placeholder);
  SLUICE_ASSERT(at != std::string::npos);
  document.replace(at, placeholder.size(), part);
}

}  // namespace

StatusPage::StatusPage() : html_(kPageDocument) {
  substitute(html_, "/*style*/", kPageStyle);
  substitute(html_, "/*script*/", kPageScript);
  policy_ =
      "default-src 'none'; style-src " + hash_of(kPageStyle) + "; script-src " + hash_of(kPageScript) +
      "; connect-src 'self'; img-src data:; base-uri 'none'; form-action 'none'; frame-ancestors 'none'";
}

}  // namespace sluice::reducer::admin
