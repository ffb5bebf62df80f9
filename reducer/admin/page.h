// The page at /, one document that loads nothing: reducer/admin/page/, put into the program when it is built.
#pragma once

#include <string>

namespace sluice::reducer::admin {

class Page {
 public:
  Page();
  [[nodiscard]] const std::string& html() const noexcept { return html_; }
  // Content-Security-Policy: this script and this style by their hashes, questions to this server, and
  // nothing else, whatever a text that the page shows may say.
  [[nodiscard]] const std::string& policy() const noexcept { return policy_; }

 private:
  std::string html_;
  std::string policy_;
};

}  // namespace sluice::reducer::admin
