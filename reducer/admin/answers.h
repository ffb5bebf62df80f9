// What is said to a path. No network.
#pragma once

#include <map>
#include <string>
#include <string_view>
#include <vector>

#include "reducer/admin/page.h"

namespace sluice::reducer::admin {

struct Answer {
  unsigned status = 200;
  std::string type = "text/plain; charset=utf-8";
  std::string body;
  std::string policy = "default-src 'none'; frame-ancestors 'none'";  // Content-Security-Policy
};

// In plain words, with a line's end.
[[nodiscard]] Answer refusal(unsigned status, std::string_view words);

class Answers {
 public:
  Answers(std::map<std::string, std::string> build, std::string data_host)
      : build_(std::move(build)), data_host_(std::move(data_host)) {}

  // Whether answer() needs to know how the reducer is.
  [[nodiscard]] static bool needs_status(std::string_view path) noexcept;
  // `status`: the reducer's JSON; null when it did not say, or it is not needed.
  [[nodiscard]] Answer answer(std::string_view path, const std::string* status) const;

 private:
  const std::map<std::string, std::string> build_;
  const std::string data_host_;
  const Page page_;
};

}  // namespace sluice::reducer::admin
