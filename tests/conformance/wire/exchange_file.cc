#include "tests/conformance/wire/exchange_file.h"

#include <fstream>
#include <sstream>
#include <stdexcept>

namespace sluice::test {

std::vector<RecordedFrame> read_exchange(const std::string& path) {
  std::ifstream file(path);
  if (!file) throw std::runtime_error("cannot open " + path);
  std::vector<RecordedFrame> frames;
  for (std::string line; std::getline(file, line);) {
    std::istringstream words(line.substr(0, line.find('#')));
    std::string word;
    if (line.starts_with('@')) {
      RecordedFrame f;
      words >> word >> f.connection >> word >> std::ws;
      f.to_reducer = word == ">";
      if (!f.to_reducer && word != "<")
        throw std::runtime_error(path + ": expected a direction > or <: \"" + line + "\"");
      std::getline(words, f.name);
      frames.push_back(std::move(f));
      continue;
    }
    while (words >> word) {
      if (frames.empty() || word.size() != 2 ||
          word.find_first_not_of("0123456789abcdef") != std::string::npos) {
        throw std::runtime_error(path + ": expected hex bytes of a frame: \"" + line + "\"");
      }
      frames.back().bytes.push_back(static_cast<std::byte>(std::stoul(word, nullptr, 16)));
    }
  }
  return frames;
}

}  // namespace sluice::test
