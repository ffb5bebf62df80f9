#include "config/secret_file.h"

#include <sys/stat.h>

#include <algorithm>

#include "config/file_contents.h"
#include "core/text_encoding.h"

namespace sluice::config {
namespace {

constexpr size_t kDigits = 64;
constexpr std::string_view kSecretSpaces = " \t\r\n";

int hex_value(char c) {
  if (c >= '0' && c <= '9') return c - '0';
  if (c >= 'a' && c <= 'f') return c - 'a' + 10;
  if (c >= 'A' && c <= 'F') return c - 'A' + 10;
  return -1;
}

// Takes one secret and the white space around it from the front of `text`; nothing if there is none.
std::optional<Secret> take_secret(std::string_view& text) {
  text.remove_prefix(std::min(text.find_first_not_of(kSecretSpaces), text.size()));
  const std::string_view digits = text.substr(0, text.find_first_of(kSecretSpaces));
  if (digits.size() != kDigits) return std::nullopt;
  Secret secret{};
  for (size_t i = 0; i < kDigits; ++i) {
    const int digit = hex_value(digits[i]);
    if (digit < 0) return std::nullopt;
    secret[i / 2] = static_cast<uint8_t>((secret[i / 2] << 4) | (digit & 15));
  }
  text.remove_prefix(kDigits);
  text.remove_prefix(std::min(text.find_first_not_of(kSecretSpaces), text.size()));
  return secret;
}

}  // namespace

Result<SecretFile> read_secret_file(const std::string& path) {
  const FileContents file = read_file_contents(path, 4 * kDigits, FileKind::kAny);
  const bool is_short = file.status != FileContents::Status::kTooLong;
  if (is_short && file.status != FileContents::Status::kOk)
    return fail(Errc::kSystem, read_failure(path, path, file.error));
  std::string_view rest = file.text;
  if (rest.starts_with("\xEF\xBB\xBF"))
    return invalid(path + ": begins with a byte order mark (BOM); save the file as UTF-8 without it");
  const auto first = take_secret(rest);
  SecretFile out;
  if (first && !rest.empty()) out.old_secret = take_secret(rest);
  if (!first || !rest.empty() || !is_short) {
    return invalid(path +
                   ": expected 64 hex digits (create the file with sluice keygen), or a second line "
                   "with the old key");
  }
  out.secret = *first;
  struct stat about {};
  if (::stat(path.c_str(), &about) == 0 && (about.st_mode & (S_IRWXG | S_IRWXO)) != 0) {
    out.warning = path + ": other users can read this secret; run chmod 600";
  }
  return out;
}

std::string secret_text(const Secret& secret) {
  return hex_text(secret) + "\n";
}

}  // namespace sluice::config
