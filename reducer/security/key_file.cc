#include "reducer/security/key_file.h"

#include <sys/stat.h>

#include <algorithm>
#include <cctype>
#include <cerrno>
#include <cstring>
#include <fstream>
#include <iterator>

#include "core/log.h"

namespace sluice::reducer {

Result<std::vector<std::byte>> read_key_file(const std::string& path) {
  std::ifstream file(path, std::ios::binary);
  if (!file)
    return fail(Errc::kInvalidArgument, "cannot read key file " + path + ": " + std::strerror(errno));
  std::string text{std::istreambuf_iterator<char>(file), {}};
  std::erase_if(text, [](unsigned char c) { return std::isspace(c) != 0; });
  const auto digit = [](char c) { return std::isxdigit(static_cast<unsigned char>(c)) != 0; };
  if (text.size() != 64 || !std::ranges::all_of(text, digit)) {
    return fail(Errc::kInvalidArgument, "key file " + path + " does not hold 64 hexadecimal digits");
  }
  if (struct stat info{}; stat(path.c_str(), &info) == 0 && (info.st_mode & S_IROTH) != 0) {
    log::warn("key file " + path + " can be read by everybody");
  }
  std::vector<std::byte> key;
  for (size_t i = 0; i < text.size(); i += 2)
    key.push_back(static_cast<std::byte>(std::stoi(text.substr(i, 2), nullptr, 16)));
  return key;
}

}  // namespace sluice::reducer
