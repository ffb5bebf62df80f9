// Golden vectors: bytes as pairs of hex digits, '#' begins a comment to the end of the line.
#pragma once

#include <cctype>
#include <cstddef>
#include <fstream>
#include <stdexcept>
#include <string>
#include <vector>

namespace sluice::test {

// Throws std::runtime_error, which fails the test that asked, when the file is missing or is not hex.
inline std::vector<std::byte> read_hex_file(const std::string& path) {
  std::ifstream file(path);
  if (!file) throw std::runtime_error("cannot open " + path);
  std::string digits;
  for (std::string line; std::getline(file, line);) {
    for (const char c : line.substr(0, line.find('#'))) {
      if (std::isspace(static_cast<unsigned char>(c)) != 0) continue;
      if (std::isxdigit(static_cast<unsigned char>(c)) == 0)
        throw std::runtime_error(path + ": not hex: " + line);
      digits += c;
    }
  }
  if (digits.size() % 2 != 0) throw std::runtime_error(path + ": half a byte at the end");
  std::vector<std::byte> bytes;
  for (size_t i = 0; i < digits.size(); i += 2) {
    bytes.push_back(static_cast<std::byte>(std::stoul(digits.substr(i, 2), nullptr, 16)));
  }
  return bytes;
}

}  // namespace sluice::test
